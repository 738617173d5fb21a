// SPDX-License-Identifier: Apache-2.0
// In place of the header of this name in tests/support: here tests are emulated.
#pragma once

namespace fathom::test {

inline constexpr bool kIsEmulated = true;

}  // namespace fathom::test
