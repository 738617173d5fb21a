// SPDX-License-Identifier: Apache-2.0
// The work of attn_flash_kernel, cut on the device from the step's positions:
//   segment  successive rows of one sequence; its columns are the queries of one KV head, heads of
//            a row side by side
//   tile     128 columns of a segment, which a block takes in one pass over their tokens
//   item     a tile of one KV head; blocks take them in turn, those with most tokens first
// and the places of all parts in a block's shared memory.
#pragma once

#include "kernels/common/arch.cuh"
#include "kernels/common/cxx20.cuh"
#include "tensor/kv_view.hpp"

namespace fathom::cuda {

struct AttnFlashParams {
  KvLayerView kv;
  const int32_t *pos, *slot, *page_table;
  const float* q;  // [n_rows, n_heads, head_dim]
  float* out;      // [n_rows, n_heads, head_dim]
  int tiles_per_page;
  unsigned page_factor;  // 2^32 / tiles_per_page, rounded up; not used for 1
  int n_rows, max_pages, n_heads, n_kv_heads, group;
  float scale_log2;  // scale * log2(e)
};

inline constexpr int kAttnFlashColumns = 128;    // of a tile: 64 for each of two warpgroups
inline constexpr int kAttnFlashThreads = 384;    // a warpgroup that fetches, two that multiply
inline constexpr int kAttnFlashMostRows = 2048;  // of a launch

template <KvFormat kFormat, int kHeadDim>
struct AttnFlashLayout {
  static constexpr int kDims = kHeadDim;
  static constexpr bool kBf16 = kFormat == KvFormat::bf16, kCodes = kFormat == KvFormat::q8_0;
  static constexpr int kPieces = kBf16 ? 2 : 1;           // halves whose sum is q
  static constexpr int kTokens = kDims > 128 ? 64 : 128;  // of a pass's step
  static constexpr int kCacheTiles = kTokens / kKvTileTokens;
  static constexpr int kWarpTiles = kCacheTiles / 4;  // that a warp fetches
  static constexpr int kCacheTileBytes = static_cast<int>(kv_tile_bytes(kFormat, kHeadDim));
  // In shared memory tiles have halves. Of K, rows of 16 tokens; of V, rows of kValueWidth bytes.
  static constexpr int kTileBytes = kDims * kKvTileTokens * 2;
  static constexpr int kKeyWidth = 32;
  static constexpr int kValueWidth = kDims % 64 == 0 ? 128 : kDims % 32 == 0 ? 64 : 32;
  static constexpr int kStageBytes = kCacheTiles * kTileBytes;
  // Of the threads that fetch and those that multiply: 504 for one of each and another.
  static constexpr int kFetchRegisters = kCodes ? 88 : 40;
  static constexpr int kRegisters = (504 - kFetchRegisters) / 2;
  static constexpr int kStages = kBf16 && kDims > 128 ? 1 : 2;
  static constexpr int kQueryBlocks = (kDims + 63) / 64;                 // of 64 dims
  static constexpr int kQueryBytes = kPieces * kQueryBlocks * 64 * 128;  // of 64 columns
  static constexpr int kOutputs = kDims > 128 ? 2 : 1;                   // products side by side
  static constexpr int kOutputDims = kDims / kOutputs;

  static constexpr int kKeys = 0, kValues = kStages * kStageBytes;
  static constexpr int kQueries = 2 * kStages * kStageBytes;
  static constexpr int kUnscale = kQueries + 2 * kQueryBytes;  // float [columns]
  static constexpr int kBarriers = kUnscale + kAttnFlashColumns * 4;
  static constexpr int kStarts = kBarriers + 4 * 8 * kStages;  // uint2 [words]: bits of rows
  static constexpr int kSegments = kStarts + kAttnFlashMostRows / 32 * 8 + 16;
  // Of a segment: its first row and its first tile; one more for the end.
  static constexpr int shared_bytes(int n_rows) { return kSegments + (n_rows + 1) * 8; }
};

struct AttnFlashItem {
  bool valid;
  int row, n_columns;   // the segment's first row, its columns
  int column, kv_head;  // the tile's first column
  int len;              // tokens that the tile's last row sees
};

template <class L>
class AttnFlashWork {
 public:
  // REQUIRES: all threads of the block call it.
  __device__ AttnFlashWork(const AttnFlashParams& params, std::byte* shared)
      : params_(params),
        words_(reinterpret_cast<uint2*>(shared + L::kStarts)),
        segments_(reinterpret_cast<int2*>(shared + L::kSegments)) {
    mark_rows();
    __syncthreads();
    if (threadIdx.x < 32) list_segments();
    __syncthreads();
    n_segments_ = reinterpret_cast<const int*>(words_ + kAttnFlashMostRows / 32)[0];
    n_tiles_ = segments_[n_segments_].y;
  }

  // The block's items, one after the other: back and forth over the blocks, so that each gets long
  // and short ones.
  __device__ AttnFlashItem item(int round) const {
    AttnFlashItem out{};
    const int n_blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    const int index = round * n_blocks + (round % 2 == 0 ? block : n_blocks - 1 - block);
    out.valid = round * n_blocks < n_tiles_ * params_.n_kv_heads;
    if (index >= n_tiles_ * params_.n_kv_heads) return out;
    const int tile = n_tiles_ - 1 - index / params_.n_kv_heads;
    out.kv_head = index % params_.n_kv_heads;
    int low = 0, high = n_segments_;  // the last segment whose first tile is not after this
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (segments_[middle].y <= tile ? low : high) = middle;
    }
    out.row = segments_[low].x;
    out.n_columns = (segments_[low + 1].x - out.row) * params_.group;
    out.column = (tile - segments_[low].y) * kAttnFlashColumns;
    const int last = min(out.column + kAttnFlashColumns, out.n_columns) - 1;
    out.len = params_.pos[out.row + last / params_.group] + 1;
    return out;
  }

 private:
  // Bits of the rows: where segments start, and which rows have a position.
  __device__ void mark_rows() {
    constexpr int kRounds = (kAttnFlashMostRows + kAttnFlashThreads - 1) / kAttnFlashThreads;
    int pos[kRounds], slot[kRounds], pos_before[kRounds], slot_before[kRounds];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int row = i * kAttnFlashThreads + static_cast<int>(threadIdx.x);
      pos[i] = slot[i] = pos_before[i] = slot_before[i] = -1;
      if (row >= params_.n_rows) continue;
      pos[i] = params_.pos[row];
      slot[i] = params_.slot[row];
      if (row == 0) continue;
      pos_before[i] = params_.pos[row - 1];
      slot_before[i] = params_.slot[row - 1];
    }
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int row = i * kAttnFlashThreads + static_cast<int>(threadIdx.x);
      const bool inside = row < params_.n_rows, live = inside && pos[i] >= 0;
      const bool starts =
          inside && (row == 0 || live != (pos_before[i] >= 0) || slot[i] != slot_before[i]);
      const unsigned of_starts = __ballot_sync(0xffffffffu, starts);
      const unsigned of_live = __ballot_sync(0xffffffffu, live);
      if (threadIdx.x % 32 == 0 && row < kAttnFlashMostRows) {
        words_[row / 32] = make_uint2(of_starts, of_live);
      }
    }
  }

  __device__ static int sum_before(int x, int& total) {  // over the warp's lanes
    const int lane = static_cast<int>(threadIdx.x);
    int sum = x;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int y = __shfl_up_sync(0xffffffffu, sum, distance);
      if (lane >= distance) sum += y;
    }
    total = __shfl_sync(0xffffffffu, sum, 31);
    return sum - x;
  }

  // By warp 0.
  __device__ void list_segments() {
    const int lane = static_cast<int>(threadIdx.x);
    int n = 0;
#pragma unroll
    for (int first = 0; first < kAttnFlashMostRows / 32; first += 32) {
      unsigned starts = words_[first + lane].x;
      int total;
      int at = n + sum_before(__popc(starts), total);
      for (; starts != 0; starts &= starts - 1) {
        segments_[at++].x = (first + lane) * 32 + __ffs(static_cast<int>(starts)) - 1;
      }
      n += total;
    }
    if (lane == 0) {
      segments_[n].x = params_.n_rows;
      reinterpret_cast<int*>(words_ + kAttnFlashMostRows / 32)[0] = n;
    }
    __syncwarp();
    int n_tiles = 0;
    for (int first = 0; first <= n; first += 32) {
      const int i = first + lane;
      int tiles = 0;
      if (i < n) {
        const int row = segments_[i].x, n_columns = (segments_[i + 1].x - row) * params_.group;
        if (words_[row / 32].y >> row % 32 & 1) {
          tiles = (n_columns + kAttnFlashColumns - 1) / kAttnFlashColumns;
        }
      }
      int total;
      const int before = n_tiles + sum_before(tiles, total);
      if (i <= n) segments_[i].y = before;
      n_tiles += total;
    }
  }

  const AttnFlashParams& params_;
  uint2* words_;
  int2* segments_;
  int n_segments_, n_tiles_;
};

// The slots of a ring that two sides go round, with the parity of the phase that they wait for.
struct AttnFlashPlace {
  int stage = 0;
  uint32_t parity = 0;
  template <int kStages>
  __device__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Barriers of a block, by address.
template <class L>
struct AttnFlashBarriers {
  uint32_t base;
  __device__ uint32_t keys_full(int stage) const { return base + 8 * stage; }
  __device__ uint32_t keys_empty(int stage) const { return base + 8 * (L::kStages + stage); }
  __device__ uint32_t values_full(int stage) const { return base + 8 * (2 * L::kStages + stage); }
  __device__ uint32_t values_empty(int stage) const { return base + 8 * (3 * L::kStages + stage); }
};

}  // namespace fathom::cuda
