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

// The stages of a run, with memory that shows what nobody wrote.
class HostStages {
 public:
  // Blocks run in an order that `seed` gives.
  HostStages(int n_threads, uint32_t seed, const std::vector<float>& logits, const Request& r)
      : pool_(n_threads, false),
        random_(seed),
        n_(logits.size()),
        n_blocks_(static_cast<size_t>(sum_blocks(r.vocab_size))) {
    state.request = r;
    state.n_list = r.cuts_k() ? r.top_k : r.vocab_size;
    memory.state = &state;
    memory.logits = logits.data();
    weights_.assign(n_, NAN);
    kept_weights_.assign(n_, NAN);
    ids_.assign(n_, -1);
    kept_ids_.assign(n_, -1);
    kept_counts_.assign(n_blocks_, -1);
    for (std::vector<double>* sums : {&id_sums_, &sorted_sums_, &kept_sums_, &prefix_}) {
      sums->assign(n_blocks_, NAN);
    }
    digit_counts_.assign(2 * kDigits, 0);
    gathered_.assign(kCapacity, 0);
    memory.by_id = {weights_.data(), nullptr, id_sums_.data(), &state.n_list};
    memory.sorted = {weights_.data(), nullptr, sorted_sums_.data(), &state.n_list};
    memory.kept = {kept_weights_.data(), kept_ids_.data(), kept_sums_.data(), &state.n_kept};
    memory.kept_counts = kept_counts_.data();
    memory.kept_weights = kept_weights_.data();
    memory.kept_ids = kept_ids_.data();
    memory.prefix = prefix_.data();
    memory.digit_counts = digit_counts_.data();
    memory.gathered = gathered_.data();
  }

  void best() {
    for (size_t i = 0; i < n_; ++i) {
      state.best_key =
          std::min(state.best_key, candidate_key(memory.logits[i], static_cast<int32_t>(i)));
    }
    finish_best(state, memory.logits);
  }
  void weigh(const List& list) {
    if (!state.goes_on()) return;
    each_block([&](HostGroup g, int64_t b) {
      weigh_block(g, state, memory.logits, list, b, memory.kept_counts, list_scratch_);
    });
  }
  void sum(const List& list) {
    each_block([&](HostGroup g, int64_t b) { sum_block(g, list, b, list_scratch_); });
  }
  void compact(const List& list) {
    if (!state.goes_on()) return;
    each_block([&](HostGroup g, int64_t b) {
      compact_block(g, state, list, memory.kept_counts, b, memory.kept_weights, memory.kept_ids,
                    list_scratch_);
    });
  }
  void cut_top_p(const List& list, const double* total_sums, int64_t n_total_blocks) {
    one_block([&](HostGroup g) {
      fathom::sample::cut_top_p(g, state, list, total_sums, n_total_blocks, draw_scratch_);
    });
  }
  void draw(const List& list) {
    if (!state.goes_on()) return;
    one_block([&](HostGroup g) { draw_token(g, state, list, memory.prefix, draw_scratch_); });
  }
  void digits(int pass) {
    if (state.status != Status::ok) return;
    std::fill_n(digit_scratch_.counts, kDigits, 0u);
    for (size_t i = 0; i < n_; ++i) {
      const int digit = counted_digit(state, memory.logits[i], pass);
      if (digit >= 0) ++digit_scratch_.counts[digit];
    }
    one_block([&](HostGroup g) { finish_digits(g, state, pass, digit_scratch_); });
  }
  void gather() {
    if (state.status != Status::ok) return;
    std::vector<int32_t> order(n_);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);  // as atomics would hand places out
    for (const int32_t id : order) {
      const float logit = memory.logits[id];
      if (within_bound(state, logit)) gathered_.at(state.n_gathered++) = candidate_key(logit, id);
    }
    ASSERT_EQ(state.n_gathered, state.n_selected);
  }
  void draw_from_best() {
    if (state.status != Status::ok) return;
    ++n_fast;
    one_block([&](HostGroup g) {
      fathom::sample::draw_from_best(g, state, memory.logits, gathered_.data(), id_sums_.data(),
                                     best_scratch_);
    });
  }
  const int32_t* sort_all() {
    ++n_sorts;
    std::iota(ids_.begin(), ids_.end(), 0);
    std::stable_sort(ids_.begin(), ids_.end(), [&](int32_t a, int32_t b) {
      return logit_key(memory.logits[a]) < logit_key(memory.logits[b]);
    });
    return ids_.data();
  }
  Status status() const { return state.status; }

  State state;
  Memory memory{};
  int n_fast = 0, n_sorts = 0;

 private:
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
  size_t n_, n_blocks_;
  std::vector<float> weights_, kept_weights_;
  std::vector<int32_t> ids_, kept_ids_, kept_counts_;
  std::vector<double> id_sums_, sorted_sums_, kept_sums_, prefix_;
  std::vector<uint32_t> digit_counts_;
  std::vector<uint64_t> gathered_;
  ListScratch list_scratch_;
  DrawScratch draw_scratch_;
  DigitScratch digit_scratch_;
  BestScratch best_scratch_;
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

struct Drawn {
  int32_t token;
  int n_fast, n_sorts;
};

Drawn by_chain(const SampleCase& p, int n_threads, uint32_t seed) {
  const Request r{p.params.temperature,
                  p.params.top_p,
                  p.params.min_p,
                  p.params.top_k,
                  p.params.seed,
                  p.position,
                  static_cast<int32_t>(p.logits.size())};
  auto stages = std::make_unique<HostStages>(n_threads, seed, p.logits, r);
  run_stages(*stages, stages->memory, r);
  const bool none = stages->state.status == Status::no_finite_logit;
  EXPECT_TRUE(none || stages->state.status == Status::ok);
  return {none ? -1 : stages->state.token, stages->n_fast, stages->n_sorts};
}

// Seeds of full size from the first case on; a smaller seed is no simpler case.
rc::Gen<uint32_t> case_seed() {
  return rc::gen::noShrink(rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<uint32_t>()));
}

TEST(SampleChain, DrawsTheReferencesToken) {
  constexpr uint32_t kCases = 8;  // for each of a hundred seeds
  int n_fast = 0, n_sorts = 0;
  EXPECT_TRUE(rc::check([&] {
    const uint32_t seed = *case_seed();
    for (uint32_t i = 0; i < kCases; ++i) {
      const SampleCase p = random_case(seed + i);
      const Drawn drawn = by_chain(p, 1, seed);
      n_fast += drawn.n_fast;
      n_sorts += drawn.n_sorts;
      RC_ASSERT(drawn.token == by_reference(p));
    }
  }));
  EXPECT_GT(n_fast, 100);
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
    std::vector<float> out = p.logits;
    const int n_threads = *rc::gen::inRange(1, 3);
    if (n_threads > 1) {  // writing one value twice is no error on a GPU, but it is here
      std::sort(history.begin(), history.end());
      history.erase(std::unique(history.begin(), history.end()), history.end());
    }
    ThreadPool pool(n_threads, false);
    pool.run([&](Team& team) {
      adjust_logits(HostGroup{&team}, p.logits.data(), p.params.repeat_penalty, history.data(),
                    history.size(), bias.data(), bias.size(), out.data());
    });
    RC_ASSERT(out == expected);
  }));
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
