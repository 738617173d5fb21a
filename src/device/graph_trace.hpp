// SPDX-License-Identifier: Apache-2.0
// From what a device reports of graph replays to the steps of a TraceWindow: which op a graph's
// node belongs to, known from the scopes open while the graph was captured, and whether the records
// are whole. Free of any device's library, so that recorded streams can be judged anywhere.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/op_scope.hpp"
#include "device/trace.hpp"

namespace fathom {

struct NodeName {
  std::string op;
  int layer = -1;
  int ordinal = 0;
};

// Node ids are what the device gives: the graph in the upper 32 bits, a number that an executable
// graph keeps for its nodes in the lower.
class NodeNames : public OpScopeSink {
 public:
  void begin(const OpTag& tag, const Cost& cost) override;
  void end() override;
  // A kernel node appeared in a graph; without an op in progress it is nobody's.
  void created(uint64_t node);
  void instantiated(uint32_t graph, uint32_t executable);

  const NodeName* find(uint32_t executable, uint64_t node) const;
  // Kernel nodes of an executable graph; 0 for one that was not captured here.
  int64_t size(uint32_t executable) const;
  // By executable graph and by the lower half of the node's id.
  using Graphs = std::map<uint32_t, std::map<uint32_t, NodeName>>;
  const Graphs& executables() const { return executables_; }
  void restore(Graphs executables) { executables_ = std::move(executables); }

 private:
  std::optional<NodeName> open_;  // the ordinal is the next
  Graphs captured_, executables_;
};

// A kernel as a device reports it.
struct KernelRecord {
  uint64_t launch = 0;  // what submitted it: the kernels of one replay share it
  uint64_t node = 0;    // 0: it was not part of a graph
  uint32_t executable = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::string kernel;
  std::array<int, 3> grid{}, block{};
  int64_t shared_bytes = 0;
  int registers = 0;
};

// All that came in between start and stop, as it came.
struct RawTrace {
  NodeNames::Graphs executables;
  std::vector<KernelRecord> records;
  int64_t n_dropped = 0;  // as the device counts them
  int n_steps = 0;        // that ran
  // Of the host's clock, to which the device's times were brought: no record lies outside.
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::string problem;  // met while recording
};

// Records in order of time, split into steps. What is wrong with the window is counted and said.
TraceWindow judge(const RawTrace& raw);

}  // namespace fathom
