// SPDX-License-Identifier: Apache-2.0
// The formula in double: the oracle of every backend.
#include <cmath>

#include "kernels/common/rms_norm_ref.hpp"
#include "kernels/norm_gate_up_act/norm_gate_up_act.hpp"
#include "kernels/quant/linear_ref.hpp"

namespace fathom {

void norm_gate_up_act_ref(ExecContext& ctx, const NormGateUpActArgs& args) {
  const NormGateUpActArgs::Static& s = args.s;
  const int64_t n_rows = args.step->n_rows;
  std::vector<double> normed(n_rows * s.d_model);
  for (int64_t row = 0; row < n_rows; ++row) {
    rms_norm_ref(args.x + row * s.d_model, s.norm, s.d_model, s.rms_eps,
                 normed.data() + row * s.d_model);
  }
  const std::vector<double> gate = quant::linear_ref(ctx.pool, s.gate, normed, n_rows);
  const std::vector<double> up = quant::linear_ref(ctx.pool, s.up, normed, n_rows);
  for (size_t i = 0; i < gate.size(); ++i) {
    const double silu = gate[i] / (1.0 + std::exp(-gate[i]));
    args.h[i] = static_cast<float>(silu * up[i]);
  }
}

}  // namespace fathom
