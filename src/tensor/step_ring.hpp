// SPDX-License-Identifier: Apache-2.0
// Steps that may be under way at a time on a device with memory of its own: each has a place for
// what the host says to it and for what it answers, so that the host may prepare the next one.
#pragma once

namespace fathom {

inline constexpr int kStepRing = 4;

}  // namespace fathom
