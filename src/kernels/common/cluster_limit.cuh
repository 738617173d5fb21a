// SPDX-License-Identifier: Apache-2.0
// How many blocks a cluster has at most. compute-sanitizer's synccheck (2025.3.1) has no room for
// the barriers in shared memory of more than 8 blocks of a cluster, as many as every device with
// clusters takes: it ends in an illegal access of its own, so that a test which it watches sets
// this to 8 (tests/support/cuda_fixture.hpp). Attention's bits are then others where several
// clusters share a head: the tokens of 8 blocks are no node of its tree.
#pragma once

namespace fathom::cuda {

inline int most_cluster_blocks = 16;

}  // namespace fathom::cuda
