// SPDX-License-Identifier: Apache-2.0
// A leaf of the reduction tree, 32 tokens, by one warp for 8 queries: scores S = q K^T, weights,
// outputs O = P V, by mma.m16n8k16. Queries or weights are its rows, as sums of halves: rows 0-7
// are the first pieces of the 8, rows 8-15 the second (of bf16 another MMA with the third), so that
// products with K and V as stored are as good as in f32. Scores come out where weights go in: no
// exchange between lanes but for the maximum and the sum of a row.
// Codes are exact in f16; their scales multiply sums (K) and weights (V): of q8_0 for each block of
// 32 dims, of fp8_e4m3 for all.
#pragma once

#include "kernels/attn/attn_feed_kernel.cuh"
#include "kernels/attn/attn_state_kernel.cuh"

namespace fathom::cuda {

template <class L>
class AttnLeaf {
 public:
  using State = AttnState<L::kChunks>;
  __device__ explicit AttnLeaf(const AttnThread<L>& at) : at_(at) {}

  // The row's query is on its way; last_token: that it sees. Rows outside see none.
  __device__ void fetch_query(const float* q, bool inside, int last_token) {
    last_token_ = inside ? last_token : -1;
#pragma unroll
    for (int c = 0; c < L::kChunks; ++c) {
      fetched_[c] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (inside) fetched_[c] = *reinterpret_cast<const float4*>(q + c * 16 + at_.quad * 4);
    }
  }
  // REQUIRES: all lanes call it; if the query is shared, all threads, after the last use of the one
  // before.
  __device__ void make_query() {
    float4(&x)[L::kChunks] = fetched_;
    uint32_t largest = 0;
#pragma unroll
    for (int c = 0; c < L::kChunks; ++c) {
      scale(x[c], at_.params.scale_log2);
      largest = max(max(max(largest, magnitude(x[c].x)), magnitude(x[c].y)),
                    max(magnitude(x[c].z), magnitude(x[c].w)));
    }
    unscale_ = 1.0f;
    if constexpr (!L::kF32 && !L::kBf16) {  // the largest to 2^14: all of f16's range for the rest
      largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      const int exponent = min(max(14 - (static_cast<int>(largest >> 23) - 127), -112), 112);
#pragma unroll
      for (int c = 0; c < L::kChunks; ++c) scale(x[c], __int_as_float((127 + exponent) << 23));
      unscale_ = __int_as_float((127 - exponent) << 23);
    }
#pragma unroll
    for (int c = 0; c < L::kChunks; ++c) {
      if constexpr (L::kF32) {
        query_[c][0][0] = __float_as_uint(x[c].x);
        query_[c][1][0] = __float_as_uint(x[c].y);
        query_[c][2][0] = __float_as_uint(x[c].z);
        query_[c][3][0] = __float_as_uint(x[c].w);
      } else {
        if constexpr (L::kSharedQuery) {  // a warp's share of the block's
          // Opaque: else the warp's number becomes an index, and arrays with one lie in memory.
          if (opaque(c / kChunksOfWarp) != static_cast<int>(at_.warp)) continue;
        }
        uint32_t pieces[2][L::kPieces];
        attn_split<L::kBf16>(x[c].x, x[c].y, pieces[0]);
        attn_split<L::kBf16>(x[c].z, x[c].w, pieces[1]);
        if constexpr (L::kSharedQuery) {
          shared_query(c) = uint4{pieces[0][0], pieces[0][1], pieces[1][0], pieces[1][1]};
        } else {
#pragma unroll
          for (int i = 0; i < 2 * L::kPieces; ++i)
            query_[c][i / L::kPieces][i % L::kPieces] = pieces[i / L::kPieces][i % L::kPieces];
        }
      }
    }
    if constexpr (L::kSharedQuery) __syncthreads();
  }

  // K and V by their places in shared memory.
  // s becomes the scores (times log2 e) of the row and the lane's four tokens of each tile.
  __device__ void scores(unsigned keys, int first_token) {
#pragma unroll
    for (int tile = 0; tile < L::kLeafTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s_[tile][i] = 0.0f;
    }
    if constexpr (L::kF32) {
      scores_f32(keys);
    } else if constexpr (L::kE4m3) {
      scores_e4m3(keys);
    } else if constexpr (L::kCodes) {
      scores_codes(keys);
    } else {
      scores_halves(keys);
    }
#pragma unroll
    for (int tile = 0; tile < L::kLeafTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool sees = first_token + tile * kKvTileTokens + token(i) <= last_token_;
        s_[tile][i] = sees ? __fmul_rn(s_[tile][i], unscale_) : -INFINITY;
      }
    }
  }

  // Scores become weights.
  __device__ void soften(State& leaf) {
    float largest = s_[0][0];
    each_score([&](float s) { largest = fmaxf(largest, s); });
    largest = fminf(attn_row_max(largest), 1 << 28);
    leaf.max = largest == -INFINITY ? kAttnEmpty : __float2int_ru(largest);
    const float shift = largest == -INFINITY ? 0.0f : __int2float_rn(leaf.max);
    leaf.sum = 0.0f;
    each_score([&](float& s) {
      s = attn_exp2(__fsub_rn(s, shift));
      // Weights of f16 go up to 2^15, for the lesser pieces' sake; output and sum alike.
      if constexpr (!L::kF32 && !L::kBf16) s = __fmul_rn(s, 32768.0f);
      leaf.sum = __fadd_rn(leaf.sum, s);
    });
    leaf.sum = attn_row_sum(leaf.sum);
  }

  // To the state of a run comes that of the leaf, whose maximum and sum are there.
  __device__ void add_outputs(unsigned values, int first_token, State& leaf, State& run) {
    if constexpr (L::kCodes && !L::kE4m3) {
      add_outputs_codes(values, first_token, leaf, run);
    } else {
      outputs(values, first_token, leaf);
      run.fold(leaf);
    }
  }

  // A row's outputs of a chunk, to where its 16 dims begin. Of codes, the even dims of the chunk
  // are one MMA's columns and the odd ones another's; else its first 8 and its last 8.
  __device__ static int dim(int quad, int component) {
    if (L::kCodes) return quad * 4 + component % 2 * 2 + component / 2;
    return component / 2 * 8 + quad * 2 + component % 2;
  }
  __device__ static void store(float* to, int quad, const float4& x) {
    if constexpr (L::kCodes) {
      *reinterpret_cast<float4*>(to + quad * 4) = make_float4(x.x, x.z, x.y, x.w);
    } else {
      *reinterpret_cast<float2*>(to + quad * 2) = make_float2(x.x, x.y);
      *reinterpret_cast<float2*>(to + 8 + quad * 2) = make_float2(x.z, x.w);
    }
  }

 private:
  __device__ void outputs(unsigned values, int first_token, State& leaf) {
    if constexpr (L::kF32) {
      outputs_f32(values, leaf);
    } else {
      float o[2 * L::kChunks][4];
#pragma unroll
      for (int i = 0; i < 2 * L::kChunks; ++i) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
      float unscale = 1.0f;
      if constexpr (L::kE4m3) {
        unscale = outputs_e4m3(values, first_token, o);
      } else {
        outputs_halves(values, o);
      }
#pragma unroll
      for (int c = 0; c < L::kChunks; ++c) {
        leaf.out[c].x = sum_of_pieces(o[2 * c][0], o[2 * c][2], unscale);
        leaf.out[c].y = sum_of_pieces(o[2 * c][1], o[2 * c][3], unscale);
        leaf.out[c].z = sum_of_pieces(o[2 * c + 1][0], o[2 * c + 1][2], unscale);
        leaf.out[c].w = sum_of_pieces(o[2 * c + 1][1], o[2 * c + 1][3], unscale);
      }
    }
  }

  __device__ static void scale(float4& x, float by) {
    x = make_float4(__fmul_rn(x.x, by), __fmul_rn(x.y, by), __fmul_rn(x.z, by), __fmul_rn(x.w, by));
  }
  __device__ static uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }
  __device__ static float sum_of_pieces(float first, float second, float unscale) {
    const float sum = __fadd_rn(first, second);
    return L::kCodes ? __fmul_rn(sum, unscale) : sum;
  }
  template <class Visit>
  __device__ void each_score(const Visit& visit) {
#pragma unroll
    for (int tile = 0; tile < L::kLeafTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) visit(s_[tile][i]);
    }
  }

  // Score i of a tile is that of column i / 2 of its MMA's two; these are, of codes, the even and
  // the odd tokens, else the first 8 and the last 8.
  __device__ int token(int i) const {
    const int quad = static_cast<int>(at_.quad);
    return L::kCodes ? quad * 4 + i % 2 * 2 + i / 2 : i / 2 * 8 + quad * 2 + i % 2;
  }
  // Dims 4 quad .. 4 quad + 3 of a chunk are the lane's of the row's query: columns 2 quad,
  // 2 quad + 1, 2 quad + 8, 2 quad + 9 of the MMA, and rows of K accordingly.
  __device__ static unsigned key_dim(unsigned matrix_row, unsigned half) {
    return matrix_row / 2 * 4 + matrix_row % 2 + half * 2;
  }
  // The pieces of values at columns 2 quad.. of the first and of the second 8 columns, as A.
  template <int kPieces>
  __device__ static void multiply(float (&c)[4], const uint32_t (&low)[kPieces],
                                  const uint32_t (&high)[kPieces], uint32_t b0, uint32_t b1) {
    const uint32_t a[4] = {low[0], low[1], high[0], high[1]};
    attn_mma<L::kBf16>(c, a, b0, b1);
    if constexpr (kPieces == 3) {
      const uint32_t last[4] = {0, low[2], 0, high[2]};
      attn_mma<L::kBf16>(c, last, b0, b1);
    }
  }

  __device__ void scores_halves(unsigned keys) {
    float c[L::kLeafTiles][2][4] = {};
    const unsigned dim = key_dim(at_.lane % 8, at_.lane / 8 % 2);
    const unsigned row = at_.address + keys + AttnSwizzle<L>::key(dim * 2 + at_.lane / 16) * 16;
#pragma unroll
    for (int k = 0; k < L::kChunks; ++k) {
#pragma unroll
      for (int tile = 0; tile < L::kLeafTiles; ++tile) {
        uint32_t b[4];
        attn_load_matrices(b, row + tile * L::kTileBytes + k * 512);
        multiply(c[tile][0], query_[k][0], query_[k][1], b[0], b[1]);
        multiply(c[tile][1], query_[k][0], query_[k][1], b[2], b[3]);
      }
    }
#pragma unroll
    for (int tile = 0; tile < L::kLeafTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        s_[tile][i] = __fadd_rn(c[tile][i / 2][i % 2], c[tile][i / 2][i % 2 + 2]);
    }
  }

  // A turn for each tile: less code, which comes faster than it is carried out.
  __device__ void scores_codes(unsigned keys) {
    const unsigned dim = at_.lane / 16 * 16 + key_dim(at_.lane % 8, at_.lane / 8 % 2);
    const unsigned row = AttnSwizzle<L>::key(dim) * 16;
#pragma unroll 1
    for (int i = 0; i < L::kLeafTiles; ++i, keys += L::kTileBytes) {
      float s[4] = {};
#pragma unroll
      for (int block = 0; block < L::kDims / 32; ++block) {
        uint32_t codes[4];
        attn_load_matrices(codes, at_.address + keys + row + block * 512);
        float scales[4];
        load_scales(keys, block, scales);
        uint32_t query[2][2][L::kPieces];
#pragma unroll
        for (int half = 0; half < 2; ++half) load_query(block * 2 + half, query[half]);
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          float c[4] = {};
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            multiply(c, query[half][0], query[half][1], attn_codes(codes[half * 2] >> 8 * odd),
                     attn_codes(codes[half * 2 + 1] >> 8 * odd));
          }
#pragma unroll
          for (int column = 0; column < 2; ++column) {
            s[odd * 2 + column] = __fmaf_rn(__fadd_rn(c[column], c[column + 2]),
                                            scales[column * 2 + odd], s[odd * 2 + column]);
          }
        }
      }
      turn(s);
    }
  }
  // The scores of the first tile are taken away, those of another one come behind the last.
  __device__ void turn(const float (&next)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int tile = 0; tile + 1 < L::kLeafTiles; ++tile) s_[tile][i] = s_[tile + 1][i];
      s_[L::kLeafTiles - 1][i] = next[i];
    }
  }
  // Of tokens 4 quad .. 4 quad + 3 of a tile.
  __device__ void load_scales(unsigned tile, int block, float (&scales)[4]) const {
    if constexpr (L::kE4m3) {
      const float4 x =
          *reinterpret_cast<const float4*>(at_.shared + tile + L::kScaleOffset + at_.quad * 16);
      scales[0] = x.x;
      scales[1] = x.y;
      scales[2] = x.z;
      scales[3] = x.w;
    } else {
      const uint2 x = *reinterpret_cast<const uint2*>(at_.shared + tile + L::kScaleOffset +
                                                      block * 32 + at_.quad * 8);
      const float2 low = __half22float2(reinterpret_cast<const __half2&>(x.x));
      const float2 high = __half22float2(reinterpret_cast<const __half2&>(x.y));
      scales[0] = low.x;
      scales[1] = low.y;
      scales[2] = high.x;
      scales[3] = high.y;
    }
  }

  // Of 32 dims, or of the last 16: which of two chunks the lane's address is of.
  __device__ unsigned chunk_of_block(int block) const {
    return block * 2 + 1 < L::kChunks ? at_.lane / 16 : 0;
  }

  __device__ void scores_e4m3(unsigned keys) {
    float c[L::kLeafTiles][2][4] = {};  // of even and odd tokens
#pragma unroll
    for (int block = 0; block * 2 < L::kChunks; ++block) {
      const unsigned dim = chunk_of_block(block) * 16 + key_dim(at_.lane % 8, at_.lane / 8 % 2);
      const unsigned row = at_.address + keys + AttnSwizzle<L>::key(dim) * 16 + block * 512;
      uint32_t query[2][2][L::kPieces];
      for (int half = 0; half < 2 && block * 2 + half < L::kChunks; ++half)
        load_query(block * 2 + half, query[half]);
#pragma unroll
      for (int tile = 0; tile < L::kLeafTiles; ++tile) {
        uint32_t codes[4];
        attn_load_matrices(codes, row + tile * L::kTileBytes);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int k = block * 2 + half;
          if (k >= L::kChunks) break;
          uint32_t even[2], odd[2];
          e4m3_to_f16(codes[half * 2], even[0], odd[0]);
          e4m3_to_f16(codes[half * 2 + 1], even[1], odd[1]);
          multiply(c[tile][0], query[half][0], query[half][1], even[0], even[1]);
          multiply(c[tile][1], query[half][0], query[half][1], odd[0], odd[1]);
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < L::kLeafTiles; ++tile) {
      float scales[4];
      load_scales(keys + tile * L::kTileBytes, 0, scales);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float sum = __fadd_rn(c[tile][i / 2][i % 2], c[tile][i / 2][i % 2 + 2]);
        s_[tile][i] = __fmul_rn(sum, scales[i % 2 * 2 + i / 2]);
      }
    }
  }

  // Sums of 16 dims, then their sum: fewer roundings at the size of the score.
  __device__ void scores_f32(unsigned keys) {
    const auto* k = reinterpret_cast<const float*>(at_.shared + keys) + at_.quad * 2;
#pragma unroll 1
    for (int owner = 0; owner < 4; ++owner) {
#pragma unroll
      for (int c = 0; c < L::kChunks; ++c) {
        float sums[L::kLeafTiles][4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float q =
              __uint_as_float(__shfl_sync(0xffffffffu, query_[c][i][0], at_.row * 4 + owner));
          const float* of_dim = k + (c * 16 + owner * 4 + i) * kKvTileTokens;
#pragma unroll
          for (int tile = 0; tile < L::kLeafTiles; ++tile) {
#pragma unroll
            for (int t = 0; t < 4; ++t)
              sums[tile][t] =
                  __fmaf_rn(q, of_dim[tile * L::kTileBytes / 4 + t / 2 * 8 + t % 2], sums[tile][t]);
          }
        }
#pragma unroll
        for (int tile = 0; tile < L::kLeafTiles; ++tile) {
#pragma unroll
          for (int t = 0; t < 4; ++t) s_[tile][t] = __fadd_rn(s_[tile][t], sums[tile][t]);
        }
      }
    }
  }

  __device__ void outputs_halves(unsigned values, float (&o)[2 * L::kChunks][4]) {
#pragma unroll
    for (int tile = 0; tile < L::kLeafTiles; ++tile) {
      uint32_t low[L::kPieces], high[L::kPieces];
      attn_split<L::kBf16>(s_[tile][0], s_[tile][1], low);
      attn_split<L::kBf16>(s_[tile][2], s_[tile][3], high);
#pragma unroll
      for (int c = 0; c < L::kChunks; ++c) {
        uint32_t b[4];
        const unsigned chunk = AttnSwizzle<L>::value(at_.lane % 16, (c * 2) | at_.lane / 16);
        attn_load_matrices(b, at_.address + values + tile * L::kTileBytes + chunk * 16);
        multiply(o[2 * c], low, high, b[0], b[1]);
        multiply(o[2 * c + 1], low, high, b[2], b[3]);
      }
    }
  }

  // Scales of V are taken up by the weights, relative to a power of two above all that the row
  // sees, which keeps their pieces within f16's range. A turn for each 32 dims: less code, which
  // comes faster than it is carried out.
  __device__ void add_outputs_codes(unsigned values, int first_token, const State& leaf,
                                    State& run) {
    const float largest = largest_half_scale(values, first_token);
    const int exponent = max(static_cast<int>(__float_as_uint(largest) >> 23) - 126, -24);
    const float down = __int_as_float((127 - exponent) << 23);
    const float unscale = __int_as_float((127 + exponent) << 23);
    // Moved down exactly: the least become 0 as pieces anyway.
    each_score([&](float& s) { s = __fmul_rn(s, down); });
    const unsigned token = at_.lane % 8 * 2 + at_.lane / 8 % 2;
    const int seen = last_token_ + 1 - first_token - static_cast<int>(at_.quad) * 4;
    const AttnMerge merge(run.max, leaf.max);
    run.max = merge.max;
    run.sum = merge(run.sum, leaf.sum);
#pragma unroll(L::kDims > 128 ? 8 : 1)
    for (int block = 0; block < L::kDims / 32; ++block) {
      float o[4][4] = {};  // even and odd dims of the block's two chunks
      const unsigned chunk16 = AttnSwizzle<L>::value(token, (block * 2) | at_.lane / 16);
#pragma unroll
      for (int tile = 0; tile < L::kLeafTiles; ++tile) {
        const unsigned v = values + tile * L::kTileBytes;
        // The scale of a token that no one may see can be NaN.
        const uint2 halves = load_half_scales(v, block, seen_halves(seen - tile * kKvTileTokens));
        const float2 first = to_floats(halves.x), second = to_floats(halves.y);
        const float(&weights)[4] = s_[tile];
        uint32_t low[L::kPieces], high[L::kPieces];
        attn_split<L::kBf16>(__fmul_rn(weights[0], first.x), __fmul_rn(weights[1], second.x), low);
        attn_split<L::kBf16>(__fmul_rn(weights[2], first.y), __fmul_rn(weights[3], second.y), high);
        uint32_t codes[4];
        attn_load_matrices(codes, at_.address + v + chunk16 * 16);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const int chunk = n / 2, odd = n % 2;
          multiply(o[n], low, high, attn_codes(codes[chunk * 2] >> 8 * odd),
                   attn_codes(codes[chunk * 2 + 1] >> 8 * odd));
        }
      }
#pragma unroll
      for (int chunk = 0; chunk < 2; ++chunk) {
        const float(&even)[4] = o[chunk * 2], (&odd)[4] = o[chunk * 2 + 1];
        const float4 x = make_float4(
            sum_of_pieces(even[0], even[2], unscale), sum_of_pieces(even[1], even[3], unscale),
            sum_of_pieces(odd[0], odd[2], unscale), sum_of_pieces(odd[1], odd[3], unscale));
        // The run's first chunk, which then becomes its last: after all turns each is in its place.
        const float4 out = merge(run.out[0], x);
#pragma unroll
        for (int i = 0; i + 1 < L::kChunks; ++i) run.out[i] = run.out[i + 1];
        run.out[L::kChunks - 1] = out;
      }
    }
  }
  // Of the lane's four tokens of a tile the first so many are seen: a mask of two pairs of halves.
  __device__ static uint2 seen_halves(int seen) {
    const auto pair = [](int n) { return n >= 2 ? ~0u : n == 1 ? 0xffffu : 0u; };
    uint2 out;
    out.x = pair(seen);
    out.y = pair(seen - 2);
    return out;
  }
  __device__ uint2 load_half_scales(unsigned tile, int block, const uint2& mask) const {
    uint2 x = *reinterpret_cast<const uint2*>(at_.shared + tile + L::kScaleOffset + block * 32 +
                                              at_.quad * 8);
    x.x &= mask.x;
    x.y &= mask.y;
    return x;
  }
  __device__ static float2 to_floats(uint32_t halves) {
    return __half22float2(reinterpret_cast<const __half2&>(halves));
  }
  // Of V, over the tokens that the row sees; NaNs aside.
  __device__ float largest_half_scale(unsigned values, int first_token) const {
    uint32_t largest = 0;
    int seen = last_token_ + 1 - first_token - static_cast<int>(at_.quad) * 4;
#pragma unroll
    for (int tile = 0; tile < L::kLeafTiles; ++tile, seen -= kKvTileTokens) {
      const uint2 mask = seen_halves(seen);
#pragma unroll
      for (int block = 0; block < L::kDims / 32; ++block) {
        const uint2 x = load_half_scales(values + tile * L::kTileBytes, block, mask);
        largest = attn_max_halves(largest, attn_max_halves(x.x, x.y));
      }
    }
    const float2 both = to_floats(largest);
    return attn_row_max(fmaxf(both.x, both.y));
  }
  // The pieces of a tile's weights times the scales of V.
  __device__ void scaled_weights(int tile, unsigned v, float down, uint32_t (&low)[L::kPieces],
                                 uint32_t (&high)[L::kPieces]) const {
    float scales[4], p[4];
    load_scales(v, 0, scales);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Selected: the scale of a token that no one may see can be NaN.
      const float weight = s_[tile][i], scale = scales[i % 2 * 2 + i / 2];
      p[i] = weight == 0.0f ? 0.0f : __fmul_rn(weight, __fmul_rn(scale, down));
    }
    attn_split<L::kBf16>(p[0], p[1], low);
    attn_split<L::kBf16>(p[2], p[3], high);
  }
  // As outputs_codes; scales have all exponents of f32.
  __device__ float outputs_e4m3(unsigned values, int first_token, float (&o)[2 * L::kChunks][4]) {
    const float largest = largest_scale(values, first_token);
    const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 126;
    const float down = __int_as_float((127 - exponent) << 23);
#pragma unroll
    for (int tile = 0; tile < L::kLeafTiles; ++tile) {
      const unsigned v = values + tile * L::kTileBytes;
      uint32_t low[L::kPieces], high[L::kPieces];
      scaled_weights(tile, v, down, low, high);
      const unsigned token = at_.lane % 8 * 2 + at_.lane / 8 % 2;
#pragma unroll
      for (int block = 0; block * 2 < L::kChunks; ++block) {
        uint32_t codes[4];
        const unsigned chunk16 = AttnSwizzle<L>::value(token, (block * 2) | chunk_of_block(block));
        attn_load_matrices(codes, at_.address + v + chunk16 * 16);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int chunk = block * 2 + half;
          if (chunk >= L::kChunks) break;
          uint32_t even[2], odd[2];
          e4m3_to_f16(codes[half * 2], even[0], odd[0]);
          e4m3_to_f16(codes[half * 2 + 1], even[1], odd[1]);
          multiply(o[chunk * 2], low, high, even[0], even[1]);
          multiply(o[chunk * 2 + 1], low, high, odd[0], odd[1]);
        }
      }
    }
    return __int_as_float((127 + exponent) << 23);
  }
  __device__ float largest_scale(unsigned values, int first_token) const {
    float largest = 0.0f;
#pragma unroll
    for (int tile = 0; tile < L::kLeafTiles; ++tile) {
      float scales[4];
      load_scales(values + tile * L::kTileBytes, 0, scales);
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const int token = first_token + tile * kKvTileTokens + static_cast<int>(at_.quad) * 4 + t;
        largest = fmaxf(largest, token <= last_token_ ? scales[t] : 0.0f);
      }
    }
    return attn_row_max(largest);
  }

  __device__ void outputs_f32(unsigned values, State& leaf) {
#pragma unroll
    for (int c = 0; c < L::kChunks; ++c) leaf.out[c] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int tile = 0; tile < L::kLeafTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll 1
        for (int owner = 0; owner < 4; ++owner) {
          const float p = __shfl_sync(0xffffffffu, s_[tile][i], at_.row * 4 + owner);
          const float* v =
              reinterpret_cast<const float*>(at_.shared + values + tile * L::kTileBytes) +
              (i / 2 * 8 + owner * 2 + i % 2) * L::kDims + at_.quad * 2;
#pragma unroll
          for (int c = 0; c < L::kChunks; ++c) {
            leaf.out[c].x = __fmaf_rn(p, v[c * 16], leaf.out[c].x);
            leaf.out[c].y = __fmaf_rn(p, v[c * 16 + 1], leaf.out[c].y);
            leaf.out[c].z = __fmaf_rn(p, v[c * 16 + 8], leaf.out[c].z);
            leaf.out[c].w = __fmaf_rn(p, v[c * 16 + 9], leaf.out[c].w);
          }
        }
      }
    }
  }

  __device__ uint4& shared_query(int chunk) const {
    return reinterpret_cast<uint4*>(at_.shared + L::kQuery)[chunk * 32 + at_.lane];
  }
  // The pieces of a chunk's first and second two values.
  __device__ void load_query(int chunk, uint32_t (&pieces)[2][L::kPieces]) const {
    if constexpr (L::kSharedQuery) {
      const uint4 x = shared_query(chunk);
      pieces[0][0] = x.x;
      pieces[0][1] = x.y;
      pieces[1][0] = x.z;
      pieces[1][1] = x.w;
    } else {
#pragma unroll
      for (int i = 0; i < 2 * L::kPieces; ++i)
        pieces[i / L::kPieces][i % L::kPieces] = query_[chunk][i / L::kPieces][i % L::kPieces];
    }
  }

  static constexpr int kChunksOfWarp = (L::kChunks + L::kWarps - 1) / L::kWarps;
  const AttnThread<L> at_;
  int last_token_;
  float unscale_;
  float s_[L::kLeafTiles][4];
  float4 fetched_[L::kChunks];
  // Of a chunk: the pieces of its first and its second two values, or four values.
  uint32_t query_[L::kSharedQuery ? 1 : L::kChunks][L::kF32 ? 4 : 2][L::kPieces];
};

}  // namespace fathom::cuda
