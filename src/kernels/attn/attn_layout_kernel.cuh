// SPDX-License-Identifier: Apache-2.0
// The parameters of attn_kernel, the sizes of its variants, and the parts of shared memory.
#pragma once

#include "kernels/common/cxx20.cuh"
#include "tensor/kv_view.hpp"

namespace fathom::cuda {

// As on the host, which attn_cuda.cu asserts: device code includes no header of it.
inline constexpr int kAttnKernelSplitTokens = 256;
inline constexpr int kAttnKernelColumns = 8;

struct AttnParams {
  KvLayerView kv;
  const int32_t *pos, *slot, *page_table;
  const float* q;  // [n_rows, n_heads, head_dim]
  float* out;      // [n_rows, n_heads, head_dim]
  float* states;   // [n_slots] states of splits: o [columns][head_dim], m [columns], d [columns]
  unsigned* counters;  // [entries, n_kv_heads], zero between launches
  int64_t n_slots;
  int n_rows, max_pages, n_heads, n_kv_heads, group, rows_per_entry;
  bool is_first_launch;  // of the step's rows
  float scale_log2;      // scale * log2(e)
};

// The sizes of a variant, and where the parts of a block's shared memory lie.
template <KvFormat kFormat, int kHeadDim, int kTiles>
struct AttnLayout {
  static constexpr KvFormat kKvFormat = kFormat;
  static constexpr int kDims = kHeadDim, kColumnTiles = kTiles;
  static constexpr bool kF32 = kFormat == KvFormat::f32, kF16 = kFormat == KvFormat::f16,
                        kCodes = kFormat == KvFormat::q8_0;
  static constexpr int kWarps = kF32 ? 4 : 8, kThreads = 32 * kWarps;
  static constexpr int kStepTokens = kWarps * kKvTileTokens;
  static constexpr int kColumns = kTiles * kAttnKernelColumns;
  static constexpr int kPieces = kF32 ? 1 : kF16 ? 2 : 3;  // halves whose sum is q or p
  static constexpr int kDimTiles = kHeadDim / 16;
  static constexpr int kOwnDimTiles = (kDimTiles + kWarps - 1) / kWarps;  // of a warp
  static constexpr int kValueBytes = kF32 ? 4 : kCodes ? 1 : 2;
  static constexpr int kTileBytes = static_cast<int>(kv_tile_bytes(kFormat, kHeadDim));
  static constexpr int kScaleOffset = kHeadDim * kKvTileTokens;  // of q8_0, in its tile
  static constexpr int kStageBytes = kWarps * kTileBytes;        // of K, and as many of V
  static constexpr int kStages = 4 * kStageBytes <= 144 * 1024 ? 2 : 1;
  // Weights: halves [piece][tile][token][8 columns], or f32 [column][tokens and padding].
  static constexpr bool kFloatWeights = kF32 || kCodes;
  static constexpr int kWeightStride = kStepTokens + 8;
  static constexpr int kWeightBytes =
      kFloatWeights ? kColumns * kWeightStride * 4 : kPieces * kColumns * kStepTokens * 2;
  // Queries: B fragments [piece][tile][16 dims][lane][2], or f32 [column][dims and padding].
  static constexpr int kQueryStride = kHeadDim + 4;
  static constexpr int kQueryBytes =
      kF32 ? kColumns * kQueryStride * 4 : kPieces * kColumns * kHeadDim * 2;

  static constexpr int kKeys = 0;
  static constexpr int kValues = kKeys + kStages * kStageBytes;
  static constexpr int kWeights = kValues + kStages * kStageBytes;
  static constexpr int kQueries = kWeights + kWeightBytes;
  static constexpr int kPartials = kQueries + kQueryBytes;            // f32 [warps][columns]
  static constexpr int kUnscale = kPartials + kWarps * kColumns * 4;  // f32 [columns]
  static constexpr int kLimits = kUnscale + kColumns * 4;             // int [columns]
  static constexpr int kHeads = kLimits + kColumns * 4;               // int [columns]
  static constexpr int kScan = kHeads + kColumns * 4;                 // int2 [warps], flag
  static constexpr int kEntries = kScan + (kWarps + 1) * 8;           // int4 [n_rows + 1]
  static constexpr int shared_bytes(int n_rows) {
    return (kEntries + 15) / 16 * 16 + (n_rows + 1) * 16;
  }
  // Blocks of an H200's multiprocessor: as many as its 227 KiB hold, with registers for each.
  static constexpr int kBlocks = kTiles == 1 && 2 * shared_bytes(64) <= 224 * 1024 ? 2 : 1;
};

// What a thread of a block of layout L finds its shared memory by.
template <class L>
struct AttnThread {
  const AttnParams& params;
  std::byte* shared;
  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(threadIdx.x) / 32;

  __device__ float* floats(int offset) const { return reinterpret_cast<float*>(shared + offset); }
  __device__ int* ints(int offset) const { return reinterpret_cast<int*>(shared + offset); }
  // The states of the columns of an item.
  __device__ float* state(int item) const {
    return params.states + int64_t{item} * (L::kColumns * (L::kDims + 2));
  }
};

}  // namespace fathom::cuda
