// SPDX-License-Identifier: Apache-2.0
// The launcher: one kernel per table type, found by the type.
#include <cuda_runtime.h>

#include <algorithm>

#include "base/check.hpp"
#include "kernels/common/cuda_check.cuh"
#include "kernels/common/cxx20.cuh"
#include "kernels/embed/embed.hpp"
#include "kernels/embed/embed_kernel.cuh"

namespace fathom {
namespace {

using EmbedKernel = void (*)(cuda::EmbedParams);

struct Variant {
  DType type;
  EmbedKernel kernel;
};
constexpr Variant kVariants[] = {
    {DType::f32, cuda::embed_kernel<quant::BlockF32>},
    {DType::f16, cuda::embed_kernel<quant::BlockF16>},
    {DType::bf16, cuda::embed_kernel<quant::BlockBF16>},
    {DType::q4_0, cuda::embed_kernel<BlockQ4_0>},
    {DType::q4_1, cuda::embed_kernel<BlockQ4_1>},
    {DType::q5_0, cuda::embed_kernel<BlockQ5_0>},
    {DType::q5_1, cuda::embed_kernel<BlockQ5_1>},
    {DType::q8_0, cuda::embed_kernel<BlockQ8_0>},
    {DType::q2_k, cuda::embed_kernel<BlockQ2_K>},
    {DType::q3_k, cuda::embed_kernel<BlockQ3_K>},
    {DType::q4_k, cuda::embed_kernel<BlockQ4_K>},
    {DType::q5_k, cuda::embed_kernel<BlockQ5_K>},
    {DType::q6_k, cuda::embed_kernel<BlockQ6_K>},
    {DType::iq4_nl, cuda::embed_kernel<BlockIQ4_NL>},
    {DType::iq4_xs, cuda::embed_kernel<BlockIQ4_XS>},
    {DType::mxfp4, cuda::embed_kernel<BlockMXFP4>},
};

EmbedKernel kernel_of(DType type) {
  for (const Variant& variant : kVariants) {
    if (variant.type == type) return variant.kernel;
  }
  FATHOM_CHECK(false, "every table type has an embedding kernel");
  return nullptr;
}

}  // namespace

void embed_cuda(ExecContext& ctx, const EmbedArgs& args) {
  constexpr int kMostBlocks = 65535;  // of a grid's second dimension
  const EmbedArgs::Static& s = args.s;
  const StepState& step = *args.step;
  FATHOM_CHECK(step.n_rows >= 0, "a step has no negative number of rows");
  FATHOM_CHECK(s.d_model % dtype_info(s.table_type).block_elems == 0, "a row holds whole blocks");
  FATHOM_CHECK(reinterpret_cast<uintptr_t>(s.table) % 4 == 0, "the table is not aligned");
  FATHOM_CHECK(s.rope_dim % 2 == 0, "rotary angles come in pairs");
  if (step.n_rows == 0) return;
  const cuda::EmbedParams params = {s.table,    s.vocab_size, s.d_model,  s.inv_freq,
                                    s.rope_dim, s.rope_scale, step.token, step.pos,
                                    args.x,     args.rope,    step.n_rows};
  const unsigned row_blocks =
      static_cast<unsigned>((s.d_model + cuda::kEmbedElems - 1) / cuda::kEmbedElems);
  const unsigned rows = static_cast<unsigned>(std::min<int64_t>(step.n_rows, kMostBlocks));
  cuda::launch(kernel_of(s.table_type), dim3(1 + row_blocks, rows), dim3(cuda::kEmbedThreads), 0,
               ctx.stream.handle, params);
  cuda::check_launch("embed");
}

}  // namespace fathom
