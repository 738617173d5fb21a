// SPDX-License-Identifier: Apache-2.0
// The GPU draws the CPU's token: the same cases as the host's test of the chain, vocabularies
// around the blocks' sizes and of real models, penalty and bias, errors in the same words. Times
// are recorded as properties, the scratch is of the planned size and poisoned.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "kernels/common/cpu_kernels.hpp"
#include "kernels/common/cxx20.cuh"
#include "kernels/sample/sample.hpp"
#include "kernels/sample/sample_cases.hpp"
#include "tests/support/cuda_fixture.hpp"

namespace fathom {
namespace {

constexpr int64_t kLargeVocab = 152064;

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
      sample_cpu(host, {s, &c.params, bias, history, c.position, c.logits.data(), token});
    });
  }
  Answer by_gpu(const SampleCase& c) {
    const auto logits = upload(c.logits);
    const SampleArgs::Static s{logits.size()};
    if (ctx().workspace.bytes != workspace_bytes_cuda(s)) use_workspace(workspace_bytes_cuda(s));
    return answer([&](int32_t* token) {
      sample_cuda(ctx(), {s, &c.params, bias, history, c.position, logits.get(), token});
    });
  }

  std::vector<LogitBias> bias;
  std::vector<int32_t> history;

 private:
  std::vector<std::byte> host_memory_;
};

TEST_F(SampleCuda, DrawsTheCpusToken) {
  for (uint32_t seed = 0; seed < 600; ++seed) {
    const SampleCase c = random_case(seed);
    ASSERT_EQ(by_gpu(c), by_cpu(c)) << "case " << seed << ": " << describe(c);
  }
}

TEST_F(SampleCuda, SanitizedCases) {
  for (uint32_t seed = 1000; seed < 1040; ++seed) {
    const SampleCase c = random_case(seed);
    ASSERT_EQ(by_gpu(c), by_cpu(c)) << "case " << seed << ": " << describe(c);
  }
}

TEST_F(SampleCuda, DrawsTheCpusTokenFromALargeVocabulary) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
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
          for (c.position = 0; c.position < 20; ++c.position) {
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
      for (uint32_t seed = 0; seed < 10; ++seed) {
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
        if (i % 20000 != 7) c.logits[i] = -INFINITY;
      }
      c.params = {.temperature = 1.0f, .top_k = top_k, .top_p = top_p};
      for (c.position = 0; c.position < 10; ++c.position) {
        const Answer got = by_gpu(c);
        ASSERT_EQ(got, by_cpu(c)) << describe(c);
        ASSERT_EQ(got.token % 20000, 7);
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

// Whole calls, with both copies and the wait.
TEST_F(SampleCuda, TimesOfALargeVocabulary) {
  const std::vector<float> host_logits = case_logits(0, kLargeVocab, 1);
  const auto logits = upload(host_logits);
  const SampleArgs::Static s{kLargeVocab};
  use_workspace(workspace_bytes_cuda(s));
  struct Timed {
    const char* name;
    SamplerParams params;
  };
  for (const Timed& t : {Timed{"greedy", {}}, Timed{"temperature", {.temperature = 1.0f}},
                         Timed{"top_k_40", {.temperature = 1.0f, .top_k = 40}},
                         Timed{"top_p_0.9", {.temperature = 0.3f, .top_p = 0.9f}},
                         Timed{"min_p_0.05", {.temperature = 1.0f, .min_p = 0.05f}},
                         Timed{"all",
                               {.temperature = 0.7f,
                               .top_k = 40,
                               .top_p = 0.9f,
                               .min_p = 0.05f,
                               .repeat_penalty = 1.1f}}}) {
    constexpr int kCalls = 50;
    int32_t token = -1;
    const auto call = [&](int64_t position) {
      sample_cuda(ctx(), {s, &t.params, bias, history, position, logits.get(), &token});
    };
    for (int i = 0; i < 5; ++i) call(i);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call(i);
    const std::chrono::duration<double, std::micro> elapsed =
        std::chrono::steady_clock::now() - start;
    RecordProperty(std::string("us_per_call_") + t.name, std::to_string(elapsed.count() / kCalls));
    EXPECT_LT(elapsed.count() / kCalls, 5000) << t.name;
  }
}

}  // namespace
}  // namespace fathom
