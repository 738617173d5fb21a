// SPDX-License-Identifier: Apache-2.0
// The formula in double: the oracle of every backend.
#include "kernels/down_proj_residual/down_proj_residual.hpp"
#include "kernels/quant/linear_ref.hpp"

namespace fathom {

void down_proj_residual_ref(ExecContext& ctx, const DownProjResidualArgs& args) {
  const int64_t n_rows = args.step->n_rows;
  const std::vector<double> a(args.a, args.a + n_rows * args.s.w.cols);
  const std::vector<double> y = quant::linear_ref(ctx.pool, args.s.w, a, n_rows, args.s.bias);
  for (size_t i = 0; i < y.size(); ++i) args.x[i] = static_cast<float>(args.x[i] + y[i]);
}

}  // namespace fathom
