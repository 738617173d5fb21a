// SPDX-License-Identifier: Apache-2.0
// The launcher: one launch, a block of threads per run of tokens of a head of K or V.
#include <cuda_runtime.h>

#include <algorithm>

#include "base/check.hpp"
#include "kernels/common/cuda_check.cuh"
#include "kernels/common/cxx20.cuh"
#include "kernels/kv_fill/kv_fill.hpp"
#include "kernels/kv_fill/kv_fill_kernel.cuh"

namespace fathom {

void kv_fill_cuda(ExecContext& ctx, const KvFillArgs& args) {
  const KvGeometry& geometry = args.s.kv.geometry;
  FATHOM_CHECK(args.begin >= 1, "kv_fill needs cached tokens to take the spread from");
  FATHOM_CHECK(geometry.head_dim > 0 && geometry.head_dim <= cuda::kKvFillMaxHeadDim,
               "head_dim above 512");
  FATHOM_CHECK(geometry.format != KvFormat::q8_0 || geometry.head_dim % 32 == 0,
               "a q8_0 cache has whole blocks of 32");
  FATHOM_CHECK(geometry.page_tokens % kKvTileTokens == 0, "a page has whole tiles");
  if (args.begin >= args.end) return;
  const cuda::KvFillParams params = {
      args.s.kv, args.pages,  args.begin, args.end, std::min(args.begin, kKvFillSource),
      args.seed, args.s.layer};
  const int64_t aligned = args.begin / kKvTileTokens * kKvTileTokens;
  const int64_t n_runs = (args.end - aligned + cuda::kKvFillRunTokens - 1) / cuda::kKvFillRunTokens;
  const size_t shared_bytes =
      static_cast<size_t>(geometry.head_dim) * 2 * sizeof(double) +
      static_cast<size_t>(geometry.head_dim + 1) * kKvTileTokens * sizeof(float);
  const dim3 grid(static_cast<unsigned>(n_runs), static_cast<unsigned>(geometry.n_kv_heads), 2);
  cuda::launch(cuda::kv_fill_kernel, grid, dim3(cuda::kKvFillThreads), shared_bytes,
               ctx.stream.handle, params);
  cuda::check_launch("kv_fill");
}

}  // namespace fathom
