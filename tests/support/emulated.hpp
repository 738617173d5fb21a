// SPDX-License-Identifier: Apache-2.0
// Tests of kernels run on a GPU, or on the host in tests/emulator, which has a header of this name:
// slower by a factor of many thousands. There a test takes fewer and smaller cases.
#pragma once

namespace fathom::test {

inline constexpr bool kIsEmulated = false;

}  // namespace fathom::test
