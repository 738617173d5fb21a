// SPDX-License-Identifier: Apache-2.0
// The emulator has no warpgroup tensor cores: products of many rows take the path of other GPUs.
#pragma once

#include <cstdint>

#include "kernels/common/cuda_check.cuh"
#include "kernels/quant/matmul_kernel.cuh"

namespace fathom::quant {

struct NoPrefillActs {
  int64_t bytes = 0;
};
inline NoPrefillActs prefill_acts(const MatmulParams&, int64_t) { return {}; }

}  // namespace fathom::quant

namespace fathom::cuda {

inline constexpr int kPrefillRows = 33;
inline bool takes_prefill(const quant::MatmulParams&) { return false; }
template <class Op>
void launch_prefill(const quant::MatmulParams&, const Op&, void*) {}

}  // namespace fathom::cuda
