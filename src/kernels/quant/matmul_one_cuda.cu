// SPDX-License-Identifier: Apache-2.0
// The launches of products of one row: one kernel for all ops.
#include "kernels/quant/matmul_launch_kernel.cuh"
#include "kernels/quant/matmul_one_kernel.cuh"

namespace fathom::cuda {

void launch_matmul_one(quant::MatmulParams p, const OneRowOp& op, void* stream) {
  p.n_teams = quant::kOneSets;
  p.run = 1;
  quant::visit_op(op, [&](const auto& of) {
    using Of = std::decay_t<decltype(of)>;
    if constexpr (quant::HasUnitsDone<Of>) p.scratch_bytes = Of::kScratchBytes;
    if constexpr (quant::TakesBlocks<Of>) p.run = 2;
  });
  const auto kernel = quant::matmul_one_kernel<OneRowOp>;
  // Products of the normed residual stream stand beside those into it, and out's, whose blocks are
  // to be alone on an SM, beside attention.
  constexpr int kNormed = 455, kMoreThanHalf = 497;
  const int share = p.norm       ? share_of_sm(kNormed, false)
                    : p.in_codes ? share_of_sm(kNormed, true)
                                 : share_of_sm(kMoreThanHalf, false);
  size_t shared =
      use_stages(p, share, [](const auto& params) { return quant::one_shared(params).bytes; });
  if (!p.norm) shared = std::max(shared, static_cast<size_t>(share));
  use_shared(kernel, shared);
  const int n_blocks = quant::one_items(p).n_all / p.run;
  launch(kernel, dim3(static_cast<unsigned>(std::min(n_blocks, n_multiprocessors()))),
         dim3(quant::kOneThreads), shared, stream, p, quant::one_shared(p), op);
}

}  // namespace fathom::cuda
