// SPDX-License-Identifier: Apache-2.0
// draw: sampling as an op of a step, on a device with memory of its own. What is asked for lies in
// device memory, so that a captured step serves any parameters; the chain and its numbers are those
// of sample.hpp. Beside the token it answers what the host would have needed the logits for.
#pragma once

#include <cstdint>

#include "fathom/sampling.hpp"
#include "kernels/exec_context.hpp"
#include "tensor/kv_view.hpp"  // FATHOM_HD
#include "tensor/step_state.hpp"

namespace fathom {

// What is asked of one row of logits.
struct DrawRequest {
  uint64_t seed = 0;
  int64_t position = 0;             // of the token to be drawn: the random stream's counter
  const LogitBias* bias = nullptr;  // [n_bias] on the device; entries of a token stand together
  int32_t n_bias = 0;
  int32_t slot = 0;  // whose history is looked back at
  float temperature = 0, top_p = 1, min_p = 0, repeat_penalty = 1;
  int32_t top_k = 0, repeat_last_n = 0;
  int32_t is_wanted = 0;  // 0 = nothing is drawn from this row
  int32_t reserved = 0;
};
static_assert(sizeof(DrawRequest) == 64);

enum class DrawStatus : int32_t { ok, no_finite_logit, needs_sort };

// The answer, in host memory.
struct Drawn {
  int32_t token = -1;
  DrawStatus status = DrawStatus::ok;  // ok or no_finite_logit
  float largest = 0;                   // logit, after penalty and bias
  uint32_t any_not_finite = 0;         // of the logits before them
  uint64_t logits_sum = 0;             // of those, as in logits_sum.hpp
};

struct DrawArgs {
  struct Static {
    int64_t vocab_size;
    int64_t n_ctx;      // of a slot's history
    int64_t max_draws;  // rows of one step that a token is drawn from
  } s;
  int32_t n_rows;
  const DrawRequest* requests;  // [n_rows]
  const float* logits;          // [n_rows, vocab_size]
  const int32_t* history;       // [n_slots, n_ctx] tokens by position
  const int64_t* n_steps;       // begun so far, this one included
  int32_t* newest;              // [n_slots] out: the token, or 0 where none can be drawn
  Drawn* drawn;                 // [kStepRing, max_draws] out, host memory, page-locked
};

// Tokens of `history` before the request's position that the penalty looks back at.
FATHOM_HD inline int64_t window_length(const DrawRequest& r) {
  if (r.repeat_penalty == 1.0f) return 0;
  const bool all = r.repeat_last_n < 0 || r.repeat_last_n > r.position;
  return all ? r.position : r.repeat_last_n;
}

Cost cost(const DrawArgs::Static& s, const StepShape& shape);
int64_t workspace_bytes_draw_cuda(const DrawArgs::Static& s);
void draw_ref(ExecContext& ctx, const DrawArgs& args);
void draw_cuda(ExecContext& ctx, const DrawArgs& args);

}  // namespace fathom
