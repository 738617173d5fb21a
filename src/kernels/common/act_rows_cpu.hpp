// SPDX-License-Identifier: Apache-2.0
// How a CPU op makes the activation rows of its products and deals the products to threads.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "base/checked.hpp"
#include "base/thread_pool.hpp"
#include "kernels/common/cpu_kernels.hpp"
#include "kernels/exec_context.hpp"

namespace fathom {

inline constexpr int kRowsPerGroup = 16;      // of a packed matrix
inline constexpr int kMaxPrivateCopies = 64;  // threads that make their own copy of a single row

// Scratch for the activation rows of one op.
struct ActScratch {
  ActBlock* blocks;  // [rows, cols/32]
  float* values;     // [rows, cols] normalised values; unused where the input serves as it is

  static int64_t rows_of(int64_t max_rows) {
    return std::max<int64_t>(max_rows, kMaxPrivateCopies);
  }
  static int64_t bytes(int64_t max_rows, int64_t cols) {
    const int64_t rows = rows_of(max_rows);
    return round_up(rows * ceil_div(cols, kActBlockElems) * sizeof(ActBlock), 64) +
           round_up(rows * cols * sizeof(float), 64);
  }
  static ActScratch take(Workspace& workspace, int64_t max_rows, int64_t cols) {
    const int64_t rows = rows_of(max_rows);
    ActScratch out;
    out.blocks = workspace.take<ActBlock>(rows * ceil_div(cols, kActBlockElems));
    out.values = workspace.take<float>(rows * cols);
    return out;
  }
};

// What the products of one op read.
struct ActNeeds {
  bool blocks = false;

  ActNeeds(std::initializer_list<const PackedMatrix*> matrices) {
    for (const PackedMatrix* w : matrices) blocks |= !takes_float_activations(w->packed_type);
  }
};

// Makes the activation rows of a region: make(row, values) fills one row of floats, or returns the
// row where it already stands. A single row is made by every rank for itself, so that nobody waits;
// more rows are dealt by `chunks` and joined by a barrier.
// Returns rows whose index 0 is the step's first row.
template <class MakeRow>
ActRows make_act_rows(const ExecContext& ctx, Team& team, Chunks& chunks, const ActScratch& scratch,
                      ActNeeds needs, int64_t n_rows, int64_t cols, MakeRow make) {
  const int64_t n_blocks = ceil_div(cols, kActBlockElems);
  auto one = [&](int64_t row, int64_t slot) {
    const float* values = make(row, scratch.values + slot * cols);
    if (needs.blocks) ctx.cpu->elementwise.quantize(values, cols, scratch.blocks + slot * n_blocks);
    return values;
  };
  if (n_rows == 1 && team.size <= kMaxPrivateCopies) {
    const float* values = one(0, team.rank);
    return {scratch.blocks + team.rank * n_blocks, values, cols};
  }
  for (int64_t begin, end; chunks.next(begin, end);) {
    for (int64_t row = begin; row < end; ++row) one(row, row);
  }
  team.barrier();
  return {scratch.blocks, make(0, nullptr), cols};
}

// One of the products of an op: out[row, w.rows].
struct MatmulPart {
  const PackedMatrix* w;
  float* out;
  int64_t out_stride;
};

// A run of row groups of one part.
struct MatmulRun {
  const MatmulPart* part;
  int64_t group_begin, group_end;
};

inline int64_t row_groups(const PackedMatrix& w) { return ceil_div(w.rows, kRowsPerGroup); }

// Row groups that a thread takes at once: for few activation rows a share small enough to even out
// a noisy core, for many a piece of the matrix that stays in its second-level cache.
inline int64_t matmul_grain(int64_t n_groups, int64_t group_bytes, int64_t n_rows, int team_size) {
  constexpr int64_t kCacheBytes = 160 << 10;
  const int64_t fair = ceil_div(n_groups, team_size * int64_t{4});
  const int64_t fitting = std::max<int64_t>(1, kCacheBytes / std::max<int64_t>(1, group_bytes));
  return std::max<int64_t>(1, n_rows > 4 ? std::min(fair, fitting) : fair);
}

// Runs the products of `parts` over the activation rows; each rank calls it with the same chunks,
// which deal the row groups of all parts in sequence. After each piece, done(run) is called.
template <class Done>
void run_matmuls(const ExecContext& ctx, Chunks& chunks, std::initializer_list<MatmulPart> parts,
                 const ActRows& act, int64_t n_rows, Done done) {
  for (int64_t begin, end; chunks.next(begin, end);) {
    int64_t first = 0;
    for (const MatmulPart& part : parts) {
      const int64_t n_groups = row_groups(*part.w);
      const int64_t from = std::max(begin, first) - first;
      const int64_t to = std::min(end, first + n_groups) - first;
      first += n_groups;
      if (from >= to) continue;
      const MatmulJob job{part.w->data, part.w->rows, part.w->cols,    from, to, &act, 0,
                          n_rows,       part.out,     part.out_stride, 0};
      ctx.cpu->matmul_of (*part.w)(job);
      done(MatmulRun{&part, from, to});
    }
  }
}

}  // namespace fathom
