// SPDX-License-Identifier: Apache-2.0
// The GPU draws the CPU's token: the same cases as the host's test of the chain, vocabularies
// around the blocks' sizes and of real models, penalty and bias, errors in the same words. Times
// are recorded as properties, the scratch is of the planned size and poisoned.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/finite.hpp"
#include "kernels/common/cpu_kernels.hpp"
#include "kernels/common/cxx20.cuh"
#include "kernels/sample/draw.hpp"
#include "kernels/sample/logits_sum.hpp"
#include "kernels/sample/sample.hpp"
#include "kernels/sample/sample_cases.hpp"
#include "tensor/step_ring.hpp"
#include "tests/support/cuda_fixture.hpp"
#include "tests/support/emulated.hpp"

namespace fathom {
namespace {

using test::kIsEmulated;

constexpr int64_t kLargeVocab = kIsEmulated ? 9000 : 152064;
constexpr uint32_t kShare = kIsEmulated ? 20 : 1;  // one case of so many is run

std::string describe(const SampleCase& c) {
  return "vocabulary " + std::to_string(c.logits.size()) + ", temperature " +
         std::to_string(c.params.temperature) + ", top_k " + std::to_string(c.params.top_k) +
         ", top_p " + std::to_string(c.params.top_p) + ", min_p " + std::to_string(c.params.min_p) +
         ", seed " + std::to_string(c.params.seed) + ", position " + std::to_string(c.position);
}

class SampleCuda : public test::CudaTest {
 protected:
  struct Answer {
    int32_t token = -1;
    std::string error;
    bool operator==(const Answer&) const = default;
    friend std::ostream& operator<<(std::ostream& out, const Answer& a) {
      return out << "token " << a.token << (a.error.empty() ? "" : ", error: ") << a.error;
    }
  };
  template <class Op>
  static Answer answer(const Op& op) {
    Answer out;
    try {
      op(&out.token);
    } catch (const Error& error) {
      out.error = error.what();
    }
    return out;
  }

  Answer by_cpu(const SampleCase& c) {
    const SampleArgs::Static s{static_cast<int64_t>(c.logits.size())};
    host_memory_.resize(static_cast<size_t>(workspace_bytes_cpu(s) + 64));
    ExecContext host;
    host.cpu = available_cpu_kernels().front();
    const auto address = reinterpret_cast<uintptr_t>(host_memory_.data());
    host.workspace = {host_memory_.data() + (64 - address % 64) % 64, workspace_bytes_cpu(s)};
    return answer([&](int32_t* token) {
      const int64_t position = history.empty() ? c.position : static_cast<int64_t>(history.size());
      sample_cpu(host, {s, &c.params, bias, history, position, c.logits.data(), token});
    });
  }
  Answer by_gpu(const SampleCase& c) { return by_gpu(std::vector<SampleCase>{c})[0]; }
  // Of cases of one vocabulary, each a row, between rows from which nothing is drawn.
  std::vector<Answer> by_gpu(const std::vector<SampleCase>& cases) {
    std::vector<DrawRequest> requests;
    std::vector<float> logits;
    std::vector<LogitBias> by_token = bias;
    std::stable_sort(by_token.begin(), by_token.end(),
                     [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; });
    const auto bias_d = upload(by_token);
    for (size_t i = 0; i < cases.size(); ++i) {
      const SampleCase& c = cases[i];
      DrawRequest r = request_of(c, static_cast<int32_t>(i));
      r.bias = bias_d.get();
      requests.push_back(r);
      logits.insert(logits.end(), c.logits.begin(), c.logits.end());
      if (cases.size() == 1) continue;
      requests.push_back({});
      logits.insert(logits.end(), c.logits.size(), NAN);
    }
    DrawOp op(*this, std::move(requests), logits);
    op.run(ctx());
    std::vector<Answer> out;
    const int stride = cases.size() == 1 ? 1 : 2;
    for (size_t i = 0; i < cases.size(); ++i) {
      const Drawn drawn = op.drawn(static_cast<int64_t>(i) * stride);
      out.push_back(answer([&](int32_t* token) {
        validate(bias, static_cast<int64_t>(cases[i].logits.size()));
        if (drawn.status != DrawStatus::ok) fail_without_finite_logit(drawn.largest);
        *token = drawn.token;
      }));
      EXPECT_EQ(drawn.logits_sum, logits_sum(cases[i].logits));
      EXPECT_EQ(drawn.any_not_finite != 0, !all_finite(cases[i].logits));
      if (out.back().error.empty()) {
        EXPECT_EQ(op.newest(static_cast<int64_t>(i)), drawn.token);
      }
    }
    EXPECT_TRUE(op.counters_are_zero());
    return out;
  }
  DrawRequest request_of(const SampleCase& c, int32_t slot) const {
    return {.seed = c.params.seed,
            .position = history.empty() ? c.position : static_cast<int64_t>(history.size()),
            .n_bias = static_cast<int32_t>(bias.size()),
            .slot = slot,
            .temperature = c.params.temperature,
            .top_p = c.params.top_p,
            .min_p = c.params.min_p,
            .repeat_penalty = history.empty() ? 1.0f : c.params.repeat_penalty,
            .top_k = c.params.top_k,
            .repeat_last_n = c.params.repeat_last_n,
            .is_wanted = 1};
  }

  // The op with its memory; the answer lies in the third place of the ring.
  class DrawOp {
   public:
    DrawOp(SampleCuda& test, std::vector<DrawRequest> requests, const std::vector<float>& logits)
        : test_(test),
          requests_(test.upload(requests)),
          logits_(test.upload(logits)),
          n_steps_(test.upload(std::vector<int64_t>{kStepRing + 3})),
          newest_(test.poisoned<int32_t>(requests_.size())),
          counters_(test.upload(std::vector<std::byte>(kCounterBytes))) {
      const int64_t n = requests_.size();
      std::vector<int32_t> histories;
      for (int64_t i = 0; i < n; ++i) {
        histories.insert(histories.end(), test.history.begin(), test.history.end());
      }
      history_ = test.upload(histories);
      drawn_ = make_host_buffer(api(), kStepRing * n * static_cast<int64_t>(sizeof(Drawn)));
      args_ = {.s = {logits_.size() / n, static_cast<int64_t>(test.history.size()), n},
               .n_rows = static_cast<int32_t>(n),
               .requests = requests_.get(),
               .logits = logits_.get(),
               .history = history_.get(),
               .n_steps = n_steps_.get(),
               .newest = newest_.get(),
               .drawn = reinterpret_cast<Drawn*>(drawn_.get().data)};
      const int64_t bytes = workspace_bytes_draw_cuda(args_.s);
      if (test.ctx().workspace.bytes != bytes) test.use_workspace(bytes);
      test.ctx().counters = {counters_.get(), kCounterBytes};
    }
    void run(ExecContext& ctx) {
      draw_cuda(ctx, args_);
      test_.synchronize();
    }
    const DrawArgs& args() const { return args_; }
    const test::DeviceArray<DrawRequest>& requests() const { return requests_; }
    Drawn drawn(int64_t row) const { return args_.drawn[2 * args_.s.max_draws + row]; }
    int32_t newest(int64_t slot) const {
      return test_.download(newest_)[static_cast<size_t>(slot)];
    }
    bool counters_are_zero() const {
      const std::vector<std::byte> bytes = test_.download(counters_);
      return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{}; });
    }

   private:
    template <class T>
    using DeviceArray = test::DeviceArray<T>;
    SampleCuda& test_;
    DeviceArray<DrawRequest> requests_;
    DeviceArray<float> logits_;
    DeviceArray<int64_t> n_steps_;
    DeviceArray<int32_t> newest_, history_;
    DeviceArray<std::byte> counters_;
    HostBuffer drawn_;
    DrawArgs args_{};
  };

  std::vector<LogitBias> bias;
  std::vector<int32_t> history;

 private:
  std::vector<std::byte> host_memory_;
};

TEST_F(SampleCuda, DrawsTheCpusToken) {
  for (uint32_t seed = 0; seed < 600; seed += kShare) {
    const SampleCase c = random_case(seed);
    ASSERT_EQ(by_gpu(c), by_cpu(c)) << "case " << seed << ": " << describe(c);
  }
}

TEST_F(SampleCuda, SanitizedCases) {
  for (uint32_t seed = 1000; seed < 1040; seed += kShare) {
    const SampleCase c = random_case(seed);
    ASSERT_EQ(by_gpu(c), by_cpu(c)) << "case " << seed << ": " << describe(c);
  }
}

TEST_F(SampleCuda, DrawsTheCpusTokenFromALargeVocabulary) {
  for (uint32_t seed = 0; seed < 60; seed += kShare) {
    const SampleCase c = random_case(seed, kLargeVocab);
    ASSERT_EQ(by_gpu(c), by_cpu(c)) << "case " << seed << ": " << describe(c);
  }
}

TEST_F(SampleCuda, GreedyTakesTheLowestIdAmongTies) {
  for (const int64_t n : {int64_t{1}, int64_t{31}, int64_t{255}, int64_t{256}, int64_t{257},
                          int64_t{1023}, int64_t{1025}, kLargeVocab}) {
    for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
      SampleCase c;
      c.logits.assign(static_cast<size_t>(n), -3.0f);
      c.logits[static_cast<size_t>(at)] = 2.0f;
      c.logits[static_cast<size_t>(n - 1)] = 2.0f;
      EXPECT_EQ(by_gpu(c).token, at) << "vocabulary " << n;
    }
  }
  SampleCase c;
  c.logits = {NAN, -0.0f, 0.0f, -INFINITY};
  EXPECT_EQ(by_gpu(c).token, 1) << "zeros of both signs are a tie, NaN never wins";
}

// One combination of filters each, over many positions.
TEST_F(SampleCuda, EveryCombinationOfFilters) {
  for (const int kind : {0, 1, 4}) {
    const std::vector<float> logits = case_logits(kind, 3000, 5);
    for (const int32_t top_k : {0, 50, 1500}) {
      for (const float top_p : {1.0f, 0.95f}) {
        for (const float min_p : {0.0f, 0.01f}) {
          SampleCase c;
          c.logits = logits;
          c.params = {.temperature = 0.9f, .top_k = top_k, .top_p = top_p, .min_p = min_p};
          for (c.position = 0; c.position < 20; c.position += kShare) {
            ASSERT_EQ(by_gpu(c), by_cpu(c)) << "kind " << kind << ", " << describe(c);
          }
        }
      }
    }
  }
}

TEST_F(SampleCuda, PenaltyAndBias) {
  for (const size_t n : {size_t{40}, size_t{300}, static_cast<size_t>(kLargeVocab)}) {
    for (const float temperature : {0.0f, 0.8f}) {
      for (uint32_t seed = 0; seed < 10; seed += kIsEmulated ? 4 : 1) {
        SampleCase c;
        c.logits = case_logits(static_cast<int>(seed % 2), n, seed);
        c.params = {.temperature = temperature,
                    .top_k = seed % 3 == 0 ? 20 : 0,
                    .repeat_penalty = seed % 2 ? 1.4f : 0.7f,
                    .repeat_last_n = seed % 4 == 0 ? -1 : 64,
                    .seed = seed};
        std::mt19937 random(seed);
        history.clear();
        bias.clear();
        for (int i = 0; i < 100; ++i) {
          history.push_back(static_cast<int32_t>(random() % n));
          // Out of order, and some tokens more than once.
          bias.push_back({static_cast<int32_t>(random() % n),
                          static_cast<float>(random() % 100) * 0.03f - 1.0f});
        }
        if (seed == 9) bias.push_back({static_cast<int32_t>(n - 1), -INFINITY});
        ASSERT_EQ(by_gpu(c), by_cpu(c)) << "seed " << seed << ", " << describe(c);
      }
    }
  }
}

// All but a few tokens forbidden, as a grammar does it: everything else ties at -inf.
TEST_F(SampleCuda, NearlyAllTokensForbidden) {
  for (const int32_t top_k : {0, 40}) {
    for (const float top_p : {1.0f, 0.9f}) {
      SampleCase c;
      c.logits = case_logits(0, kLargeVocab, 3);
      for (size_t i = 0; i < c.logits.size(); ++i) {
        if (i % (kLargeVocab / 8) != 7) c.logits[i] = -INFINITY;
      }
      c.params = {.temperature = 1.0f, .top_k = top_k, .top_p = top_p};
      for (c.position = 0; c.position < 10; c.position += kShare) {
        const Answer got = by_gpu(c);
        ASSERT_EQ(got, by_cpu(c)) << describe(c);
        ASSERT_EQ(got.token % (kLargeVocab / 8), 7);
      }
    }
  }
}

TEST_F(SampleCuda, SaysWhatTheCpuSaysWhenNothingCanBeDrawn) {
  for (const float bad : {-INFINITY, INFINITY, NAN}) {
    for (const float temperature : {0.0f, 1.0f}) {
      for (const int32_t top_k : {0, 5}) {
        SampleCase c;
        c.logits.assign(300, bad == INFINITY ? 1.0f : bad);
        c.logits[7] = bad;
        c.params.temperature = temperature;
        c.params.top_k = top_k;
        const Answer got = by_gpu(c);
        EXPECT_EQ(got, by_cpu(c)) << describe(c);
        EXPECT_NE(got.error, "");
      }
    }
  }
  SampleCase c;
  c.logits.assign(10, 1.0f);
  bias = {{10, 1.0f}};
  EXPECT_EQ(by_gpu(c), by_cpu(c));
  EXPECT_NE(by_gpu(c).error, "");
}

// Rows of one step ask for different things, some for nothing.
TEST_F(SampleCuda, RowsDoNotMeet) {
  for (const size_t n : {size_t{300}, size_t{5000}, static_cast<size_t>(kLargeVocab)}) {
    for (uint32_t round = 0; round < (kIsEmulated ? 1u : n == 5000 ? 20u : 4u); ++round) {
      std::vector<SampleCase> cases;
      for (uint32_t row = 0; row < (kIsEmulated ? 4 : 16); ++row)
        cases.push_back(random_case(100 * round + row, n));
      const std::vector<Answer> got = by_gpu(cases);
      for (size_t row = 0; row < cases.size(); ++row) {
        ASSERT_EQ(got[row], by_cpu(cases[row])) << "row " << row << ": " << describe(cases[row]);
      }
    }
  }
}

// One graph serves whatever the requests ask.
TEST_F(SampleCuda, AGraphFollowsTheRequests) {
  constexpr size_t kVocab = 5000;
  const std::vector<float> logits = case_logits(0, kVocab, 4);
  DrawOp op(*this, {DrawRequest{}}, logits);
  op.run(ctx());  // nothing is loaded inside a capture
  const Graph graph = capture_graph(api(), stream(), [&] { draw_cuda(ctx(), op.args()); });
  for (uint32_t seed = 0; seed < 100; seed += kShare) {
    SampleCase c = random_case(seed, kVocab);
    c.logits = logits;
    const DrawRequest request = request_of(c, 0);
    api().copy_to_device(op.requests().get(), &request, sizeof request, stream().get());
    api().graph_launch(graph.get(), stream().get());
    synchronize();
    ASSERT_EQ(op.drawn(0).token, by_cpu(c).token) << describe(c);
  }
}

// The launches alone, in a graph as a step has them.
TEST_F(SampleCuda, TimesOfALargeVocabulary) {
  if (kIsEmulated) GTEST_SKIP() << "nothing to time";
  struct Timed {
    const char* name;
    SamplerParams params;
  };
  const std::vector<float> logits = case_logits(0, kLargeVocab, 1);
  for (const Timed& t :
       {Timed{"greedy", {}}, Timed{"temperature", {.temperature = 1.0f}},
        Timed{"top_k_40", {.temperature = 1.0f, .top_k = 40}},
        Timed{"top_p_0.9", {.temperature = 0.3f, .top_p = 0.9f}},
        Timed{"top_p_0.9_of_many", {.temperature = 3.0f, .top_p = 0.9f}},
        Timed{"min_p_0.05", {.temperature = 1.0f, .min_p = 0.05f}},
        Timed{"all", {.temperature = 0.7f, .top_k = 40, .top_p = 0.9f, .min_p = 0.05f}}}) {
    constexpr int kCalls = 50;
    SampleCase c;
    c.params = t.params;
    DrawOp op(*this, {request_of(c, 0)}, logits);
    op.run(ctx());
    const Graph graph = capture_graph(api(), stream(), [&] {
      for (int i = 0; i < kCalls; ++i) draw_cuda(ctx(), op.args());
    });
    const Event start = make_event(api()), stop = make_event(api());
    for (int repeat = 0; repeat < 2; ++repeat) {
      api().event_record(start.get(), stream().get());
      api().graph_launch(graph.get(), stream().get());
      api().event_record(stop.get(), stream().get());
      synchronize();
    }
    const double us = api().event_elapsed_us(start.get(), stop.get()) / kCalls;
    RecordProperty(std::string("us_per_draw_") + t.name, std::to_string(us));
    std::printf("draw from %d logits, %s: %.2f us\n", static_cast<int>(kLargeVocab), t.name, us);
    EXPECT_LT(us, 5000) << t.name;
  }
}

}  // namespace
}  // namespace fathom
