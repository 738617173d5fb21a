// SPDX-License-Identifier: Apache-2.0
// begin_step: takes what the host wrote for a step to the device, before all other ops. It is part
// of a captured step: the device counts its steps and so finds the place of the ring that the host
// wrote, without an argument that changes.
//   rows, requests = inbox[n_steps % kStepRing];  n_steps += 1
//   a token of -1 becomes the newest one drawn for the row's slot
//   history[slot][pos] = token
// A row with pos = -1 fills up a bucket and leaves no history.
#pragma once

#include <cstdint>

#include "kernels/exec_context.hpp"

namespace fathom {

struct BeginStepArgs {
  struct Static {
    int64_t n_ctx;          // of a slot's history
    int64_t place_bytes;    // from one place of the inbox to the next
    int64_t max_rows;       // requests lie behind that many rows
    int64_t request_bytes;  // of one row's request; a multiple of 4
  } s;
  int32_t n_rows;
  int32_t n_requests;      // rows of requests; 0 = none are looked at
  const std::byte* inbox;  // [kStepRing][4*max_rows int32, requests] host memory, page-locked
  int64_t* n_steps;        // begun so far
  int32_t* rows;           // out: token, pos, slot, out_row, [n_rows] each
  std::byte* requests;     // out: [n_requests, request_bytes]
  const int32_t* newest;   // [n_slots] tokens drawn last
  int32_t* history;        // [n_slots, n_ctx] out

  // Of the requests in a place of the inbox.
  static int64_t requests_offset(int64_t max_rows) {
    return (4 * max_rows * static_cast<int64_t>(sizeof(int32_t)) + 63) / 64 * 64;
  }
};

void begin_step_ref(ExecContext& ctx, const BeginStepArgs& args);
void begin_step_cuda(ExecContext& ctx, const BeginStepArgs& args);

}  // namespace fathom
