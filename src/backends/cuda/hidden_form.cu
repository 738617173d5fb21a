// SPDX-License-Identifier: Apache-2.0
// When codes can stand in place of h: types, lengths and the geometry of both products decide.
#include "backends/cuda/hidden_form.hpp"

#include "kernels/quant/matmul_launch_kernel.cuh"

namespace fathom::cuda {

HiddenForm hidden_form(const NormGateUpActArgs::Static& front,
                       const DownProjResidualArgs::Static& down) {
  const auto gate_up = matmul_params({&front.gate, &front.up}, 2, 1, nullptr, front.norm, 0.0f);
  const auto product = matmul_params({&down.w}, 1, 1, nullptr, nullptr, 0.0f);
  const bool is_codes = product.any_codes && !product.any_f16 && !product.any_bf16;
  const bool fits = quant::act_layout(product, 1).bytes <= front.d_ff * int64_t{sizeof(float)};
  return is_codes && fits && front.d_ff % quant::kMmaTileCols == 0 &&
                 matmul_columns(gate_up) == 1 && matmul_columns(product) == 1
             ? HiddenForm::backend
             : HiddenForm::floats;
}

}  // namespace fathom::cuda
