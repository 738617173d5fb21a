// SPDX-License-Identifier: Apache-2.0
// The kernels of one replay share their launch; a replay must have all of its graph's nodes, each
// once, and there must be as many replays as steps ran.
#include "device/graph_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/check.hpp"

namespace fathom {
namespace {

uint32_t upper(uint64_t node) { return static_cast<uint32_t>(node >> 32); }
uint32_t lower(uint64_t node) { return static_cast<uint32_t>(node); }

// What is wrong with a record's times; empty: nothing.
std::string fault_of(const KernelRecord& record, const RawTrace& raw) {
  const auto microseconds = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  if (record.start_ns <= 0 || record.end_ns <= 0) return "has no times";
  if (record.end_ns == record.start_ns) return "takes no time";
  if (record.end_ns < record.start_ns) {
    return fmt::format("ends {:.1f} µs before it starts",
                       microseconds(record.start_ns - record.end_ns));
  }
  if (record.start_ns < raw.begin_ns) {
    return fmt::format("starts {:.1f} µs before the window",
                       microseconds(raw.begin_ns - record.start_ns));
  }
  if (record.end_ns > raw.end_ns) {
    return fmt::format("ends {:.1f} µs after the window", microseconds(record.end_ns - raw.end_ns));
  }
  return "";
}

std::string described(const KernelRecord& record, const NodeNames& names) {
  const NodeName* const name = names.find(record.executable, record.node);
  if (!name) return record.kernel;
  return name->layer < 0 ? name->op : fmt::format("{} of layer {}", name->op, name->layer);
}

TraceRecord named(const KernelRecord& from, const NodeName& name) {
  return {.op = name.op,
          .layer = name.layer,
          .ordinal = name.ordinal,
          .kernel = from.kernel,
          .start_ns = from.start_ns,
          .end_ns = from.end_ns,
          .grid = from.grid,
          .block = from.block,
          .shared_bytes = from.shared_bytes,
          .registers = from.registers};
}

// What is wrong with a window, in the order in which it is said.
struct Faults {
  int64_t outside_graphs = 0, unnamed = 0, missing = 0, repeated = 0;
  std::string first_invalid;  // which record, and what is wrong with it

  std::string text(const TraceWindow& window, const RawTrace& raw) const {
    std::string out;
    const auto add = [&](int64_t n, std::string_view what) {
      if (n > 0) out += fmt::format("{}{} {}", out.empty() ? "" : "; ", n, what);
    };
    add(raw.n_dropped, "records were dropped by the device");
    add(window.n_invalid, fmt::format("records have impossible times: {}", first_invalid));
    add(missing, "kernels of the graphs have no record");
    add(repeated, "records name a node that its replay has had already");
    add(unnamed, "records name a node that no op captured");
    add(outside_graphs, "kernels ran outside the graphs");
    if (static_cast<int64_t>(window.steps.size()) != raw.n_steps) {
      out += fmt::format("{}{} steps were seen where {} ran", out.empty() ? "" : "; ",
                         window.steps.size(), raw.n_steps);
    }
    return out;
  }
};

// The records of one launch.
void add_step(std::vector<const KernelRecord*> records, const NodeNames& names, TraceWindow& window,
              Faults& faults) {
  std::sort(records.begin(), records.end(),
            [](const KernelRecord* a, const KernelRecord* b) { return a->start_ns < b->start_ns; });
  TraceStep step;
  std::set<uint64_t> seen;
  for (const KernelRecord* record : records) {
    const NodeName* name = names.find(record->executable, record->node);
    if (!name) {
      ++faults.unnamed;
    } else if (!seen.insert(record->node).second) {
      ++faults.repeated;
    } else {
      step.records.push_back(named(*record, *name));
    }
  }
  if (step.records.empty()) return;
  faults.missing +=
      names.size(records.front()->executable) - static_cast<int64_t>(step.records.size());
  window.steps.push_back(std::move(step));
}

}  // namespace

void NodeNames::begin(const OpTag& tag, const Cost&) {
  FATHOM_CHECK(!open_, "an op began inside another one");
  open_ = NodeName{tag.op, tag.layer, 0};
}

void NodeNames::end() { open_.reset(); }

void NodeNames::created(uint64_t node) {
  if (!open_) return;
  captured_[upper(node)][lower(node)] = *open_;
  ++open_->ordinal;
}

void NodeNames::instantiated(uint32_t graph, uint32_t executable) {
  const auto found = captured_.find(graph);
  if (found == captured_.end()) return;
  executables_[executable] = std::move(found->second);
  captured_.erase(found);
}

const NodeName* NodeNames::find(uint32_t executable, uint64_t node) const {
  const auto graph = executables_.find(executable);
  if (graph == executables_.end()) return nullptr;
  const auto name = graph->second.find(lower(node));
  return name == graph->second.end() ? nullptr : &name->second;
}

int64_t NodeNames::size(uint32_t executable) const {
  const auto graph = executables_.find(executable);
  return graph == executables_.end() ? 0 : static_cast<int64_t>(graph->second.size());
}

TraceWindow judge(const RawTrace& raw) {
  NodeNames names;
  names.restore(raw.executables);
  TraceWindow window;
  Faults faults;
  std::map<uint64_t, std::vector<const KernelRecord*>> launches;
  for (const KernelRecord& record : raw.records) {
    if (record.node == 0) {
      ++faults.outside_graphs;
    } else {
      if (const std::string fault = fault_of(record, raw); !fault.empty()) {
        if (window.n_invalid++ == 0) faults.first_invalid = described(record, names) + " " + fault;
      }
      launches[record.launch].push_back(&record);
    }
  }
  for (auto& [launch, records] : launches) add_step(std::move(records), names, window, faults);
  std::sort(window.steps.begin(), window.steps.end(), [](const TraceStep& a, const TraceStep& b) {
    return a.records.front().start_ns < b.records.front().start_ns;
  });
  window.n_lost =
      raw.n_dropped + faults.missing + faults.repeated + faults.unnamed + faults.outside_graphs;
  window.problem = raw.problem.empty() ? faults.text(window, raw) : raw.problem;
  return window;
}

}  // namespace fathom
