// SPDX-License-Identifier: Apache-2.0
// One context of execution a variant, over scratch that fits them all; evidence draw by draw; arms
// that run graphs or loops of launches.
#include "measure/probe.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.hpp"
#include "base/error.hpp"
#include "kernels/common/cpu_kernels.hpp"
#include "measure/clock.hpp"
#include "measure/read_bandwidth.hpp"
#include "measure/statistics.hpp"

namespace fathom::measure {
namespace {

constexpr int kRepeats = 10;
constexpr int kShortChain = 20, kLongChain = 100;
constexpr int kMostSets = kLongChain;
constexpr int kWatchedReplays = 5;
constexpr double kHostSampleUs = 1000;  // a host's sample takes about that long, or one launch

// Scratch and counters of the device, as an engine has them.
class Scratch {
 public:
  Scratch(const ProbeDevice& device, const ProbeOp& op, const std::vector<ProbeVariant>& variants)
      : device_(device) {
    int64_t bytes = 64;
    for (const ProbeVariant& v : variants) bytes = std::max(bytes, op.workspace_bytes(v.ops));
    workspace_ = make_buffer(device.api(), bytes);
    fill(workspace_, std::byte{0xff});
    if (device.api().shares_host_memory) return;
    counters_ = make_buffer(device.api(), kCounterBytes);
    fill(counters_, std::byte{0});
  }
  ExecContext context(const ProbeVariant& v) const {
    ExecContext ctx;
    ctx.stream.handle = device_.stream;
    ctx.pool = v.pool;
    ctx.cpu = v.cpu;
    ctx.workspace = {workspace_.get().data, workspace_.get().bytes};
    if (counters_) ctx.counters = {counters_.get().data, counters_.get().bytes};
    return ctx;
  }

 private:
  void fill(const Buffer& buffer, std::byte value) const {
    const std::vector<std::byte> bytes(static_cast<size_t>(buffer.get().bytes), value);
    device_.api().copy_to_device(buffer.get().data, bytes.data(), buffer.get().bytes,
                                 device_.stream);
    device_.api().stream_synchronize(device_.stream);
  }
  ProbeDevice device_;
  Buffer workspace_, counters_;
};

// What calls will find where they set nothing: below the frames that are there.
[[gnu::noinline]] void scribble_on_stack(unsigned char value) {
  volatile unsigned char below[1 << 16];
  for (volatile unsigned char& byte : below) byte = value;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

ProbeOutput run_once(ProbeOp& op, ExecContext& ctx, const OpTable& ops, ProbeRows rows) {
  op.reset();
  op.run(ctx, ops, 0, rows);
  return op.output(rows);
}

// The first draw tells also whether runs and batches matter.
void add_draw(BitEvidence& evidence, ProbeOp& op, ExecContext& ctx, const ProbeVariant& variant,
              int batch, bool is_first) {
  const ProbeRows all{0, batch};
  ProbeOutput first = run_once(op, ctx, variant.ops, all);
  std::string problem = first.problem;
  if (problem.empty()) problem = op.tolerance_problem(first.values);
  for (int i = 1; i < (is_first ? kRepeats : 2); ++i) {
    evidence.repeats &= same_bits(run_once(op, ctx, variant.ops, all).values, first.values);
  }
  const auto width = static_cast<size_t>(op.width());
  for (int row = 0; row < batch && batch > 1 && is_first; ++row) {
    const ProbeOutput alone = run_once(op, ctx, variant.ops, {row, 1});
    if (problem.empty()) problem = alone.problem;
    evidence.batch_invariant &= same_bits(
        alone.values, std::span(first.values).subspan(static_cast<size_t>(row) * width, width));
  }
  if (evidence.problem.empty()) evidence.problem = problem;
  evidence.outputs.push_back(std::move(first.values));
}

// Microseconds of launches on a device, or of calls on a host.
class Stopwatch {
 public:
  explicit Stopwatch(const ProbeDevice& device) : device_(device) {
    if (device.api().shares_host_memory) return;
    start_ = make_event(device.api());
    stop_ = make_event(device.api());
  }
  template <class Fn>
  double us(const Fn& fn) {
    if (device_.api().shares_host_memory) {
      const int64_t start = now_ns();
      fn();
      return static_cast<double>(now_ns() - start) * 1e-3;
    }
    device_.api().event_record(start_.get(), device_.stream);
    fn();
    device_.api().event_record(stop_.get(), device_.stream);
    device_.api().stream_synchronize(device_.stream);
    return device_.api().event_elapsed_us(start_.get(), stop_.get());
  }

 private:
  ProbeDevice device_;
  Event start_, stop_;
};

// Reads other bytes than the operands', three caches of them.
class Flush {
 public:
  Flush(const ProbeDevice& device, int64_t cache_bytes)
      : device_(device), bytes_((3 * cache_bytes + (1 << 20) - 1) >> 20 << 20) {
    if (device.api().shares_host_memory) {
      host_.resize(static_cast<size_t>(bytes_ / 8), 1);
      return;
    }
    buffer_ = make_buffer(device.api(), bytes_);
    sum_ = make_buffer(device.api(), sizeof(uint64_t));
  }
  int64_t bytes() const { return bytes_; }
  void run() {
    const DeviceApi& api = device_.api();
    auto* const sum = reinterpret_cast<uint64_t*>(sum_.get().data);
    if (api.shares_host_memory) {
      for (size_t i = 0; i < host_.size(); i += 8) host_sum_ = host_sum_ + host_[i];
    } else if (api.read_cached) {  // read_stream lets its lines go before those of others
      api.read_cached(buffer_.get().data, bytes_, 1, sum, device_.stream);
    } else if (api.read_stream) {
      api.read_stream(buffer_.get().data, bytes_, sum, device_.stream);
    }
  }

 private:
  ProbeDevice device_;
  int64_t bytes_;
  std::vector<uint64_t> host_;
  volatile uint64_t host_sum_ = 0;
  Buffer buffer_, sum_;
};

// A variant's launches over sets 0..n-1, or n over set 0.
class Chain {
 public:
  // The sink, which may be null, is told of each call while it is captured, as of a layer's op.
  Chain(const ProbeDevice& device, ProbeOp& op, ExecContext ctx, const ProbeVariant& variant,
        int batch, ProbeMemory memory, int n, OpScopeSink* sink = nullptr)
      : device_(device), n_(n) {
    const auto launches = [&op, &variant, ctx, batch, memory, n, sink] {
      ExecContext own = ctx;
      for (int i = 0; i < n; ++i) {
        const OpScope scope(sink, {"probed", i}, Cost{});
        op.run(own, variant.ops, memory == ProbeMemory::cold ? i : 0, {0, batch});
      }
    };
    if (device.backend.has_graphs) {
      graph_ = capture_graph(device.api(), device.stream, launches);
    } else {
      launches_ = launches;
    }
  }
  int n() const { return n_; }
  void run() {
    if (graph_) {
      device_.api().graph_launch(graph_.get(), device_.stream);
    } else {
      launches_();
    }
  }

 private:
  ProbeDevice device_;
  int n_;
  Graph graph_;
  std::function<void()> launches_;
};

// One arm: how long a launch takes.
class Timing {
 public:
  Timing(std::unique_ptr<Chain> few, std::unique_ptr<Chain> many, ProbeMemory memory,
         Stopwatch& watch, Flush& flush)
      : few_(std::move(few)),
        many_(std::move(many)),
        memory_(memory),
        watch_(watch),
        flush_(flush) {}
  double us() {
    if (!few_) return time(*many_) / many_->n();
    const double few_us = time(*few_);
    return (time(*many_) - few_us) / (many_->n() - few_->n());
  }

 private:
  double time(Chain& chain) {
    if (memory_ == ProbeMemory::cold) {
      flush_.run();
    } else {
      (few_ ? *few_ : chain).run();  // brings its set into the cache
    }
    return watch_.us([&] { chain.run(); });
  }
  std::unique_ptr<Chain> few_, many_;  // `few` where a chain has a cost of its own
  ProbeMemory memory_;
  Stopwatch& watch_;
  Flush& flush_;
};

// Everything that the arms of one size share.
class TimedOp {
 public:
  TimedOp(const std::string& name, const ProbeInput& input,
          const std::vector<ProbeVariant>& variants, const ProbeDevice& device,
          const ProbeOptions& options)
      : input_(input),
        device_(device),
        op_(make_probe_op(name, input, device)),
        scratch_(device, *op_, variants),
        watch_(device),
        flush_(device, options.cache_bytes) {
    const int64_t set_bytes = std::max<int64_t>(1, op_->set_bytes());
    rotation_.n_sets =
        static_cast<int>(std::clamp<int64_t>(options.budget_bytes / set_bytes, 2, kMostSets));
    rotation_.set_bytes = set_bytes;
    rotation_.cache_bytes = options.cache_bytes;
    // Activations are the same for all sets, as a step's are still in the cache.
    rotation_.distinct_bytes = flush_.bytes() + (rotation_.n_sets - 1) * op_->cost().memory_bytes();
    if (std::ranges::find(options.memories, ProbeMemory::cold) != options.memories.end())
      op_->make_sets(rotation_.n_sets);
    op_->reset();
  }
  const ProbeRotation& rotation() const { return rotation_; }
  Cost cost() const { return op_->cost(); }

  // Also loads the variant's kernels.
  std::vector<KernelLaunch> kernels(const ProbeVariant& variant) {
    ExecContext ctx = scratch_.context(variant);
    const auto once = [&] { op_->run(ctx, variant.ops, 0, {0, input_.size.batch}); };
    if (device_.api().watch_launches) return device_.api().watch_launches(once);
    once();
    return {};
  }
  // Captured over a stack of zeros, and once more over one of ones.
  ProbedCall nodes(const ProbeVariant& variant) {
    if (!device_.api().watch_captures || !device_.backend.has_graphs) return {};
    scribble_on_stack(0);
    std::vector<KernelLaunch> first = captured(variant);
    scribble_on_stack(0xff);
    return {std::move(first), captured(variant)};
  }
  std::vector<KernelLaunch> captured(const ProbeVariant& variant) {
    const auto graphs = device_.api().watch_captures([&] {
      Chain(device_, *op_, scratch_.context(variant), variant, input_.size.batch, ProbeMemory::hot,
            1);
    });
    FATHOM_CHECK(graphs.size() == 1, "a chain is one graph");
    return graphs.front();
  }
  // Windows of one replay each: of operands in the cache, or once that was filled with others.
  std::vector<TraceWindow> watch(const ProbeVariant& variant, ProbeMemory memory,
                                 TraceSource& source) {
    Chain chain(device_, *op_, scratch_.context(variant), variant, input_.size.batch, memory,
                launches(variant, memory), &source.scopes());
    chain.run();
    std::vector<TraceWindow> out;
    for (int i = 0; i < kWatchedReplays; ++i) {
      if (memory == ProbeMemory::cold) flush_.run();
      device_.api().stream_synchronize(device_.stream);
      source.start();
      chain.run();
      device_.api().stream_synchronize(device_.stream);
      out.push_back(source.stop(1));
    }
    return out;
  }
  int launches(const ProbeVariant& variant, ProbeMemory memory) {
    if (device_.backend.has_graphs)
      return memory == ProbeMemory::cold ? rotation_.n_sets : kLongChain;
    ExecContext ctx = scratch_.context(variant);
    const double us = watch_.us([&] { op_->run(ctx, variant.ops, 0, {0, input_.size.batch}); });
    const int most = memory == ProbeMemory::cold ? rotation_.n_sets : 10'000;
    return std::clamp(static_cast<int>(kHostSampleUs / std::max(us, 0.1)), 1, most);
  }
  std::unique_ptr<Timing> timing(const ProbeVariant& variant, ProbeMemory memory, int n) {
    const auto chain = [&](int length) {
      return std::make_unique<Chain>(device_, *op_, scratch_.context(variant), variant,
                                     input_.size.batch, memory, length);
    };
    std::unique_ptr<Chain> few;
    if (device_.backend.has_graphs) few = chain(std::max(1, n * kShortChain / kLongChain));
    return std::make_unique<Timing>(std::move(few), chain(n), memory, watch_, flush_);
  }

 private:
  const ProbeInput& input_;
  ProbeDevice device_;
  std::unique_ptr<ProbeOp> op_;
  Scratch scratch_;
  Stopwatch watch_;
  Flush flush_;
  ProbeRotation rotation_;
};

std::string arm_name(const ProbeArm& arm, const std::vector<ProbeVariant>& variants) {
  return variants[static_cast<size_t>(arm.variant)].name + (arm.again ? " again " : " ") +
         probe_memory_name(arm.memory);
}

}  // namespace

const char* probe_memory_name(ProbeMemory memory) {
  return memory == ProbeMemory::hot ? "hot" : "cold";
}

std::vector<BitEvidence> probe_bits(const std::string& op_name, const ProbeInput& input,
                                    const std::vector<ProbeVariant>& variants,
                                    const ProbeDevice& device) {
  std::vector<BitEvidence> out(variants.size());
  for (int draw = 0; draw < kProbeDraws; ++draw) {
    ProbeInput drawn = input;
    drawn.draw = draw;
    const std::unique_ptr<ProbeOp> op = make_probe_op(op_name, drawn, device);
    const Scratch scratch(device, *op, variants);
    for (size_t i = 0; i < variants.size(); ++i) {
      ExecContext ctx = scratch.context(variants[i]);
      out[i].width = op->width();
      add_draw(out[i], *op, ctx, variants[i], input.size.batch, draw == 0);
    }
  }
  return out;
}

std::span<const double> ProbeTimes::us(int variant, ProbeMemory memory, bool again) const {
  for (size_t i = 0; i < arms.size(); ++i) {
    const ProbeArm& arm = arms[i];
    if (arm.variant == variant && arm.memory == memory && arm.again == again)
      return rounds.values[i];
  }
  return {};
}

std::vector<KernelTimes> kernel_times(const std::vector<TraceWindow>& windows) {
  std::vector<KernelTimes> out;
  for (const TraceWindow& window : windows) {
    if (!window.problem.empty() || window.n_lost > 0 || window.n_invalid > 0) {
      fail(ErrorCode::untrusted, "the records of a chain of launches are not whole: {}",
           window.problem);
    }
    for (const TraceStep& step : window.steps) {
      int64_t end = 0;
      for (const TraceRecord& record : step.records) {
        const auto ordinal = static_cast<size_t>(record.ordinal);
        if (out.size() <= ordinal) out.resize(ordinal + 1);
        out[ordinal].kernel = record.kernel;
        const int64_t own = record.end_ns - std::max(record.start_ns, end);
        out[ordinal].us.push_back(static_cast<double>(std::max<int64_t>(0, own)) * 1e-3);
        end = std::max(end, record.end_ns);
      }
    }
  }
  return out;
}

std::vector<CallTimes> probe_kernels(const std::string& op, const ProbeInput& input,
                                     const std::vector<ProbeVariant>& variants,
                                     const ProbeDevice& device, TraceSource& source,
                                     const ProbeOptions& options) {
  FATHOM_CHECK(device.backend.has_graphs, "kernels are watched in graphs");
  TimedOp timed(op, input, variants, device, options);
  std::vector<CallTimes> out;
  for (size_t i = 0; i < variants.size(); ++i) {
    timed.kernels(variants[i]);  // loads them
    for (const ProbeMemory memory : options.memories) {
      out.push_back(
          {static_cast<int>(i), memory, kernel_times(timed.watch(variants[i], memory, source))});
    }
  }
  return out;
}

ProbeTimes probe_times(const std::string& op, const ProbeInput& input,
                       const std::vector<ProbeVariant>& variants, const ProbeDevice& device,
                       const ProbeCeilings& ceilings, const ProbeOptions& options) {
  TimedOp timed(op, input, variants, device, options);
  ProbeTimes out;
  out.cost = timed.cost();
  out.rotation = timed.rotation();
  for (const ProbeVariant& variant : variants) {
    out.kernels.push_back(timed.kernels(variant));
    out.nodes.push_back(timed.nodes(variant));
  }
  std::vector<std::unique_ptr<Timing>> timings;
  std::vector<Arm> arms;
  for (const ProbeMemory memory : options.memories) {
    for (int i = -1; i < static_cast<int>(variants.size()); ++i) {
      const ProbeArm arm{.variant = std::max(i, 0), .again = i < 0, .memory = memory};
      const ProbeVariant& variant = variants[static_cast<size_t>(arm.variant)];
      const int n = timed.launches(variant, memory);
      (memory == ProbeMemory::hot ? out.hot_launches : out.cold_launches) = n;
      timings.push_back(timed.timing(variant, memory, n));
      arms.push_back({arm_name(arm, variants), [t = timings.back().get()] { return t->us(); }});
      out.arms.push_back(arm);
    }
  }
  const size_t n_timed = arms.size();
  if (ceilings.memory) arms.push_back({"ceiling", ceilings.memory});
  if (ceilings.cached) arms.push_back({"cached_ceiling", ceilings.cached});
  for (size_t i = 0; i < n_timed; ++i) arms[i].run();  // warm
  out.rounds = run_rounds(arms, {.n_rounds = options.n_rounds,
                                 .seed = options.seed,
                                 .cancel = options.cancel,
                                 .progress = [&](int done, int total) {
                                   if (options.progress)
                                     options.progress(static_cast<double>(done) / total);
                                 }});
  if (ceilings.memory) out.memory_gbps = out.rounds.values[n_timed];
  if (ceilings.cached) out.cached_gbps = out.rounds.values[n_timed + (ceilings.memory ? 1 : 0)];
  return out;
}

}  // namespace fathom::measure
