// SPDX-License-Identifier: Apache-2.0
// The parameters of attn_kernel, the sizes of its variants, and the parts of shared memory.
#pragma once

#include "kernels/attn/attn_instructions_kernel.cuh"
#include "kernels/common/cxx20.cuh"
#include "tensor/kv_view.hpp"

namespace fathom::cuda {

// As in attn_plan.hpp, which attn_cuda.cu asserts: device code includes no header of the host.
inline constexpr int kAttnKernelColumns = 8;
// Levels of the reduction tree: each state folds, in order, four of the level before; beyond the
// last level the result folds all.
inline constexpr int kAttnLeafTokens = 32;
inline constexpr int kAttnRunTokens = 128;
inline constexpr int kAttnNodeTokens = 512;
inline constexpr int kAttnTopTokens = 8192;
inline constexpr int kAttnMaxCluster = 16;

struct AttnParams {
  KvLayerView kv;
  const int32_t *pos, *slot, *page_table;
  const float* q;      // [n_rows, n_heads, head_dim]
  float* out;          // [n_rows, n_heads, head_dim]
  float* states;       // of units or clusters that meet in device memory, [n_slots]
  unsigned* counters;  // [entries, n_kv_heads, cluster size], zero between launches
  int n_slots;
  int tiles_per_page;
  unsigned page_factor;  // 2^32 / tiles_per_page, rounded up; not used for 1
  int n_rows, max_pages, n_heads, n_kv_heads, group, rows_per_entry;
  int is_first_launch;  // of the step's rows; no bool, as padding differs from launch to launch
  float scale_log2;     // scale * log2(e)
};

// The sizes of a variant, and where the parts of a block's shared memory lie. Of the block's warps
// kTiles work on the same tokens, 8 queries each; they are a stream and share a ring of slots.
template <KvFormat kFormat, int kHeadDim, int kTiles>
struct AttnLayout {
  static constexpr KvFormat kKvFormat = kFormat;
  static constexpr int kDims = kHeadDim, kColumnTiles = kTiles;
  static constexpr bool kF32 = kFormat == KvFormat::f32, kBf16 = kFormat == KvFormat::bf16,
                        kE4m3 = kFormat == KvFormat::fp8_e4m3,
                        kCodes = kFormat == KvFormat::q8_0 || kE4m3;  // bytes with scales
  static constexpr int kWarps = 4, kThreads = 32 * kWarps;
  static constexpr int kStreams = kWarps / kTiles, kStreamThreads = 32 * kTiles;
  static constexpr int kColumns = kTiles * kAttnKernelColumns;
  static constexpr int kPieces = kF32 ? 1 : kBf16 ? 3 : 2;  // halves whose sum is q or p
  static constexpr int kChunks = kHeadDim / 16;             // of 16 dims
  static constexpr int kOwnChunks = (kChunks + kStreams - 1) / kStreams;  // that a warp folds
  static constexpr int kValueBytes = kF32 ? 4 : kCodes ? 1 : 2;
  static constexpr int kTileBytes = static_cast<int>(kv_tile_bytes(kFormat, kHeadDim));
  static constexpr int kScaleOffset = kHeadDim * kKvTileTokens;  // of codes, in their tile
  static constexpr int kLeafTiles = kAttnLeafTokens / kKvTileTokens;
  static constexpr int kSlotBytes = kLeafTiles * kTileBytes;  // K or V of a leaf
  static constexpr int kLevels = kTiles == 1 ? 3 : 4;         // of states folded by one block
  static constexpr int kLevelBytes = kTiles * kChunks * 32 * 16;
  // Over codes, which take long to become halves, three blocks share a multiprocessor, with the
  // query's pieces in shared memory: its registers are what a third one needs.
  static constexpr bool kSharedQuery = kCodes && kTiles == 1 && kHeadDim <= 128;
  static constexpr int kBlocks = kSharedQuery ? 3 : 1;
  static constexpr int kQueryBytes = kSharedQuery ? kChunks * 512 : 0;
  // Of one tile: three slots a stream in 96 KiB, which leaves room for another block, of this
  // kernel or the next, or what leaves room for two; where three do not fit there, what the
  // multiprocessor has. Of four tiles, whose levels take more: 32 KiB.
  static constexpr int kRingBytes = kSharedQuery ? 73 * 1024 - kLevels * kLevelBytes - kQueryBytes
                                                 : (kTiles == 1 ? 96 : 32) * 1024;
  static constexpr int kFit = kRingBytes / (kStreams * kSlotBytes);
  static constexpr int kFitAlone = kTiles == 1 ? 192 * 1024 / (kStreams * kSlotBytes) : 1;
  static constexpr int kSlots = kFit >= 6                  ? 6
                                : kFit >= 3 || kTiles == 4 ? (kFit > 1 ? kFit : 1)
                                : kFitAlone > 3            ? 3
                                : kFitAlone > 1            ? kFitAlone
                                                           : 1;
  static constexpr int kStateFloats = kTiles * (kChunks * 32 * 4 + 2 * kAttnKernelColumns);
  static constexpr int kPositions = kTiles * kChunks * 32;  // of four outputs each, of all columns
  // A round takes 128 tokens a stream: units of 128 are for several streams, a leaf each.
  static constexpr int kMinUnitShift = kStreams == 1 ? 9 : 7;

  // Levels are for units of several rounds, whose state meets others' at the end only, if at all.
  static constexpr int kLevelStates = kStreams * kSlots * kSlotBytes;
  static constexpr int kExchange = kLevelStates;
  static_assert(kPositions * 24 <= kLevels * kLevelBytes);
  static constexpr int kQuery = kLevelStates + kLevels * kLevelBytes;  // uint4 [chunks][lane]
  static constexpr int kScan = kQuery + kQueryBytes;                   // totals [warps], flags
  static constexpr int kMeeting = kScan + kWarps * 16 + 16;  // the barrier of a cluster's meeting
  static constexpr int kEntries = kMeeting + 16;             // int4 [n_rows]
  static constexpr int shared_bytes(int n_rows) { return kEntries + n_rows * 16; }
  static_assert(kStreams == 1 || kStateFloats * 4 <= kSlotBytes, "a slot takes a warp's state");
};

// What a thread of a block of layout L finds its data by. In fragments of MMAs its row is a query:
// column `row` of the warp's tile of 8; `quad` counts the four lanes of a row. Places in shared
// memory are offsets in bytes; unsigned, so that divisions are shifts.
template <class L>
struct AttnThread {
  const AttnParams& params;
  std::byte* shared;
  unsigned address = attn_shared_address(shared);
  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned tile = warp % L::kColumnTiles, stream = warp / L::kColumnTiles;
  unsigned row = lane / 4, quad = lane % 4;

  // Chunk i of those whose states the warp folds.
  __device__ int own_chunk(int i) const { return static_cast<int>(stream) + i * L::kStreams; }
  __device__ int own_position(int i) const {
    return (static_cast<int>(tile) * L::kChunks + own_chunk(i)) * 32 + static_cast<int>(lane);
  }
  __device__ int column() const { return static_cast<int>(tile * kAttnKernelColumns + row); }
  __device__ static unsigned slot(unsigned stream, int index) {
    return (stream * L::kSlots + index) * L::kSlotBytes;
  }
  __device__ void stream_sync() const {
    if constexpr (L::kStreams == 1) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }
};

}  // namespace fathom::cuda
