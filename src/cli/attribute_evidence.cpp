// SPDX-License-Identifier: Apache-2.0
// The children of the evidence, and what they send through the pipe.
#include "cli/attribute_evidence.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "cli/child_process.hpp"
#include "cli/watched_model.hpp"
#include "device/backend_loader.hpp"
#include "measure/clock.hpp"
#include "measure/host_counters.hpp"
#include "measure/quiet_steps.hpp"

namespace fathom::cli {
namespace {

constexpr const char* kCounters = "counters";
constexpr const char* kStalls = "stalls:";
constexpr int kSampledSteps = 3;
constexpr int kHostSteps = 4;  // that are counted at each anchor
constexpr int kEagerRounds = 10;
constexpr int kEagerSteps = 4;  // of a block, behind one that leads in

std::vector<std::string> names_in(std::string text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    out.push_back(text.substr(0, comma));
    text.erase(0, comma + 1);
  }
  return out;
}

std::string with_commas(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ",") + name;
  return out;
}

// Between which launches of the process each op lies.
class LaunchScopes : public OpScopeSink {
 public:
  explicit LaunchScopes(const DeviceApi& device)
      : device_(device), before_(device.kernel_launches()) {}
  void begin(const OpTag& tag, const Cost&) override {
    ops_.push_back({tag.op, device_.kernel_launches() - before_, 0});
  }
  void end() override { ops_.back().end = device_.kernel_launches() - before_; }

  std::vector<measure::OpLaunch> named(const std::vector<KernelLaunch>& launches) const {
    std::vector<measure::OpLaunch> out;
    for (const Op& op : ops_) {
      for (int64_t i = op.begin; i < std::min<int64_t>(op.end, std::ssize(launches)); ++i) {
        add(out, {op.name, launches[static_cast<size_t>(i)]});
      }
    }
    return out;
  }

 private:
  struct Op {
    std::string name;
    int64_t begin, end;
  };
  // Layers repeat each other.
  static void add(std::vector<measure::OpLaunch>& out, const measure::OpLaunch& launch) {
    const bool known = std::any_of(out.begin(), out.end(), [&](const measure::OpLaunch& other) {
      return other.op == launch.op && other.launch.kernel == launch.launch.kernel &&
             other.launch.grid == launch.launch.grid && other.launch.block == launch.launch.block;
    });
    if (!known) out.push_back(launch);
  }

  const DeviceApi& device_;
  int64_t before_;
  std::vector<Op> ops_;
};

std::vector<measure::OpLaunch> launches_of(Model& model, ModelProgram& program,
                                           const DeviceApi& device) {
  if (!device.watch_launches || !device.kernel_launches) return {};
  LaunchScopes scopes(device);
  const Watched watched(model, &scopes);
  return scopes.named(device.watch_launches([&] { program.step(1); }));
}

measure::Counted count(CounterSource& source, Model& model, ModelProgram& program,
                       const DeviceApi& device) {
  measure::Counted out;
  out.launches = launches_of(model, program, device);
  const std::vector<std::string> names = measure::evidence_counters();
  const Watched watched(model, &source.scopes());
  for (size_t depth : {size_t{0}, size_t{1}}) {
    program.step(depth);  // the caches hold what a step leaves
    out.runs[depth] = source.collect(names, [&] { program.step(depth); });
  }
  return out;
}

measure::Sampled sample(StallSource& source, const std::vector<std::string>& ops, Model& model,
                        ModelProgram& program) {
  measure::Sampled out;
  const Watched watched(model, &source.scopes());
  for (const std::string& op : ops) {
    out.ops[op] = source.sample(op, kSampledSteps, [&] { program.step(1); });
  }
  return out;
}

// What a child sent, or why it sent nothing.
template <class Run, class Read>
Run received(const std::vector<std::string>& arguments, const std::string& what,
             const std::string& name, const Read& read) {
  Run out;
  const ChildResult child = run_child(arguments, {kEvidenceChildFlag, what});
  if (child.status != 0) {
    out.problem = fmt::format("the process that {} ended with status {}", name, child.status);
    return out;
  }
  try {
    return read(parse_json(child.text, "what the process that " + name + " sent"));
  } catch (const Error& error) {
    out.problem = error.what();
    return out;
  }
}

}  // namespace

measure::Counted count_on_host(Model& model, ModelProgram& program, size_t n_depths) {
  measure::Counted out;
  measure::HostCounters counters(measure::linux_perf_calls());
  out.problem = counters.why();
  if (!counters.usable()) return out;
  const Watched watched(model, &counters);
  for (const int anchor : {0, 1}) {
    const size_t depth = anchor == 0 ? 0 : n_depths - 1;
    program.step(depth);  // the caches hold what a step leaves
    counters.take(1);
    for (int i = 0; i < kHostSteps; ++i) program.step(depth);
    out.runs[anchor] = counters.take(kHostSteps);
  }
  return out;
}

EvidenceRuns evidence_in_children(const std::vector<std::string>& arguments,
                                  const std::vector<std::string>& ops) {
  EvidenceRuns out;
  if (ops.empty()) {
    out.counted.problem = out.sampled.problem = "no op grows";
    return out;
  }
  out.counted =
      received<measure::Counted>(arguments, kCounters, "counts", measure::counted_from_json);
  out.sampled = received<measure::Sampled>(arguments, kStalls + with_commas(ops), "samples stalls",
                                           measure::sampled_from_json);
  return out;
}

EvidenceSource::EvidenceSource(const std::string& what, const CommonFlags& common) {
  const bool stalls = what.starts_with(kStalls);
  if (!stalls && what != kCounters) {
    fail(ErrorCode::usage, "{} {}: expected {}, or {} and names of ops", kEvidenceChildFlag, what,
         kCounters, kStalls);
  }
  if (stalls) ops_ = names_in(what.substr(std::string(kStalls).size()));
  const Backend& library = load_backend(common.backend, common.backend_dir);
  const bool offered = stalls ? library.stall_source != nullptr : library.counter_source != nullptr;
  if (!offered) {
    problem_ = fmt::format("the backend {} offers no {}", common.backend,
                           stalls ? "samples of stalls" : "counters");
    return;
  }
  try {
    if (stalls) {
      stalls_ = &library.stall_source();
    } else {
      counters_ = &library.counter_source();
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unavailable) throw;
    problem_ = error.what();
  }
}

Json EvidenceSource::watch(Model& model, ModelProgram& program, const DeviceApi& device) const {
  if (stalls_) return measure::sampled_json(sample(*stalls_, ops_, model, program));
  return measure::counted_json(count(*counters_, model, program, device));
}

Json EvidenceSource::nothing() const {
  if (!ops_.empty()) {
    measure::Sampled sampled;
    sampled.problem = problem_;
    return measure::sampled_json(sampled);
  }
  measure::Counted counted;
  counted.problem = problem_;
  return measure::counted_json(counted);
}

measure::EagerSteps EagerSamples::quiet() const {
  return {{measure::quiet_mean(steps_ns[0]), measure::quiet_mean(steps_ns[1])}};
}

std::optional<EagerSamples> time_eager_steps(Model& model, ModelProgram& program, size_t n_depths) {
  if (model.step_counters().graph_replays == 0) return std::nullopt;
  struct OneByOne {
    Model& model;
    explicit OneByOne(Model& of) : model(of) { model.set_graph_replay(false); }
    ~OneByOne() { model.set_graph_replay(true); }
  } const one_by_one(model);
  EagerSamples out;
  for (int round = 0; round < kEagerRounds; ++round) {
    for (const int anchor : {0, 1, 1, 0}) {
      const size_t depth = anchor == 0 ? 0 : n_depths - 1;
      program.step(depth);
      for (int i = 0; i < kEagerSteps; ++i) {
        const int64_t start = measure::now_ns();
        program.step(depth);
        out.steps_ns[anchor].push_back(measure::now_ns() - start);
      }
    }
  }
  return out;
}

}  // namespace fathom::cli
