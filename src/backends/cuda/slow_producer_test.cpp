// SPDX-License-Identifier: Apache-2.0
// Every op of a step behind a kernel that lets it start at once and writes late: what the op reads
// is poisoned until then, and what it writes, its scratch included, is poisoned then. So a load or
// a store above the wait for the kernel before shows in the bits of the result. 100,000 launches
// over all ops; the time until the writes goes from nothing to longer than anything an op does
// before its wait.
#include "backends/cuda/slow_producer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/step_ops.hpp"

namespace fathom {
namespace {

using namespace test;

constexpr int kIterations = 100000;  // over all ops but those on a deep cache
constexpr int kLongest = 60000;      // clocks
constexpr int kClocks[] = {0, 500, 2000, 5000, 10000, 20000, 40000, kLongest};

class Chain {
 public:
  std::vector<cuda::ProducerPart> bad, late;
  std::vector<cuda::ResultPart> results;
  std::function<void()> launch;

  // Looks at the launch before, then goes once through the chain.
  void run(int clocks, unsigned* n_wrong, void* stream) const {
    cuda::launch_check_and_spoil(results, bad, n_wrong, stream);
    cuda::launch_slow_producer(late, clocks, stream);
    launch();
  }
};

class SlowProducer : public StepOpTest {
 protected:
  // Words that were wrong in so many launches.
  unsigned count_wrong(const Chain& chain, int n_launches) {
    const DeviceArray<unsigned> wrong = upload(std::vector(2, 0u));
    void* const s = stream().get();
    chain.run(kLongest, wrong.get() + 1, s);  // what stood there before is of no interest
    const Graph graph = capture_graph(api(), stream(), [&] {
      for (const int clocks : kClocks) chain.run(clocks, wrong.get(), s);
    });
    const int n_clocks = static_cast<int>(std::size(kClocks));
    for (int i = 0; i < (n_launches + n_clocks - 1) / n_clocks; ++i) {
      api().graph_launch(graph.get(), s);
    }
    cuda::launch_check_and_spoil(chain.results, {}, wrong.get(), s);
    return download(wrong)[0];
  }
};

TEST_P(SlowProducer, OpsWaitForTheKernelBefore) {
  const StepOp op = make();
  prepare(op);
  op.launch();
  const std::vector<std::vector<std::byte>> expected = results(op);
  Chain chain;
  chain.launch = op.launch;
  for (const StepInput& in : op.inputs) {
    const int64_t bytes = static_cast<int64_t>(in.good.size());
    chain.bad.push_back({in.at, hold(in.bad), bytes});
    chain.late.push_back({in.at, hold(in.good), bytes});
  }
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const StepOutput& out = op.outputs[i];
    chain.results.push_back({out.at, hold(expected[i]), out.bytes});
    const bool in_place = std::any_of(op.inputs.begin(), op.inputs.end(),
                                      [&](const StepInput& in) { return in.at == out.at; });
    if (!in_place) chain.late.push_back({out.at, nullptr, out.bytes});
  }
  // Scratch belongs to the kernels before until they have ended.
  constexpr int64_t kMostScratch = 256 << 10;  // one block writes it
  const int64_t scratch = std::min(ctx().workspace.bytes, kMostScratch) / 4 * 4;
  if (scratch > 0) chain.late.push_back({ctx().workspace.data, nullptr, scratch});
  // One block writes the inputs: a deep cache takes it a millisecond.
  const auto is_deep = [](const StepOpCase& c) { return c.kv_len > 10000; };
  const auto n_ops = static_cast<int>(std::ranges::count_if(kStepOpCases, std::not_fn(is_deep)));
  const int n_launches = is_deep(GetParam()) ? 160 : (kIterations + n_ops - 1) / n_ops;
  EXPECT_EQ(count_wrong(chain, n_launches), 0u);
  EXPECT_TRUE(counters_are_zero());
}

INSTANTIATE_TEST_SUITE_P(Ops, SlowProducer, testing::ValuesIn(kStepOpCases),
                         [](const auto& test) { return std::string(test.param.name); });

// The stress finds a kernel that reads too early, and does not find one that waits.
using SlowProducerItself = SlowProducer;
TEST_P(SlowProducerItself, FindsALoadAboveTheWait) {
  constexpr int kValues = 1024;
  const std::vector<float> good = uniform_values(kValues, -1, 1, 3);
  std::vector<float> doubled = good;
  for (float& x : doubled) x *= 2.0f;
  const std::vector<float> zeros(kValues, 0.0f);
  float* const in = hold(zeros);
  float* const out = hold(zeros);
  const auto bytes = [](const float* x) { return reinterpret_cast<const std::byte*>(x); };
  constexpr int64_t kBytes = kValues * 4;
  auto* in_bytes = reinterpret_cast<std::byte*>(in);
  auto* out_bytes = reinterpret_cast<std::byte*>(out);
  Chain chain;
  chain.bad = {{in_bytes, nullptr, kBytes}};
  chain.late = {{in_bytes, bytes(hold(good)), kBytes}, {out_bytes, nullptr, kBytes}};
  chain.results = {{out_bytes, bytes(hold(doubled)), kBytes}};
  for (const bool is_early : {false, true}) {
    chain.launch = [&] { cuda::launch_reader(is_early, in, out, kValues, stream().get()); };
    const unsigned wrong = count_wrong(chain, 800);
    if (is_early) {
      EXPECT_GT(wrong, 0u) << "a kernel that reads before it waits was not found";
    } else {
      EXPECT_EQ(wrong, 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixture, SlowProducerItself, testing::Values(kStepOpCases[0]),
                         [](const auto&) { return std::string("reader"); });

}  // namespace
}  // namespace fathom
