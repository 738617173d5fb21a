// SPDX-License-Identifier: Apache-2.0
// From the formula, row by row.
#include "kernels/begin_step/begin_step.hpp"

#include <cstring>

#include "tensor/step_ring.hpp"

namespace fathom {

void begin_step_ref(ExecContext&, const BeginStepArgs& args) {
  const BeginStepArgs::Static& s = args.s;
  const std::byte* place = args.inbox + *args.n_steps % kStepRing * s.place_bytes;
  *args.n_steps += 1;
  const int64_t n = args.n_rows;
  std::memcpy(args.rows, place, static_cast<size_t>(4 * n) * sizeof(int32_t));
  std::memcpy(args.requests, place + BeginStepArgs::requests_offset(s.max_rows),
              static_cast<size_t>(args.n_requests * s.request_bytes));
  for (int64_t row = 0; row < n; ++row) {
    const int32_t pos = args.rows[n + row], slot = args.rows[2 * n + row];
    if (args.rows[row] < 0) args.rows[row] = args.newest[slot];
    if (pos >= 0) args.history[slot * s.n_ctx + pos] = args.rows[row];
  }
}

}  // namespace fathom
