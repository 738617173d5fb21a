// SPDX-License-Identifier: Apache-2.0
// Whether this is a build with a sanitizer.
// The thread sanitizer is 10 to 50 times slower and looks for races only: there, tests over shapes
// and instruction sets run the few that differ in who waits for whom. What values come out is the
// other builds' to check.
// The address sanitizer maps terabytes and keeps what was freed: limits on a process's memory are
// not its to meet.
#pragma once

#if !defined(__has_feature)  // gcc
#define __has_feature(x) 0
#endif

namespace fathom::test {

#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

// At the start of a test that limits or weighs its process's memory.
#define FATHOM_SKIP_UNDER_SANITIZERS()                                                   \
  if (fathom::test::kThreadSanitizer || fathom::test::kAddressSanitizer) {               \
    GTEST_SKIP() << "a sanitizer's own memory is beyond the limits that this test sets"; \
  }

}  // namespace fathom::test
