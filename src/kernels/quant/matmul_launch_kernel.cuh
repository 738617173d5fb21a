// SPDX-License-Identifier: Apache-2.0
// The one launcher of products: from packed matrices to geometry. Few rows: each block makes the
// activations it needs in shared memory, and a product is one launch; more rows: a launch of its
// own makes them once; very many, on Hopper: matmul_prefill_launch_kernel.cuh.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "kernels/common/cuda_check.cuh"
#include "kernels/quant/matmul_kernel.cuh"
#include "kernels/quant/matmul_prefill_launch_kernel.cuh"
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

// The warps of a block that share a row group: as few as finish in as many rounds as all could.
inline int matmul_lanes(int n_tiles) {
  const int rounds = (n_tiles + quant::kMatmulMaxLanes - 1) / quant::kMatmulMaxLanes;
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
  p.n_units /= bundle;
  p.n_lanes = matmul_lanes(most_tiles);
  p.n_rows = static_cast<int>(n_rows);
  p.in = in;
  p.norm = norm;
  p.eps = eps;
  return p;
}

// Scratch of a product with at most max_rows rows, as Workspace::take counts it.
inline int64_t matmul_acts_bytes(std::initializer_list<const PackedMatrix*> matrices,
                                 int64_t max_rows) {
  const quant::MatmulParams p = matmul_params(matrices, 1, max_rows, nullptr, nullptr, 0.0f);
  const int64_t bytes =
      std::max(quant::act_layout(p, p.n_rows).bytes,
               p.n_rows < kPrefillRows ? 0 : quant::prefill_acts(p, p.n_rows).bytes);
  return (bytes + 63) / 64 * 64;
}

// Fills p.acts from p.in (matmul_acts_cuda.cu).
void make_matmul_acts(const quant::MatmulParams& p, void* stream);

template <int kColumns, bool kOwnActs, class Op>
void launch_matmul_columns(quant::MatmulParams p, const Op& op, void* stream) {
  const auto kernel = quant::matmul_kernel<kColumns, kOwnActs, Op>;
  p.n_teams = quant::matmul_warps(kColumns) / p.n_lanes;
  if constexpr (kColumns <= quant::kUnitDoneColumns && quant::HasUnitDone<Op>) {
    p.scratch_bytes = Op::kScratchBytes;
  }
  p.n_stages = quant::kMatmulMaxStages;
  while (p.n_stages > 2 && quant::matmul_shared(p, kColumns).bytes > quant::kMatmulSharedBytes) {
    --p.n_stages;
  }
  const size_t shared = static_cast<size_t>(quant::matmul_shared(p, kColumns).bytes);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared)));
  int n_sms = 0;
  check(cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, 0));
  const int n_columns = (p.n_rows + kColumns - 1) / kColumns;
  const int n_blocks = (p.n_units + p.n_teams - 1) / p.n_teams;
  const dim3 grid(static_cast<unsigned>(std::min(n_blocks, n_sms)),
                  static_cast<unsigned>(n_columns));
  launch(kernel, grid, dim3(32 * quant::matmul_warps(kColumns)), shared, stream, p, op);
}

// The rows of the step that one block takes. Up to 4 each block makes its own activations.
inline int matmul_columns(const quant::MatmulParams& p) {
  if (p.n_rows <= 4 && quant::act_layout(p, p.n_rows).bytes <= kOwnActsBytes) {
    return p.n_rows == 1 ? 1 : 4;
  }
  return p.n_rows <= 8 ? 8 : p.n_rows <= 16 ? 16 : 32;
}

// `acts` is scratch of matmul_acts_bytes.
template <class Op>
void launch_matmul(quant::MatmulParams p, std::byte* acts, const Op& op, void* stream) {
  if (takes_prefill(p)) {
    p.acts = acts;
    return launch_prefill(p, op, stream);
  }
  const int columns = matmul_columns(p);
  if (columns == 1) return launch_matmul_columns<1, true>(p, op, stream);
  if (columns == 4) return launch_matmul_columns<4, true>(p, op, stream);
  p.acts = acts;
  make_matmul_acts(p, stream);
  if (columns == 8) return launch_matmul_columns<8, false>(p, op, stream);
  if (columns == 16) return launch_matmul_columns<16, false>(p, op, stream);
  return launch_matmul_columns<32, false>(p, op, stream);
}

// x[col][row] += sum, then the bias.
struct AddToResidual {
  float* x;           // [n_rows, rows]
  const float* bias;  // [rows] or null
  int rows;
  __device__ void operator()(int, int row, int col, const float* sums) const {
    write(row, col, read(row, col), sums);
  }
  // In halves, so that the reads of many values are in flight together.
  __device__ float read(int row, int col) const { return at(row, col); }
  __device__ void write(int row, int col, float before, const float* sums) const {
    float total = before + sums[0];
    if (bias) total += __ldg(bias + row);
    at(row, col) = total;
  }
  __device__ float& at(int row, int col) const { return x[static_cast<int64_t>(col) * rows + row]; }
};

}  // namespace fathom::cuda
