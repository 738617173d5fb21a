// SPDX-License-Identifier: Apache-2.0
// What becomes of the sums of q, k and v. As parts of a product they are k, v and q, in this order:
// units that a block takes second are then of q, which is done with soonest.
#pragma once

#include "kernels/common/kv_store.cuh"
#include "kernels/quant/matmul_kernel.cuh"
#include "tensor/kv_view.hpp"

namespace fathom {

inline constexpr int kMaxHeadDim = 256;

enum FinishPart { kFinishKey, kFinishValue, kFinishQuery };

struct FinishHeads {
  static constexpr int kScratchBytes = kMaxHeadDim * 4;
  int head_dim, rope_dim, n_rows;
  bool interleaved;
  float eps;
  const float *bias[3], *norm[3];  // by FinishPart, as all of three
  float* raw[3];                   // of q the output: [n_rows, heads * head_dim]
  int dim[3];                      // heads * head_dim
  int n_heads[3];
  KvLayerView kv;
  const int32_t *pos, *slot, *page_table;
  int max_pages;
  const float* rope;   // [n_rows, rope_dim]
  unsigned* counters;  // of heads or of parts of them; zero between launches

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
    if (part != kFinishValue) rotate(row, x);
    __syncwarp();
    if (part == kFinishQuery) {
      for (int i = lane; i < head_dim; i += 32) of[i] = x[i];
    } else if (pos[row] >= 0) {
      const int32_t* pages = page_table + static_cast<int64_t>(slot[row]) * max_pages;
      const bool is_key = part == kFinishKey;
      std::byte* tile = (is_key ? kv.k : kv.v) + kv.tile_offset(pages, head, pos[row]);
      cuda::warp_store_kv(kv.geometry, x, pos[row] % kKvTileTokens, is_key, tile);
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

// For one row of the step and heads without a norm: a unit of the product is the two row groups
// whose values turn together, so that nothing is left to do after it.
// Positions, slots and pages are read before the dependency wait too, through the L1: no kernel
// writes them.
// Where the cache has scales, units whose values share one leave them in `raw`, and the last of
// them to come stores all of these.
struct FinishPairs {
  FinishHeads heads;

  struct Early {
    float bias, cosine, sine;
    std::byte* tile;  // of the cache, or null: nowhere
  };
  __device__ Early read(int part, int row, int) const {
    const int dim = row % heads.head_dim, half = heads.head_dim / 2, pair = dim % half;
    Early e{heads.bias[part] ? __ldg(heads.bias[part] + row) : 0.0f, 1.0f, 0.0f, nullptr};
    if (part != kFinishValue) {
      const float2 angle = __ldcg(reinterpret_cast<const float2*>(heads.rope) + pair);
      e.cosine = angle.x;
      e.sine = angle.y;
    }
    const int pos = heads.pos[0];
    if (part == kFinishQuery || pos < 0) return e;
    const KvGeometry& geometry = heads.kv.geometry;
    const unsigned page = static_cast<unsigned>(pos) / static_cast<unsigned>(geometry.page_tokens);
    const unsigned token = static_cast<unsigned>(pos) - page * geometry.page_tokens;
    const int32_t* pages = heads.page_table + int64_t{heads.slot[0]} * heads.max_pages;
    e.tile = (part == kFinishKey ? heads.kv.k : heads.kv.v) + pages[page] * geometry.page_bytes() +
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
    const float value = part != kFinishValue ? turned : x;
    if (part == kFinishQuery) {
      if (stores) heads.raw[part][row] = value;
    } else if (e.tile) {  // alike in all lanes
      const KvFormat format = heads.kv.geometry.format;
      if (kv_has_scales(format)) {
        store_scaled(part, row, value, e.tile);
      } else if (stores) {
        cuda::store_kv_value(format, value, place(part, row % heads.head_dim), e.tile);
      }
    }
  }

 private:
  static constexpr int kMostUnits = kMaxHeadDim / 32;  // of a head
  __device__ int token() const { return heads.pos[0] % kKvTileTokens; }
  __device__ int place(int part, int dim) const {  // in a tile
    return part == kFinishKey ? dim * kKvTileTokens + token() : token() * heads.head_dim + dim;
  }
  // REQUIRES: every lane stores.
  __device__ void store_scaled(int part, int row, float value, std::byte* tile) const {
    // Units of 32 dims that share scales, and which of the part's sets of them this is.
    const bool is_q8_0 = heads.kv.geometry.format == KvFormat::q8_0;
    const int n_units = is_q8_0 ? 2 : heads.head_dim / 32;
    const int head = row / heads.head_dim, first_dim = row % (heads.head_dim / 2) / 16 * 16;
    const int sets = heads.head_dim / 32 / n_units;
    const int set = (part * heads.n_heads[kFinishKey] + head) * sets + first_dim / 16 / n_units;
    float* raw = heads.raw[part];
    __stcg(raw + row, value);
    __threadfence();
    __syncwarp();
    int n_done = 0;
    if (threadIdx.x % 32 == 0) {
      n_done = static_cast<int>(atomicAdd(heads.counters + set, 1u)) + 1;
      if (n_done == n_units) heads.counters[set] = 0;
    }
    if (__shfl_sync(0xffffffffu, n_done, 0) != n_units) return;
    __threadfence();
    if (is_q8_0) {
      store_q8_0(part, row, value, __ldcg(raw + (row ^ 16)), tile);
    } else {
      store_e4m3(part, head, n_units, tile);
    }
  }
  // Lanes 0 to 15 have the one block of 32 dims, two each, the others the other.
  __device__ void store_q8_0(int part, int row, float value, float other, std::byte* tile) const {
    uint32_t largest = max(cuda::kv_magnitude(value), cuda::kv_magnitude(other));
    for (int distance = 8; distance > 0; distance /= 2)
      largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    const cuda::KvBlockQ8 block(largest);
    const int dim = row % heads.head_dim;
    tile[place(part, dim)] = block.code(value);
    tile[place(part, dim ^ 16)] = block.code(other);
    if (threadIdx.x % quant::kMmaRows == 0) block.store_scale(heads.head_dim, dim, token(), tile);
  }
  __device__ void store_e4m3(int part, int head, int n_units, std::byte* tile) const {
    const float* raw = heads.raw[part] + head * heads.head_dim;
    float x[kMostUnits];
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kMostUnits; ++i) {
      x[i] = i < n_units ? __ldcg(raw + i * 32 + threadIdx.x % 32) : 0.0f;
      largest = max(largest, cuda::kv_magnitude(x[i]));
    }
    const float scale = e4m3_scale(__uint_as_float(__reduce_max_sync(0xffffffffu, largest)));
#pragma unroll
    for (int i = 0; i < kMostUnits; ++i) {
      const int dim = i * 32 + static_cast<int>(threadIdx.x % 32);
      if (i < n_units) tile[place(part, dim)] = static_cast<std::byte>(e4m3_code(x[i], scale));
    }
    if (threadIdx.x % 32 == 0)
      reinterpret_cast<float*>(tile + heads.head_dim * kKvTileTokens)[token()] = scale;
  }
};

}  // namespace fathom
