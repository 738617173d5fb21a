// SPDX-License-Identifier: Apache-2.0
// The device's sampling chain, run on the host block by block in any order of blocks, by one thread
// and by several, draws the token that sample_ref draws: logits with ties, infinities and NaN, and
// all combinations of parameters.
#include "kernels/sample/sample_chain.cuh"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "kernels/sample/sample.hpp"
#include "kernels/sample/sample_cases.hpp"

namespace fathom {
namespace {

using namespace sample;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The ranks of a pool's region stand for the threads of a block.
struct HostGroup {
  Team* team;
  int rank() const { return team->rank; }
  int size() const { return team->size; }
  void sync() const { team->barrier(); }
};

// The launches of a draw, with memory that shows what nobody wrote.
class HostLaunches {
 public:
  // Blocks run in an order that `seed` gives.
  HostLaunches(int n_threads, uint32_t seed, const std::vector<float>& logits, const Request& r)
      : pool_(n_threads, false),
        random_(seed),
        request_(r),
        logits_(logits.data()),
        n_(logits.size()),
        n_blocks_(static_cast<size_t>(sum_blocks(r.vocab_size))) {
    memory.state = &state;
    weights_.assign(n_, NAN);
    kept_weights_.assign(n_, NAN);
    ids_.assign(n_, -1);
    kept_ids_.assign(n_, -1);
    kept_counts_.assign(n_blocks_, -1);
    for (std::vector<double>* sums : {&id_sums_, &sorted_sums_, &kept_sums_, &prefix_}) {
      sums->assign(n_blocks_, NAN);
    }
    int32_t* const kept = kept_counts_.data();
    memory.by_id = {weights_.data(), nullptr, id_sums_.data(), kept, &state.n_list};
    memory.sorted = {weights_.data(), nullptr, sorted_sums_.data(), kept, &state.n_list};
    memory.kept = {kept_weights_.data(), kept_ids_.data(), kept_sums_.data(), kept, &state.n_kept};
    memory.kept_weights = kept_weights_.data();
    memory.kept_ids = kept_ids_.data();
    memory.prefix = prefix_.data();
  }

  void run() {
    best();
    if (!state.goes_on()) return;
    const Request& r = state.request;
    if (!r.cuts_k()) {
      each_block([&](HostGroup g, int64_t b) {
        weigh_block(g, state, logits_, memory.by_id, b, list_scratch_);
      });
    }
    for (int pass = 0; pass < 2 && r.seeks_best(); ++pass) digits(pass);
    if (r.seeks_best() && state.needs_no_sort()) gather();
    one_block([&](HostGroup g) {
      finish_draw(g, memory, logits_, static_cast<int>(state.n_gathered), scratch_,
                  [&] { return sort_all(g); });
    });
  }

  State state;
  Memory memory{};
  int n_gathers = 0, n_sorts = 0;

 private:
  void best() {
    uint64_t key = ~uint64_t{0};
    for (size_t i = 0; i < n_; ++i) {
      key = std::min(key, candidate_key(logits_[i], static_cast<int32_t>(i)));
    }
    finish_best(state, request_, candidate_id(key), logits_[candidate_id(key)]);
  }
  void digits(int pass) {
    std::fill_n(digit_scratch_.counts, kDigits, 0u);
    for (size_t i = 0; i < n_; ++i) {
      const int digit = counted_digit(state, logits_[i], pass);
      if (digit >= 0) ++digit_scratch_.counts[digit];
    }
    one_block([&](HostGroup g) { finish_digits(g, state, pass, digit_scratch_); });
  }
  void gather() {
    ++n_gathers;
    std::vector<int32_t> order(n_);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);  // as atomics would hand places out
    for (const int32_t id : order) {
      if (!within_bound(state, logits_[id])) continue;
      ASSERT_LT(state.n_gathered, static_cast<uint32_t>(kCapacity));
      scratch_.best.keys[state.n_gathered++] = candidate_key(logits_[id], id);
    }
    ASSERT_EQ(state.n_gathered, state.n_selected);
  }
  const int32_t* sort_all(HostGroup g) {
    if (g.rank() == 0) {
      ++n_sorts;
      std::iota(ids_.begin(), ids_.end(), 0);
      std::stable_sort(ids_.begin(), ids_.end(), [&](int32_t a, int32_t b) {
        return logit_key(logits_[a]) < logit_key(logits_[b]);
      });
    }
    return ids_.data();
  }
  template <class Fn>
  void one_block(const Fn& fn) {
    pool_.run([&](Team& team) { fn(HostGroup{&team}); });
  }
  template <class Fn>
  void each_block(const Fn& fn) {
    std::vector<int64_t> order(n_blocks_);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (const int64_t b : order) {
      one_block([&](HostGroup g) { fn(g, b); });
    }
  }

  ThreadPool pool_;
  std::mt19937 random_;
  Request request_;
  const float* logits_;
  size_t n_, n_blocks_;
  std::vector<float> weights_, kept_weights_;
  std::vector<int32_t> ids_, kept_ids_, kept_counts_;
  std::vector<double> id_sums_, sorted_sums_, kept_sums_, prefix_;
  ListScratch list_scratch_;
  DigitScratch digit_scratch_;
  FinishScratch scratch_;
};

// The token, or -1 when there is none to draw.
int32_t by_reference(const SampleCase& p) {
  const SampleArgs::Static s{static_cast<int64_t>(p.logits.size())};
  std::vector<std::byte> memory(static_cast<size_t>(workspace_bytes_cpu(s) + 64));
  ExecContext ctx;
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  ctx.workspace = {memory.data() + (64 - address % 64) % 64, workspace_bytes_cpu(s)};
  int32_t token = -1;
  try {
    sample_ref(ctx, {s, &p.params, {}, {}, p.position, p.logits.data(), &token});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
  }
  return token;
}

struct ByChain {
  int32_t token;
  int n_gathers, n_sorts;
};

ByChain by_chain(const SampleCase& p, int n_threads, uint32_t seed) {
  const Request r{p.params.temperature,
                  p.params.top_p,
                  p.params.min_p,
                  p.params.top_k,
                  p.params.seed,
                  p.position,
                  static_cast<int32_t>(p.logits.size())};
  const auto launches = std::make_unique<HostLaunches>(n_threads, seed, p.logits, r);
  launches->run();
  const Drawn& drawn = launches->state.drawn;
  const bool none = drawn.status == Status::no_finite_logit;
  EXPECT_TRUE(none || drawn.status == Status::ok);
  return {none ? -1 : drawn.token, launches->n_gathers, launches->n_sorts};
}

// Seeds of full size from the first case on; a smaller seed is no simpler case.
rc::Gen<uint32_t> case_seed() {
  return rc::gen::noShrink(rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<uint32_t>()));
}

TEST(SampleChain, DrawsTheReferencesToken) {
  constexpr uint32_t kCases = 8;  // for each of a hundred seeds
  int n_gathers = 0, n_sorts = 0;
  EXPECT_TRUE(rc::check([&] {
    const uint32_t seed = *case_seed();
    for (uint32_t i = 0; i < kCases; ++i) {
      const SampleCase p = random_case(seed + i);
      const ByChain drawn = by_chain(p, 1, seed);
      n_gathers += drawn.n_gathers;
      n_sorts += drawn.n_sorts;
      RC_ASSERT(drawn.token == by_reference(p));
    }
  }));
  EXPECT_GT(n_gathers, 100);
  EXPECT_GT(n_sorts, 20) << "too few cases need the sort of all candidates";
}

// Each combination of filters with the same seeds many times: a mistake in a tail of the draw
// shows only where the uniform number falls there.
TEST(SampleChain, EveryCombinationOfFiltersOverManyPositions) {
  for (const int kind : {0, 1, 4}) {
    for (const int32_t top_k : {0, 50, 1500}) {
      for (const float top_p : {1.0f, 0.95f}) {
        for (const float min_p : {0.0f, 0.01f}) {
          SampleCase p;
          p.logits = case_logits(kind, 3000, 5);
          p.params.temperature = 0.9f;
          p.params.top_k = top_k;
          p.params.top_p = top_p;
          p.params.min_p = min_p;
          for (p.position = 0; p.position < 40; ++p.position) {
            ASSERT_EQ(by_chain(p, 1, 1).token, by_reference(p))
                << "kind " << kind << ", top_k " << top_k << ", top_p " << top_p << ", min_p "
                << min_p << ", position " << p.position;
          }
        }
      }
    }
  }
}

// With several threads to a block, as the device has: whoever forgets to wait is found here and by
// the thread sanitizer.
TEST(SampleChain, SeveralThreadsGiveTheSameToken) {
  for (const int kind : {0, 1, 3, 4}) {
    for (const int32_t top_k : {0, 40, 1100}) {
      for (const float top_p : {1.0f, 0.9f}) {
        for (const float min_p : {0.0f, 0.05f}) {
          SampleCase p;
          p.logits = case_logits(kind, 1700, 9);
          p.params.temperature = 1.2f;
          p.params.top_k = top_k;
          p.params.top_p = top_p;
          p.params.min_p = min_p;
          p.position = kind + top_k;
          const int32_t expected = by_reference(p);
          for (const int n_threads : {2, 3}) {
            ASSERT_EQ(by_chain(p, n_threads, 3).token, expected)
                << "kind " << kind << ", top_k " << top_k << ", top_p " << top_p << ", min_p "
                << min_p << ", " << n_threads << " threads";
          }
        }
      }
    }
  }
}

TEST(SampleChain, SeveralThreadsDrawTheTokensOfRandomCases) {
  for (uint32_t seed = 0; seed < 120; ++seed) {
    const SampleCase c = random_case(seed, seed % 2 ? 300 : 1500);
    ASSERT_EQ(by_chain(c, 2 + static_cast<int>(seed % 3), seed).token, by_reference(c))
        << "seed " << seed;
  }
}

TEST(SampleChain, TellsWhenNoLogitIsFinite) {
  for (const float bad : {-kInfinity, kInfinity, std::nanf("")}) {
    for (const float temperature : {0.0f, 1.0f}) {
      SampleCase p;
      p.logits.assign(300, bad == kInfinity ? 1.0f : bad);
      p.logits[7] = bad;
      p.params.temperature = temperature;
      p.params.top_k = 5;
      EXPECT_EQ(by_reference(p), -1);
      EXPECT_EQ(by_chain(p, 1, 1).token, -1);
    }
  }
}

TEST(SampleChain, PenaltyAndBiasAreThoseOfTheReference) {
  EXPECT_TRUE(rc::check([] {
    SampleCase p;
    p.logits = case_logits(1, 300, *case_seed());
    p.params.repeat_penalty = *rc::gen::element(1.3f, 0.5f);
    p.params.repeat_last_n = -1;
    auto history = *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange(0, 300));
    std::vector<LogitBias> bias;
    for (const int32_t token : *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange(0, 20))) {
      bias.push_back({token, 0.1f * static_cast<float>(*rc::gen::inRange(-100, 100))});
    }
    std::vector<float> expected = p.logits;
    for (const int32_t t : history) {
      expected[t] = penalised_logit(p.logits[t], p.params.repeat_penalty);
    }
    for (const LogitBias& entry : bias) expected[entry.token] += entry.bias;

    std::stable_sort(bias.begin(), bias.end(),
                     [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; });
    const int n_threads = *rc::gen::inRange(1, 3);
    if (n_threads > 1) {  // writing one value twice is no error on a GPU, but it is here
      std::sort(history.begin(), history.end());
      history.erase(std::unique(history.begin(), history.end()), history.end());
    }
    const DrawRequest request{.position = static_cast<int64_t>(history.size()),
                              .bias = bias.data(),
                              .n_bias = static_cast<int32_t>(bias.size()),
                              .repeat_penalty = p.params.repeat_penalty,
                              .repeat_last_n = p.params.repeat_last_n};
    ThreadPool pool(n_threads, false);
    std::vector<float> out = p.logits;
    using Range = std::pair<int64_t, int64_t>;
    for (const Range& range : {Range{0, 7}, {7, 250}, {257, 43}}) {
      pool.run([&](Team& team) {
        adjust_tile(HostGroup{&team}, request, p.logits.data(), history.data(), range.first,
                    range.second, out.data() + range.first);
      });
    }
    RC_ASSERT(out == expected);
  }));
}

TEST(SampleChain, WindowsAreThoseOfTheHost) {
  const std::vector<int32_t> history(9, 0);
  for (const float penalty : {1.0f, 1.1f}) {
    for (const int32_t last_n : {-1, 0, 1, 8, 9, 10, 64}) {
      const SamplerParams params{.repeat_penalty = penalty, .repeat_last_n = last_n};
      const SampleArgs args{{1}, &params, {}, history, 9, nullptr, nullptr};
      const DrawRequest request{.position = 9, .repeat_penalty = penalty, .repeat_last_n = last_n};
      EXPECT_EQ(window_length(request), static_cast<int64_t>(penalty_window(args).size()))
          << penalty << ", " << last_n;
    }
  }
}

TEST(SampleChain, KeysFollowTheOrderOfCandidates) {
  const float ascending[] = {NAN,  -kInfinity, -3.4e38f, -1.0f,    -1e-45f,
                             0.0f, 1e-45f,     2.0f,     kInfinity};
  EXPECT_EQ(logit_key(ascending[0]), logit_key(ascending[1]));
  for (size_t i = 1; i + 1 < std::size(ascending); ++i) {
    EXPECT_GT(logit_key(ascending[i]), logit_key(ascending[i + 1])) << ascending[i];
  }
  EXPECT_EQ(logit_key(-0.0f), logit_key(0.0f));
  EXPECT_LT(candidate_key(1.0f, 3), candidate_key(1.0f, 4));
  EXPECT_EQ(candidate_id(candidate_key(-5.0f, 123456)), 123456);
}

// A weight is zero exactly where has_weight says so: the chain leaves those candidates out.
TEST(SampleChain, HasWeightIsExact) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> near_the_edge(-87.001f, -86.999f);
  for (int i = 0; i < 100000; ++i) {
    const float x = near_the_edge(random);
    ASSERT_EQ(candidate_weight(x, 0.0f, 1.0f) > 0, has_weight(x, 0.0f, 1.0f)) << x;
  }
  EXPECT_FALSE(has_weight(NAN, 0, 1));
  EXPECT_TRUE(has_weight(-87.0f, 0, 1));
}

}  // namespace
}  // namespace fathom
