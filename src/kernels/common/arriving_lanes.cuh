// SPDX-License-Identifier: Apache-2.0
// How many lanes of a warp say that it has left a stage of a ring, or a sum, to others: one, since
// its other lanes have met it before. compute-sanitizer credits an arrival to its own thread and no
// other, so that a test which it watches sets this to all (tests/support/cuda_fixture.hpp).
#pragma once

namespace fathom::cuda {

inline int arriving_lanes = 1;

}  // namespace fathom::cuda
