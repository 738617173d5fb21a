// SPDX-License-Identifier: Apache-2.0
// The first step of a bucket runs op by op and is captured afterwards: what a device loads when a
// kernel is first launched cannot be loaded inside a capture.
#include "engine/step_graph.hpp"

#include <algorithm>
#include <bit>

#include "base/checked.hpp"
#include "model/decode_step.hpp"

namespace fathom::engine {
namespace {

bool same(const StepState& a, const StepState& b) {
  return a.n_rows == b.n_rows && a.n_out == b.n_out && a.max_pages == b.max_pages &&
         a.token == b.token && a.pos == b.pos && a.slot == b.slot && a.out_row == b.out_row &&
         a.page_table == b.page_table;
}

}  // namespace

int64_t StepGraph::bucket(int64_t n_rows, int64_t max_rows) {
  constexpr int64_t kStride = 32;
  const int64_t padded = n_rows <= kStride
                             ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n_rows)))
                             : static_cast<int64_t>(round_up(n_rows, kStride));
  return std::min(padded, max_rows);
}

void StepGraph::run(const StepContext& step, OpScopeSink* capture_sink) {
  void* const stream = step.exec.stream.handle;
  const auto found = std::find_if(captured_.begin(), captured_.end(), [&](const Captured& known) {
    return known.draws == (step.draw != nullptr) && same(known.state, step.state);
  });
  if (found != captured_.end()) {
    step.device.graph_launch(found->graph.get(), stream);
    ++n_replays_;
    return;
  }
  decode_step(step);
  StepContext recorded = step;
  recorded.cancel = nullptr;
  recorded.sink = capture_sink;
  recorded.captured = true;
  captured_.push_back({step.state, step.draw != nullptr,
                       capture_graph(step.device, stream, [&] { decode_step(recorded); })});
  ++n_captures_;
}

}  // namespace fathom::engine
