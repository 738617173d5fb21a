// SPDX-License-Identifier: Apache-2.0
// What becomes of a product's sums: one of several ways, told at run time. So the products of a
// step are one kernel, and each finds the instructions of the one before in the caches. A kernel an
// op cost 4 to 6 us of every product of one row (docs/kernels/2026-11-30-cuda-products.md).
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/quant/add_to_residual_kernel.cuh"
#include "kernels/quant/finish_heads_kernel.cuh"
#include "kernels/quant/silu_times_kernel.cuh"
#include "kernels/quant/store_logits_kernel.cuh"

namespace fathom::cuda {

template <class... Ops>
class OneOfOps {
 public:
  template <class Op>
  requires(std::is_same_v<Op, Ops> || ...) OneOfOps(const Op& op) {
    static_assert(std::is_trivially_copyable_v<Op>);
    std::memcpy(bytes_, &op, sizeof op);
    bool found = false;
    ((found = found || std::is_same_v<Op, Ops>, index_ += found ? 0 : 1), ...);
  }

  template <class Function>
  __host__ __device__ __forceinline__ void visit(const Function& function) const {
    int at = 0;
    ((at++ == index_ ? function(*reinterpret_cast<const Ops*>(bytes_)) : void()), ...);
  }

 private:
  int index_ = 0;
  alignas(Ops...) std::byte bytes_[std::max({sizeof(Ops)...})];
};

// Of one row of the step, and of up to 32.
using OneRowOp =
    OneOfOps<FinishHeads, FinishPairs, SiluTimes, SiluTimesCodes, AddToResidual, StoreLogits>;
using FewRowsOp = OneOfOps<FinishHeads, SiluTimes, AddToResidual, StoreLogits>;

}  // namespace fathom::cuda
