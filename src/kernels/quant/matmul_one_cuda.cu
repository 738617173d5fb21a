// SPDX-License-Identifier: Apache-2.0
// The launches of products of one row: one kernel for all ops but those that read codes.
#include "kernels/quant/matmul_launch_kernel.cuh"
#include "kernels/quant/matmul_one_kernel.cuh"

namespace fathom::cuda {
namespace {

template <class Op, bool kInCodes>
void launch_one(quant::MatmulParams p, const Op& op, void* stream) {
  p.in_codes = kInCodes;
  p.n_teams = quant::kOneStreams / p.n_lanes;
  p.run = 1;
  quant::visit_op(op, [&](const auto& of) {
    using Of = std::decay_t<decltype(of)>;
    if constexpr (quant::HasUnitsDone<Of>) p.scratch_bytes = Of::kScratchBytes;
    if constexpr (quant::TakesBlocks<Of>) p.run = 2;
  });
  const auto kernel = quant::matmul_one_kernel<Op, kInCodes>;
  const int half = half_of_sm(p.norm != nullptr);
  size_t shared =
      use_stages(p, half, [](const auto& params) { return quant::one_shared(params).bytes; });
  if (p.norm) shared = std::max(shared, static_cast<size_t>(half));
  use_shared(kernel, shared);
  const int n_blocks = (quant::one_units(p) / p.run + p.n_teams - 1) / p.n_teams;
  launch(kernel, dim3(static_cast<unsigned>(std::min(n_blocks, n_multiprocessors()))),
         dim3(quant::kActThreads), shared, stream, p, op);
}

}  // namespace

void launch_matmul_one(const quant::MatmulParams& p, const OneRowOp& op, void* stream) {
  launch_one<OneRowOp, false>(p, op, stream);
}

void launch_matmul_one_of_codes(const quant::MatmulParams& p, const AddToResidual& op,
                                void* stream) {
  launch_one<AddToResidual, true>(p, op, stream);
}

}  // namespace fathom::cuda
