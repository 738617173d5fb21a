// SPDX-License-Identifier: Apache-2.0
// Whether this is a build with the thread sanitizer. It is 10 to 50 times slower and looks for
// races only: there, tests over shapes and instruction sets run the few that differ in who waits
// for whom. What values come out is the other builds' to check.
#pragma once

namespace fathom::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace fathom::test
