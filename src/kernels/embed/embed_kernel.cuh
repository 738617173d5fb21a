// SPDX-License-Identifier: Apache-2.0
// Block (0, row) computes the rotary angles of a row, blocks (1.., row) its embedding, one value a
// thread and pass; with more rows than a grid has, those gridDim.y further on too. Products and
// sums are rounded one by one, so that x has the bits of the reference; the angle is a double as
// there, and cos and sin are CUDA's (within 2 ulp of double).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/common/arch.cuh"
#include "kernels/common/cxx20.cuh"
#include "kernels/quant/dequant_kernel.cuh"

namespace fathom::cuda {

inline constexpr int kEmbedThreads = 256;
inline constexpr int kEmbedElems = 4 * kEmbedThreads;  // of a row, per block

struct EmbedParams {
  const std::byte* table;  // [vocab_size, d_model] in file layout
  int64_t vocab_size, d_model;
  const double* inv_freq;  // [rope_dim/2]
  int rope_dim;
  float rope_scale;
  const int32_t* token;  // [n_rows]
  const int32_t* pos;    // [n_rows]
  float* x;              // [n_rows, d_model]
  float* rope;           // [n_rows, rope_dim]
  int64_t n_rows;
};

template <class Block>
__device__ __forceinline__ float embed_value(const Block* blocks, int64_t index) {
  constexpr int kElems = quant::kBlockElems<Block>;
  if constexpr (kElems == 1) {
    return quant::float_value(blocks[index]);
  } else {
    const quant::QuantValue v =
        quant::quant_value(blocks[index / kElems], static_cast<int>(index % kElems));
    return __fadd_rn(__fmul_rn(v.scale, v.code), v.add);
  }
}

__device__ __forceinline__ void embed_angles(const EmbedParams& p, int64_t row) {
  float* out = p.rope + row * p.rope_dim;
  const double pos = p.pos[row];
  for (int i = static_cast<int>(threadIdx.x); i < p.rope_dim / 2; i += kEmbedThreads) {
    double sine, cosine;
    sincos(__dmul_rn(pos, p.inv_freq[i]), &sine, &cosine);
    out[2 * i] = static_cast<float>(__dmul_rn(cosine, p.rope_scale));
    out[2 * i + 1] = static_cast<float>(__dmul_rn(sine, p.rope_scale));
  }
}

// A token outside the table has no row to read: its embedding is NaN, so that it shows.
template <class Block>
__device__ __forceinline__ void embed_row(const EmbedParams& p, int64_t row) {
  const int64_t token = p.token[row];
  const bool known = token >= 0 && token < p.vocab_size;
  const Block* blocks = reinterpret_cast<const Block*>(p.table) +
                        (known ? token : 0) * (p.d_model / quant::kBlockElems<Block>);
  const int64_t begin = int64_t{blockIdx.x - 1} * kEmbedElems;
#pragma unroll
  for (int pass = 0; pass < kEmbedElems / kEmbedThreads; ++pass) {
    const int64_t i = begin + pass * kEmbedThreads + threadIdx.x;
    if (i >= p.d_model) return;
    p.x[row * p.d_model + i] = known ? embed_value(blocks, i) : __int_as_float(0x7fffffff);
  }
}

template <class Block>
__global__ void __launch_bounds__(kEmbedThreads) embed_kernel(EmbedParams p) {
  pdl_wait();
  for (int64_t row = blockIdx.y; row < p.n_rows; row += gridDim.y) {
    if (blockIdx.x == 0) {
      embed_angles(p, row);
    } else {
      embed_row<Block>(p, row);
    }
  }
}

}  // namespace fathom::cuda
