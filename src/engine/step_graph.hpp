// SPDX-License-Identifier: Apache-2.0
// Decode steps as graphs of the device. A decode step has one row of each of several sequences; it
// is padded to its bucket, captured once, and replayed at any depth, since all that changes from
// step to step stands in the StepState's arrays.
#pragma once

#include <cstdint>
#include <vector>

#include "device/owned.hpp"
#include "model/step_plan.hpp"

namespace fathom::engine {

class StepGraph {
 public:
  // Rows of the step that serves n_rows: 1, 2, 4, 8, 16, 32, then multiples of 32; at most
  // max_rows.
  static int64_t bucket(int64_t n_rows, int64_t max_rows);

  // Runs hop 6 of the tour, decode_step, for a state padded to its bucket. Baked into a graph are
  // the plan, which is always the same, what StepState holds (its counts and its pointers), and
  // whether tokens are drawn; how they are drawn is not. The sink, which may be null, is told of
  // the ops while they are captured.
  void run(const StepContext& step, OpScopeSink* capture_sink);

  // What runs from now on is captured anew. REQUIRES: no replay is on its way.
  void forget() { captured_.clear(); }

  int64_t n_captures() const { return n_captures_; }
  int64_t n_replays() const { return n_replays_; }

 private:
  struct Captured {
    StepState state;
    bool draws;
    Graph graph;
  };
  std::vector<Captured> captured_;
  int64_t n_captures_ = 0;
  int64_t n_replays_ = 0;
};

}  // namespace fathom::engine
