// SPDX-License-Identifier: Apache-2.0
// What becomes of the sums of q, k and v.
#pragma once

#include "kernels/common/kv_store.cuh"
#include "kernels/quant/matmul_kernel.cuh"
#include "tensor/kv_view.hpp"

namespace fathom {

inline constexpr int kMaxHeadDim = 256;

struct FinishHeads {
  static constexpr int kScratchBytes = kMaxHeadDim * 4;
  int head_dim, rope_dim, n_rows;
  bool interleaved;
  float eps;
  const float *bias[3], *norm[3];
  float* raw[3];  // q (the output), k, v: [n_rows, heads * head_dim]
  int dim[3];     // heads * head_dim
  int n_heads[3];
  KvLayerView kv;
  const int32_t *pos, *slot, *page_table;
  int max_pages;
  const float* rope;   // [n_rows, rope_dim]
  unsigned* counters;  // [heads of q, k and v], zero between launches

  __device__ void operator()(int part, int row, int col, const float* sums) const {
    const float x = bias[part] ? sums[0] + __ldg(bias[part] + row) : sums[0];
    raw[part][static_cast<int64_t>(col) * dim[part] + row] = x;
  }

  // The part to which a head of all three belongs, and its head there.
  __device__ int part_of_head(int& head) const {
    int part = 0;
    while (head >= n_heads[part]) head -= n_heads[part++];
    return part;
  }

  __device__ void units_done(int group, int n, std::byte* scratch) const {
    const int per_head = head_dim / quant::kMmaRows;
    __threadfence();
    __syncwarp();
    while (n > 0) {
      const int of_head = min(n, per_head - group % per_head);
      groups_done(group / per_head, of_head, per_head, reinterpret_cast<float*>(scratch));
      group += of_head;
      n -= of_head;
    }
  }

  // n row groups of a head are stored: finishes it after the last of them.
  __device__ void groups_done(int head, int n, int n_all, float* x) const {
    int n_done = 0;
    if (threadIdx.x % 32 == 0) {
      n_done = static_cast<int>(atomicAdd(counters + head, static_cast<unsigned>(n))) + n;
      if (n_done == n_all) counters[head] = 0;
    }
    if (__shfl_sync(0xffffffffu, n_done, 0) != n_all) return;
    __threadfence();
    const int part = part_of_head(head);
    for (int row = 0; row < n_rows; ++row) finish(part, head, row, x);
  }

  // One head of a row, by a warp; x: room for the head.
  __device__ void finish(int part, int head, int row, float* x) const {
    const int lane = threadIdx.x % 32;
    float* of = raw[part] + static_cast<int64_t>(row) * dim[part] + head * head_dim;
    float squares = 0.0f;
    for (int i = lane; i < head_dim; i += 32) {
      x[i] = __ldcg(of + i);  // other blocks wrote it: not from a stale line of this one's L1
      squares = __fmaf_rn(x[i], x[i], squares);
    }
    if (norm[part]) {
      for (int distance = 16; distance > 0; distance /= 2) {
        squares += __shfl_xor_sync(0xffffffffu, squares, distance);
      }
      const float scale = 1.0f / sqrtf(squares / static_cast<float>(head_dim) + eps);
      for (int i = lane; i < head_dim; i += 32) x[i] = x[i] * scale * norm[part][i];
    }
    __syncwarp();
    if (part < 2) rotate(row, x);
    __syncwarp();
    if (part == 0) {
      for (int i = lane; i < head_dim; i += 32) of[i] = x[i];
    } else if (pos[row] >= 0) {
      const int32_t* pages = page_table + static_cast<int64_t>(slot[row]) * max_pages;
      std::byte* tile = (part == 1 ? kv.k : kv.v) + kv.tile_offset(pages, head, pos[row]);
      cuda::warp_store_kv(kv.geometry, x, pos[row] % kKvTileTokens, part == 1, tile);
    }
    __syncwarp();
  }

  __device__ void rotate(int row, float* x) const {
    const float* angles = rope + static_cast<int64_t>(row) * rope_dim;
    const int half = rope_dim / 2;
    for (int i = threadIdx.x % 32; i < half; i += 32) {
      float& a = interleaved ? x[2 * i] : x[i];
      float& b = interleaved ? x[2 * i + 1] : x[i + half];
      const float cosine = angles[2 * i], sine = angles[2 * i + 1];
      const float turned = __fmaf_rn(a, cosine, -__fmul_rn(b, sine));
      b = __fmaf_rn(a, sine, __fmul_rn(b, cosine));
      a = turned;
    }
  }
};

// For one row of the step, heads without a norm and a cache without scales: a unit of the product
// is the two row groups whose values turn together, so that nothing is left to do after it.
// Positions, slots and pages are read before the dependency wait too, through the L1: no kernel
// writes them.
struct FinishPairs {
  FinishHeads heads;

  struct Early {
    float bias, cosine, sine;
    std::byte* tile;  // of the cache, or null: nowhere
  };
  __device__ Early read(int part, int row, int) const {
    const int dim = row % heads.head_dim, half = heads.head_dim / 2, pair = dim % half;
    Early e{heads.bias[part] ? __ldg(heads.bias[part] + row) : 0.0f, 1.0f, 0.0f, nullptr};
    if (part < 2) {
      const float2 angle = __ldcg(reinterpret_cast<const float2*>(heads.rope) + pair);
      e.cosine = angle.x;
      e.sine = angle.y;
    }
    const int pos = heads.pos[0];
    if (part == 0 || pos < 0) return e;
    const KvGeometry& geometry = heads.kv.geometry;
    const unsigned page = static_cast<unsigned>(pos) / static_cast<unsigned>(geometry.page_tokens);
    const unsigned token = static_cast<unsigned>(pos) - page * geometry.page_tokens;
    const int32_t* pages = heads.page_table + int64_t{heads.slot[0]} * heads.max_pages;
    e.tile = (part == 1 ? heads.kv.k : heads.kv.v) + pages[page] * geometry.page_bytes() +
             row / heads.head_dim * geometry.head_bytes() +
             token / kKvTileTokens * geometry.tile_bytes();
    return e;
  }
  // REQUIRES: a whole warp, lanes l and l + 16 with the values of a pair.
  __device__ void write(int part, int row, int, const Early& e, const float* sums,
                        bool stores) const {
    const float x = heads.bias[part] ? sums[0] + e.bias : sums[0];
    const float other = __shfl_xor_sync(0xffffffffu, x, quant::kMmaRows);
    const bool second = threadIdx.x % 32 >= quant::kMmaRows;
    // As FinishHeads::rotate has it.
    const float turned = second ? __fmaf_rn(other, e.sine, __fmul_rn(x, e.cosine))
                                : __fmaf_rn(x, e.cosine, -__fmul_rn(other, e.sine));
    const float value = part < 2 ? turned : x;
    if (!stores) return;
    if (part == 0) {
      heads.raw[0][row] = value;
    } else if (e.tile) {
      const int dim = row % heads.head_dim, token = heads.pos[0] % kKvTileTokens;
      const int at = part == 1 ? dim * kKvTileTokens + token : token * heads.head_dim + dim;
      cuda::store_kv_value(heads.kv.geometry.format, value, at, e.tile);
    }
  }
};

}  // namespace fathom
