// SPDX-License-Identifier: Apache-2.0
// Everything that changes from step to step, in arrays that live on the backend's device. A row is
// one token of one sequence in this step; prefill has many rows of one sequence, a decode batch one
// row of each. Rows of one sequence stand together in ascending position. A decode step that is
// replayed as a graph is filled up to its batch bucket with rows of token 0, slot 0 and pos -1,
// behind all others: ops write nothing to the cache for them and nobody reads their results.
#pragma once

#include <cstdint>

namespace fathom {

struct StepState {
  int32_t n_rows;             // rows, with those that fill up a bucket
  int32_t n_out;              // rows whose logits are wanted
  int32_t max_pages;          // stride of page_table
  const int32_t* token;       // [n_rows] token ids
  const int32_t* pos;         // [n_rows] position in the row's sequence, -1 = no row
  const int32_t* slot;        // [n_rows] slot of the row's sequence
  const int32_t* out_row;     // [n_out] rows whose logits are wanted, ascending
  const int32_t* page_table;  // [max_seqs, max_pages] physical page of each page of a slot

  const int32_t* pages_of(int32_t row) const { return page_table + int64_t{slot[row]} * max_pages; }
};

// What a host mirror knows of a step, for cost formulas.
struct StepShape {
  int64_t n_rows;  // those of sequences
  int64_t n_out;
  int64_t kv_tokens;       // cached tokens read: once per sequence, the step's own included
  int64_t attended_pairs;  // sum over rows of the tokens each attends to
};

}  // namespace fathom
