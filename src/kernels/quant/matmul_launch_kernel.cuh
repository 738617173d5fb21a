// SPDX-License-Identifier: Apache-2.0
// The one launcher of products: from packed matrices to geometry. Few rows: each block makes the
// activations it needs in shared memory, and a product is one launch; more rows: a launch of its
// own makes them once; very many, on Hopper: matmul_prefill_launch_kernel.cuh.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "kernels/common/cuda_check.cuh"
#include "kernels/quant/matmul_kernel.cuh"
#include "kernels/quant/matmul_one_plan_kernel.cuh"
#include "kernels/quant/matmul_prefill_launch_kernel.cuh"
#include "kernels/quant/sums_op_kernel.cuh"
#include "tensor/packed_matrix.hpp"

namespace fathom::cuda {

// More bytes of activations than this are made once for all blocks.
inline constexpr int64_t kOwnActsBytes = int64_t{40} << 10;

inline quant::MatmulPart matmul_part(const PackedMatrix& w) {
  quant::MatmulPart part{};
  part.data = w.data;
  part.type = w.packed_type;
  quant::visit_mma_format(w.packed_type, [&](auto constant) {
    using Format = quant::MmaFormat<decltype(constant)::value>;
    part.tile_bytes = Format::kTileBytes;
    part.tile_cols = Format::kTileCols;
  });
  part.n_tiles = static_cast<int>((w.cols + part.tile_cols - 1) / part.tile_cols);
  part.rows = static_cast<int>(w.rows);
  part.n_groups = static_cast<int>((w.rows + quant::kMmaRows - 1) / quant::kMmaRows);
  return part;
}

// The warps of a team: as few as finish in as many rounds as all could, and of those whose rings
// leave room for two blocks on an SM (matmul_one_kernel.cuh), down to kFewestLanes. Of the matrices
// alone: the sums' order hangs on it.
inline int matmul_lanes(const quant::MatmulParams& p, int n_tiles) {
  constexpr int kFewestLanes = 5, kStages = 4, kBarrierBytes = 128;
  const int of_lane = kStages * (p.stage_bytes + quant::kMmaRows * 4);
  int lanes = quant::kMatmulMaxLanes;
  while (lanes > kFewestLanes && kBarrierBytes + lanes * of_lane > quant::kMatmulSharedBytes) {
    --lanes;
  }
  const int rounds = (n_tiles + lanes - 1) / lanes;
  return (n_tiles + rounds - 1) / rounds;
}

// A product of `matrices` with n_rows rows; `bundle` matrices make a unit.
inline quant::MatmulParams matmul_params(std::initializer_list<const PackedMatrix*> matrices,
                                         int bundle, int64_t n_rows, const float* in,
                                         const float* norm, float eps) {
  quant::MatmulParams p{};
  int most_tiles = 0;
  for (const PackedMatrix* w : matrices) {
    const quant::MatmulPart part = matmul_part(*w);
    p.stage_bytes = std::max(p.stage_bytes, part.tile_bytes);
    most_tiles = std::max(most_tiles, part.n_tiles);
    p.n_units += part.n_groups;
    p.any_f16 |= part.type == DType::f16;
    p.any_bf16 |= part.type == DType::bf16;
    p.any_codes |= part.type != DType::f16 && part.type != DType::bf16;
    p.cols = static_cast<int>(w->cols);
    p.parts[p.n_parts++] = part;
  }
  p.bundle = bundle;
  p.pair_stride = p.run = 1;
  p.n_units /= bundle;
  p.n_lanes = matmul_lanes(p, most_tiles);
  p.n_rows = static_cast<int>(n_rows);
  p.in = in;
  p.norm = norm;
  p.eps = eps;
  return p;
}

// Columns of a launch of matmul_few_kernel for so many rows of the step.
inline int few_columns(int64_t n_rows) { return n_rows <= 8 ? 8 : n_rows <= 16 ? 16 : 32; }

// Scratch of a product with at most max_rows rows, as Workspace::take counts it.
inline int64_t matmul_acts_bytes(std::initializer_list<const PackedMatrix*> matrices,
                                 int64_t max_rows) {
  const quant::MatmulParams p = matmul_params(matrices, 1, max_rows, nullptr, nullptr, 0.0f);
  const int64_t bytes =
      std::max(quant::act_layout(p, std::max(p.n_rows, few_columns(p.n_rows))).bytes,
               p.n_rows < kPrefillRows ? 0 : quant::prefill_acts(p, p.n_rows).bytes);
  return (bytes + 63) / 64 * 64;
}

// Fills p.acts from p.in with the activations of n_cols rows, of which those from p.n_rows on are
// left as they are (matmul_acts_cuda.cu).
void make_matmul_acts(const quant::MatmulParams& p, int n_cols, void* stream);

inline int n_multiprocessors() {
  int n = 0;
  check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
  return n;
}

// The shared memory that the GPU gives a block, and of it what blocks with rings of several rows
// take: two of them stand on an SM of Hopper, one on those with 100 KB.
inline int most_shared_bytes() {
  int limit = 0;
  check(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  return limit;
}
inline int matmul_shared_bytes() {
  return std::min(quant::kMatmulSharedBytes, most_shared_bytes());
}

// As many stages as `share` bytes of shared memory hold, two at least; bytes(p) with p's.
template <class Bytes>
size_t use_stages(quant::MatmulParams& p, int64_t share, Bytes bytes) {
  p.n_stages = quant::kMatmulMaxStages;
  while (p.n_stages > 2 && bytes(p) > share) --p.n_stages;
  return static_cast<size_t>(bytes(p));
}

// Dynamic shared memory of a block, if two blocks take all that an SM has: so many thousandths of
// it, or what is left beside a block with that.
inline int share_of_sm(int thousandths, bool beside) {
  constexpr int kStatic = 128, kGranule = 128;  // what the kernel has beside, rounding up included
  int per_sm = 0, reserved = 0;
  check(cudaDeviceGetAttribute(&per_sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor, 0));
  check(cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, 0));
  const int share = per_sm / 1000 * thousandths / kGranule * kGranule;
  return beside ? per_sm - share - 2 * (reserved + kStatic) : share;
}

template <class Kernel>
void use_shared(Kernel kernel, size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)));
}

// Of a warp that finishes units; part of what a block has to fit (matmul_columns).
template <class Op>
constexpr int scratch_bytes() {
  if constexpr (quant::HasUnitsDone<Op>) {
    return Op::kScratchBytes;
  } else {
    return 0;
  }
}

// Products of one row (matmul_one_cuda.cu).
void launch_matmul_one(quant::MatmulParams p, const OneRowOp& op, void* stream);

template <int kColumns, bool kOwnActs, class Op>
void launch_matmul_columns(quant::MatmulParams p, const Op& op, void* stream) {
  const auto kernel = quant::matmul_kernel<kColumns, kOwnActs, Op>;
  p.n_teams = quant::kActWarps / p.n_lanes;
  p.scratch_bytes = kColumns <= quant::kUnitsDoneColumns ? scratch_bytes<Op>() : 0;
  const size_t shared = use_stages(p, matmul_shared_bytes(), [](const auto& params) {
    return quant::matmul_shared(params, kColumns).bytes;
  });
  use_shared(kernel, shared);
  const int n_columns = (p.n_rows + kColumns - 1) / kColumns;
  const int n_blocks = (p.n_units + p.n_teams - 1) / p.n_teams;
  const int resident = n_multiprocessors() * (kColumns <= 8 ? 2 : 1);
  launch(
      kernel,
      dim3(static_cast<unsigned>(std::min(n_blocks, resident)), static_cast<unsigned>(n_columns)),
      dim3(quant::kActThreads), shared, stream, p, op);
}

// Whether the rows are few, there are bulk copies, and each of the product's tiles holds codes.
inline bool takes_few(const quant::MatmulParams& p) {
  return p.n_rows <= 32 && has_bulk_copies() && !p.any_f16 && !p.any_bf16;
}

// In clusters or blocks (matmul_few_cuda.cu). p.acts: scratch of matmul_acts_bytes. False: nothing
// was launched.
bool launch_matmul_few(const quant::MatmulParams& p, const FewRowsOp& op, void* stream);

// Whether a block with two stages fits into what the GPU gives a block.
template <class Bytes>
bool fits_block(quant::MatmulParams p, int n_teams, Bytes bytes) {
  p.n_teams = n_teams;
  p.n_stages = 2;
  return bytes(p) <= most_shared_bytes();
}

// The rows of the step that one block takes, where units are finished with p.scratch_bytes. Up to 4
// each block makes its own activations. GPUs with less shared memory than Hopper's take fewer rows
// a block.
inline int matmul_columns(const quant::MatmulParams& p) {
  const bool own_acts = quant::act_layout(p, p.n_rows).bytes <= kOwnActsBytes;
  const bool one_type = p.bundle == 1 || p.parts[0].type == p.parts[1].type;
  if (p.n_rows == 1 && own_acts && one_type &&
      fits_block(p, quant::kOneSets,
                 [](const auto& params) { return quant::one_shared(params).bytes; })) {
    return 1;
  }
  if (p.n_rows <= 4 && own_acts &&
      fits_block(p, quant::kActWarps / p.n_lanes,
                 [](const auto& params) { return quant::matmul_shared(params, 4).bytes; })) {
    return 4;
  }
  int columns = p.n_rows <= 8 ? 8 : p.n_rows <= 16 ? 16 : 32;
  const auto bytes = [&](quant::MatmulParams params) {
    params.scratch_bytes = 0;
    params.acts = reinterpret_cast<std::byte*>(1);  // they will stand in device memory
    return quant::matmul_shared(params, columns).bytes;
  };
  while (columns > 8 && !fits_block(p, quant::kActWarps / p.n_lanes, bytes)) columns /= 2;
  return columns;
}

// `acts` is scratch of matmul_acts_bytes.
template <class Op>
void launch_matmul(quant::MatmulParams p, std::byte* acts, const Op& op, void* stream) {
  if (takes_prefill(p)) {
    p.acts = acts;
    return launch_prefill(p, op, stream);
  }
  p.scratch_bytes = scratch_bytes<Op>();
  const int columns = matmul_columns(p);
  if (columns == 1) return launch_matmul_one(p, op, stream);
  if (columns == 4) return launch_matmul_columns<4, true>(p, op, stream);
  p.acts = acts;
  if (takes_few(p) && launch_matmul_few(p, op, stream)) return;
  make_matmul_acts(p, p.n_rows, stream);
  if (columns == 8) return launch_matmul_columns<8, false>(p, op, stream);
  if (columns == 16) return launch_matmul_columns<16, false>(p, op, stream);
  return launch_matmul_columns<32, false>(p, op, stream);
}

}  // namespace fathom::cuda
