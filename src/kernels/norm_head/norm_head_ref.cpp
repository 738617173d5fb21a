// SPDX-License-Identifier: Apache-2.0
// The formula in double: the oracle of every backend.
#include "kernels/common/rms_norm_ref.hpp"
#include "kernels/norm_head/norm_head.hpp"
#include "kernels/quant/linear_ref.hpp"

namespace fathom {

void norm_head_ref(ExecContext& ctx, const NormHeadArgs& args) {
  const NormHeadArgs::Static& s = args.s;
  const int64_t n_out = args.step->n_out;
  if (n_out == 0) return;
  FATHOM_CHECK(n_out <= s.max_out, "more rows want logits than the plan allows");
  std::vector<double> normed(n_out * s.d_model);
  for (int64_t i = 0; i < n_out; ++i) {
    rms_norm_ref(args.x + args.step->out_row[i] * s.d_model, s.norm, s.d_model, s.rms_eps,
                 normed.data() + i * s.d_model);
  }
  const std::vector<double> logits = quant::linear_ref(ctx.pool, s.head, normed, n_out);
  for (size_t i = 0; i < logits.size(); ++i) args.logits[i] = static_cast<float>(logits[i]);
}

}  // namespace fathom
