// SPDX-License-Identifier: Apache-2.0
// What the CUDA backend sees of a step: a name for every kernel, records that are whole, counters
// of known kernels, the loads behind a stall. A process can be watched in one way: each group of
// tests needs a process of its own (ctest gives every test one, scripts/gpu/trace.sh a group).
// FATHOM_TRACE_MODEL is watched instead of a tiny model, at FATHOM_TRACE_DEPTH. Skips where no GPU
// can be used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "backends/cuda/driver_calls.hpp"
#include "base/error.hpp"
#include "device/backend_loader.hpp"
#include "device/counters.hpp"
#include "device/graph_trace.hpp"
#include "device/owned.hpp"
#include "device/stalls.hpp"
#include "tests/support/engines.hpp"
#include "tests/support/raw_trace.hpp"
#include "tests/support/tiny_synth.hpp"

namespace fathom::test {
namespace {

using engine::Engine;
using engine::Sequence;
using testing::HasSubstr;

constexpr int64_t kVocab = 2048;
constexpr int kLayers = 2;

const Backend& cuda_backend() { return load_backend("cuda", ""); }

const char* model_path() { return std::getenv("FATHOM_TRACE_MODEL"); }

// Tokens before those of the steps.
int64_t depth() {
  const char* given = std::getenv("FATHOM_TRACE_DEPTH");
  return given ? std::atoll(given) : 200;
}

// Without a GPU, why there is none. Asked of another program, so that this one has not touched it.
std::string no_gpu() {
  if (std::system("nvidia-smi -L >/dev/null 2>&1") == 0) return "";
  return "nvidia-smi lists no GPU";
}

std::shared_ptr<Engine> open_engine() {
  OpenOptions options;
  options.backend = "cuda";
  options.n_ctx = 2048;
  if (model_path()) return Engine::open(model_path(), options);
  convert::SynthOptions model;
  model.shape = "qwen2.5-0.5b";
  model.type = "q4_k_m";
  model.n_layers = kLayers;
  model.vocab_size = kVocab;
  return Engine::open(tiny_synth(model), options);
}

// A sequence at a depth to which every step returns.
class Decoder {
 public:
  explicit Decoder(OpScopeSink* capture_sink) : engine_(open_engine()), sequence_(engine_) {
    engine_->runner().set_capture_sink(capture_sink);
    sequence_.prefill(teacher_tokens(depth(), kVocab), LogitsMode::skip);
    steps(2);  // op by op, which is captured then
  }
  void steps(int n) {
    for (int i = 0; i < n; ++i) {
      sequence_.step(1);
      sequence_.truncate(depth());
    }
    engine_->runner().synchronize();
  }
  double us_each(int n) {
    const auto start = std::chrono::steady_clock::now();
    steps(n);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
               .count() /
           n;
  }
  // The median of blocks, so that one interruption does not count.
  double median_us() {
    std::vector<double> blocks;
    for (int i = 0; i < 15; ++i) blocks.push_back(us_each(20));
    std::nth_element(blocks.begin(), blocks.begin() + 7, blocks.end());
    return blocks[7];
  }
  Engine& engine() { return *engine_; }

 private:
  std::shared_ptr<Engine> engine_;
  Sequence sequence_;
};

class CudaTrace : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_gpu(); !reason.empty()) GTEST_SKIP() << reason;
    source_ = &cuda_backend().trace_source();
  }
  TraceSource* source_ = nullptr;
};

struct Split {
  int64_t exclusive_ns = 0, gap_ns = 0, span_ns = 0, duration_ns = 0;
};

// Each nanosecond of the span belongs to the kernel that reaches furthest, or to a gap.
Split split(const TraceStep& step) {
  Split out;
  int64_t reached = step.records.front().start_ns;
  for (const TraceRecord& record : step.records) {
    out.gap_ns += std::max<int64_t>(0, record.start_ns - reached);
    out.exclusive_ns += std::max<int64_t>(0, record.end_ns - std::max(record.start_ns, reached));
    out.duration_ns += record.end_ns - record.start_ns;
    reached = std::max(reached, record.end_ns);
  }
  out.span_ns = reached - step.records.front().start_ns;
  return out;
}

void print_median(const TraceWindow& window) {
  std::vector<Split> steps;
  for (const TraceStep& step : window.steps) steps.push_back(split(step));
  std::sort(steps.begin(), steps.end(),
            [](const Split& a, const Split& b) { return a.span_ns < b.span_ns; });
  const Split& s = steps[steps.size() / 2];
  const auto us = [](int64_t ns) { return 1e-3 * static_cast<double>(ns); };
  std::printf("%zu kernels a step: durations %.1f us, exclusive %.1f, gaps %.1f, span %.1f\n",
              window.steps[0].records.size(), us(s.duration_ns), us(s.exclusive_ns), us(s.gap_ns),
              us(s.span_ns));
}

using Name = std::tuple<int, std::string, int, std::string>;
std::vector<Name> names_of(const TraceStep& step) {
  std::vector<Name> out;
  for (const TraceRecord& r : step.records) out.emplace_back(r.layer, r.op, r.ordinal, r.kernel);
  std::sort(out.begin(), out.end());
  return out;
}

TEST_F(CudaTrace, EveryKernelOfAStepHasAnOp) {
  Decoder decoder(&source_->scopes());
  const int n_steps = std::getenv("FATHOM_TRACE_RECORD") ? 5 : 101;
  source_->start();
  decoder.steps(n_steps);
  const TraceWindow window = source_->stop(n_steps);
  ASSERT_EQ(window.problem, "");
  EXPECT_EQ(window.n_lost + window.n_invalid, 0);
  ASSERT_EQ(window.steps.size(), static_cast<size_t>(n_steps));
  const int n_layers = decoder.engine().info().n_layers;
  std::map<std::string, std::set<int>> layers;
  for (const TraceStep& step : window.steps) {
    EXPECT_EQ(names_of(step), names_of(window.steps[0]));
    const Split times = split(step);
    EXPECT_EQ(times.exclusive_ns + times.gap_ns, times.span_ns);
    for (const TraceRecord& record : step.records) {
      layers[record.op].insert(record.layer);
      EXPECT_GT(record.grid[0], 0);
      EXPECT_GT(record.block[0], 0);
    }
  }
  for (const char* op : {"norm_qkv_rope_append", "attn", "out_proj_residual", "norm_gate_up_act",
                         "down_proj_residual"}) {
    EXPECT_EQ(layers[op].size(), static_cast<size_t>(n_layers)) << op;
    EXPECT_EQ(*layers[op].rbegin(), n_layers - 1) << op;
  }
  for (const char* op : {"begin_step", "embed", "norm_head"}) {
    EXPECT_EQ(layers[op], std::set<int>{-1}) << op;
  }
  print_median(window);
  if (const char* path = std::getenv("FATHOM_TRACE_RECORD")) {
    ASSERT_NE(source_->raw(), nullptr);
    std::ofstream(path) << dump_json(to_json(*source_->raw())) << "\n";
  }
}

TEST_F(CudaTrace, RecordsAreLaunchesWindowAfterWindow) {
  Decoder decoder(&source_->scopes());
  size_t n_kernels = 0;
  for (int round = 0; round < 10; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    decoder.steps(3);  // watched by nobody
    source_->start();
    decoder.steps(20);
    const TraceWindow window = source_->stop(20);
    ASSERT_EQ(window.problem, "") << "window " << round;
    ASSERT_EQ(window.steps.size(), 20u) << "window " << round;
    if (n_kernels == 0) n_kernels = window.steps[0].records.size();
    for (const TraceStep& step : window.steps) EXPECT_EQ(step.records.size(), n_kernels);
  }
}

// A short window's last kernel is over just before the window is, by a clock that is not its own.
TEST_F(CudaTrace, TheEndsOfAWindowHoldItsRecords) {
  Decoder decoder(&source_->scopes());
  for (int round = 0; round < 400; ++round) {
    source_->start();
    decoder.steps(2);
    ASSERT_EQ(source_->stop(2).problem, "") << "window " << round;
  }
}

TEST_F(CudaTrace, ACountThatIsNotWhatRanIsRefused) {
  Decoder decoder(&source_->scopes());
  source_->start();
  decoder.steps(3);
  EXPECT_THAT(source_->stop(4).problem, HasSubstr("3 steps were seen where 4 ran"));
}

// Last of its group: the engine is captured without names.
TEST_F(CudaTrace, GraphsWithoutNamesAreRefused) {
  Decoder decoder(nullptr);
  source_->start();
  decoder.steps(2);
  const TraceWindow window = source_->stop(2);
  EXPECT_GT(window.n_lost, 0);
  EXPECT_THAT(window.problem, HasSubstr("no op captured"));
}

// The three ways in processes of their own; scripts/gpu/trace.sh sets them side by side.
TEST_F(CudaTrace, TimeOfAStepKernelByKernel) {
  Decoder decoder(&source_->scopes());
  std::printf("us a step, traced kernel by kernel: %.2f\n", decoder.median_us());
}

class CudaUntraced : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_gpu(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_F(CudaUntraced, TimeOfAStep) {
  Decoder decoder(nullptr);
  std::printf("us a step, not traced: %.2f\n", decoder.median_us());
}

TEST_F(CudaUntraced, TimeOfAStepGraphByGraph) {
  if (!cuda::DriverCallCounter::available()) GTEST_SKIP() << "built without CUPTI";
  cuda::GraphTrace trace;
  Decoder decoder(nullptr);
  std::printf("us a step, traced graph by graph: %.2f\n", decoder.median_us());
  const cuda::GraphTimes times = trace.take();
  std::printf("us a graph: %.2f\n", 1e-3 * times.busy_ns / static_cast<double>(times.n_graphs));
}

TEST_F(CudaUntraced, AnotherSubscriberIsNamed) {
  if (!cuda::DriverCallCounter::available()) GTEST_SKIP() << "built without CUPTI";
  const cuda::DriverCallCounter other;
  try {
    cuda_backend().trace_source();
    FAIL() << "two subscribers";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_THAT(error.what(), HasSubstr("another profiler"));
    std::printf("%s\n", error.what());
  }
}

class CudaCounters : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_gpu(); !reason.empty()) GTEST_SKIP() << reason;
    source_ = &cuda_backend().counter_source();
  }
  double value(const CounterRun& run, const std::string& op, const std::string& name) {
    for (const OpCounters& found : run.ops) {
      if (found.op != op) continue;
      for (size_t i = 0; i < run.counters.size(); ++i) {
        if (run.counters[i].name == name) return found.values[i].value_or(-1);
      }
    }
    ADD_FAILURE() << op << " " << name;
    return -1;
  }
  CounterSource* source_ = nullptr;
};

void print(const CounterRun& run, size_t max_ops) {
  std::printf("%d passes, %zu ops %s\n", run.n_passes, run.ops.size(), run.problem.c_str());
  for (size_t op = 0; op < std::min(max_ops, run.ops.size()); ++op) {
    std::printf("%2d %s:", run.ops[op].layer, run.ops[op].op.c_str());
    for (size_t i = 0; i < run.counters.size(); ++i) {
      std::printf(" %s=%.6g", run.counters[i].name.c_str(), run.ops[op].values[i].value_or(-1));
    }
    std::printf("\n");
  }
}

// What is read once comes from DRAM, to the byte nearly; what was read before comes from the cache.
TEST_F(CudaCounters, ReadStreamReadsWhatItSays) {
  const DeviceApi& device = *cuda_backend().device;
  constexpr int64_t kCold = int64_t{1} << 30, kHot = int64_t{8} << 20;
  const Stream stream = make_stream(device);
  const Buffer data = make_buffer(device, kCold), sum = make_buffer(device, 8);
  std::vector<uint64_t> words(static_cast<size_t>(kCold / 8));
  std::iota(words.begin(), words.end(), uint64_t{0x9e3779b97f4a7c15});
  device.copy_to_device(data.get().data, words.data(), kCold, stream.get());
  const auto read = [&](const char* name, int64_t bytes) {
    source_->scopes().begin({name, -1}, {});
    device.read_stream(data.get().data, bytes, reinterpret_cast<uint64_t*>(sum.get().data),
                       stream.get());
    device.stream_synchronize(stream.get());
    source_->scopes().end();
  };
  const CounterRun run = source_->collect(source_->core(), [&] {
    read("cold", kCold);
    read("warming", kHot);
    read("hot", kHot);
  });
  print(run, 3);
  ASSERT_EQ(run.problem, "");
  ASSERT_EQ(run.ops.size(), 3u);
  EXPECT_NEAR(value(run, "cold", "dram_read_bytes"), kCold, 0.02 * kCold);
  EXPECT_LT(value(run, "hot", "dram_read_bytes"), 0.1 * kHot) << "nothing flushes the cache";
  EXPECT_GT(value(run, "cold", "ctas"), 100);
  EXPECT_GT(value(run, "cold", "warps_active_pct"), 10);
  EXPECT_GE(value(run, "cold", "sm_cycles_elapsed_max"),
            value(run, "cold", "sm_cycles_active_min"));
  for (const auto& set : {source_->cache(), source_->stalls()}) {
    const CounterRun more = source_->collect(set, [&] { read("cold", kCold); });
    print(more, 1);
    EXPECT_EQ(more.problem, "");
    EXPECT_EQ(more.ops.size(), 1u);
  }
}

TEST_F(CudaCounters, AStepIsCountedOpByOp) {
  Decoder decoder(nullptr);
  const auto step = [&] { decoder.steps(1); };
  decoder.engine().runner().set_sink(&source_->scopes());
  const CounterRun run = source_->collect(source_->core(), step);
  decoder.engine().runner().set_sink(nullptr);
  print(run, 12);
  ASSERT_EQ(run.problem, "");
  const size_t n_layers = static_cast<size_t>(decoder.engine().info().n_layers);
  EXPECT_EQ(run.ops.size(), 5 * n_layers + 3);
  double bytes = 0;
  for (const OpCounters& op : run.ops) {
    for (size_t i = 0; i < run.counters.size(); ++i) {
      if (run.counters[i].name == "dram_read_bytes") bytes += op.values[i].value_or(0);
    }
  }
  const CounterRun whole = source_->collect(source_->core(), [&] {
    source_->scopes().begin({"step", -1}, {});
    step();
    source_->scopes().end();
  });
  print(whole, 1);
  ASSERT_EQ(whole.problem, "");
  const double declared =
      static_cast<double>(decoder.engine().step_cost(depth(), 1, 1).memory_bytes());
  const double graph = value(whole, "step", "dram_read_bytes");
  std::printf("DRAM bytes: %.6g op by op, %.6g as one graph, %.6g declared\n", bytes, graph,
              declared);
  if (model_path()) {
    EXPECT_NEAR(bytes / declared, 1.05, 0.15);
    EXPECT_NEAR(graph / bytes, 1, 0.05);
  }
}

class CudaStalls : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_gpu(); !reason.empty()) GTEST_SKIP() << reason;
    source_ = &cuda_backend().stall_source();
  }
  StallSource* source_ = nullptr;
};

void print(const StallProfile& profile) {
  std::printf("%lld samples, %lld dropped, %lld foreign %s\n",
              static_cast<long long>(profile.n_samples), static_cast<long long>(profile.n_dropped),
              static_cast<long long>(profile.n_foreign), profile.problem.c_str());
  for (const KernelStalls& kernel : profile.kernels) {
    std::printf("%s: %lld", kernel.kernel.c_str(), static_cast<long long>(kernel.samples));
    for (size_t i = 0; i < std::min<size_t>(4, kernel.reasons.size()); ++i) {
      std::printf(" %s %lld", kernel.reasons[i].reason.c_str(),
                  static_cast<long long>(kernel.reasons[i].samples));
    }
    std::printf("\n");
    for (size_t i = 0; i < std::min<size_t>(5, kernel.places.size()); ++i) {
      const StalledPlace& at = kernel.places[i];
      std::printf("  +%#llx %s %s:%d %lld %s <-", static_cast<unsigned long long>(at.place.offset),
                  at.place.instruction.c_str(), at.place.file.c_str(), at.place.line,
                  static_cast<long long>(at.samples), at.reasons[0].reason.c_str());
      for (const CodePlace& from : at.producers) {
        std::printf(" +%#llx %s:%d", static_cast<unsigned long long>(from.offset),
                    from.instruction.c_str(), from.line);
      }
      std::printf(" %s\n", at.problem.c_str());
    }
  }
}

// It does nothing but load and add: it waits for its loads.
TEST_F(CudaStalls, ReadStreamWaitsForItsLoads) {
  const DeviceApi& device = *cuda_backend().device;
  constexpr int64_t kBytes = int64_t{1} << 30;
  const Stream stream = make_stream(device);
  const Buffer data = make_buffer(device, kBytes), sum = make_buffer(device, 8);
  const StallProfile profile = source_->sample("read_stream", 2, [&] {
    for (const char* name : {"read_stream", "other"}) {
      source_->scopes().begin({name, -1}, {});
      device.read_stream(data.get().data, kBytes, reinterpret_cast<uint64_t*>(sum.get().data),
                         stream.get());
      device.stream_synchronize(stream.get());
      source_->scopes().end();
    }
  });
  print(profile);
  ASSERT_EQ(profile.problem, "");
  ASSERT_EQ(profile.kernels.size(), 1u);
  const KernelStalls& kernel = profile.kernels[0];
  EXPECT_THAT(kernel.kernel, HasSubstr("read_stream"));
  ASSERT_FALSE(kernel.reasons.empty());
  EXPECT_EQ(kernel.reasons[0].reason, "long_scoreboard");
  const auto place = std::find_if(
      kernel.places.begin(), kernel.places.end(),
      [](const StalledPlace& at) { return at.reasons[0].reason == "long_scoreboard"; });
  ASSERT_NE(place, kernel.places.end());
  ASSERT_FALSE(place->producers.empty()) << place->problem;
  for (const CodePlace& from : place->producers) EXPECT_EQ(from.instruction, "LDG");
}

TEST_F(CudaStalls, AnOpOfAStep) {
  Decoder decoder(nullptr);
  decoder.engine().runner().set_sink(&source_->scopes());
  const StallProfile profile = source_->sample("attn", 3, [&] { decoder.steps(1); });
  decoder.engine().runner().set_sink(nullptr);
  print(profile);
  ASSERT_EQ(profile.problem, "");
  ASSERT_FALSE(profile.kernels.empty());
  EXPECT_THAT(profile.kernels[0].kernel, HasSubstr("attn"));
}

TEST(CudaWatching, WithoutADriverEachWaySaysSo) {
  if (no_gpu().empty()) GTEST_SKIP() << "there is a GPU";
  const Backend& backend = cuda_backend();
  EXPECT_THROW(backend.trace_source(), Error);
  EXPECT_THROW(backend.stall_source(), Error);
  try {
    const CounterRun run =
        backend.counter_source().collect(std::vector<std::string>{"time_ns"}, [] {});
    EXPECT_NE(run.problem, "");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable) << error.what();
  }
}

}  // namespace
}  // namespace fathom::test
