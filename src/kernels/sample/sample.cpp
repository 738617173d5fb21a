// SPDX-License-Identifier: Apache-2.0
// The chain of sample.hpp. Nothing is sorted beyond what a filter needs: greedy is two passes over
// the logits, top-k selects, top-p selects ever longer prefixes until they hold the mass. Sums run
// over blocks of 256 in order and then over the blocks in order, as a device would.
#include "kernels/sample/sample.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/finite.hpp"
#include "kernels/common/cpu_kernels.hpp"
#include "kernels/sample/draw.hpp"
#include "kernels/sample/logits_sum.hpp"
#include "kernels/sample/sample_math.hpp"
#include "tensor/philox.hpp"
#include "tensor/step_ring.hpp"

namespace fathom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kSumBlock = kSampleSumBlock;
constexpr int64_t kFirstPrefix = 64;  // of a top-p search, then eight times as long

struct Candidate {
  float logit;
  int32_t id;
};

bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Lanes of independent maxima, so that the compiler can use vectors; NaN never wins.
float largest(const float* x, int64_t n) {
  constexpr int kLanes = 32;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -kInfinity);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
    }
  }
  for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  return *std::max_element(lanes, lanes + kLanes);
}

float checked_largest(const float* x, int64_t n) {
  const float best = largest(x, n);
  if (!(best > -kInfinity && best < kInfinity)) fail_without_finite_logit(best);
  return best;
}

// Logits after repetition penalty and bias; the caller's own row when neither is asked for.
const float* adjusted_logits(const SampleArgs& args, Workspace& workspace) {
  const SamplerParams& p = *args.params;
  const int64_t vocab_size = args.s.vocab_size;
  const std::span<const int32_t> window = penalty_window(args);
  if (window.empty() && args.logit_bias.empty()) return args.logits;

  float* out = workspace.take<float>(vocab_size);
  std::copy(args.logits, args.logits + vocab_size, out);
  for (const int32_t token : window) {
    // From the untouched logit, so that a token that occurs twice is penalised once.
    out[token] = penalised_logit(args.logits[token], p.repeat_penalty);
  }
  validate(args.logit_bias, vocab_size);
  for (const LogitBias& entry : args.logit_bias) out[entry.token] += entry.bias;
  return out;
}

using ExpFn = void (*)(const float* x, int64_t n, float* out);

void scalar_exp(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = portable_exp(x[i]);
}

// Candidates with their weights, and the sums of blocks of weights.
struct Draw {
  Candidate* candidates;
  float* weights;  // exp((logit - largest) / temperature)
  double* block_sums;
  int64_t n;
  ExpFn exp;
  double total = 0;

  // Weights of the first n candidates.
  void weigh(const SamplerParams& p, float best) {
    for (int64_t i = 0; i < n; ++i) {
      weights[i] = weight_exponent(candidates[i].logit, best, p.temperature);
    }
    exp(weights, n, weights);
  }

  void sum() {
    total = 0;
    for (int64_t begin = 0; begin < n; begin += kSumBlock) {
      const double block = sum_in_order(weights + begin, std::min(n - begin, kSumBlock));
      block_sums[begin / kSumBlock] = block;
      total += block;
    }
  }

  // The first candidate whose prefix sum exceeds `mass`.
  int64_t find(double mass) const {
    double before = 0;
    int64_t block = 0;
    const int64_t n_blocks = (n + kSumBlock - 1) / kSumBlock;
    while (block + 1 < n_blocks && before + block_sums[block] <= mass) {
      before += block_sums[block++];
    }
    int64_t last_possible = 0;
    for (int64_t i = block * kSumBlock; i < n; ++i) {
      before += weights[i];
      if (before > mass) return i;
      if (weights[i] > 0) last_possible = i;
    }
    return last_possible;  // rounding left the mass just above the sum
  }
};

// Puts the best n candidates in front, in order, and keeps their weights beside them.
void select_best(Draw& draw, int64_t n, int64_t n_all, const SamplerParams& p, float best) {
  std::partial_sort(draw.candidates, draw.candidates + n, draw.candidates + n_all, better);
  draw.n = n;
  draw.weigh(p, best);
}

// Keeps the shortest prefix of the sorted candidates that holds top_p of `total`; false when the
// prefix at hand is too short for it.
bool keep_top_p(Draw& draw, double total, float top_p) {
  double sum = 0;
  for (int64_t i = 0; i < draw.n; ++i) {
    sum += draw.weights[i];
    if (sum >= static_cast<double>(top_p) * total) {
      draw.n = i + 1;
      return true;
    }
  }
  return false;
}

void keep_min_p(Draw& draw, float min_p) {
  int64_t kept = 0;
  for (int64_t i = 0; i < draw.n; ++i) {
    if (draw.weights[i] < min_p) continue;  // the best weight is 1
    draw.candidates[kept] = draw.candidates[i];
    draw.weights[kept++] = draw.weights[i];
  }
  draw.n = kept;
}

int32_t draw_token(const SampleArgs& args, const float* logits, Workspace& workspace, ExpFn exp) {
  const SamplerParams& p = *args.params;
  const int64_t vocab_size = args.s.vocab_size;
  const float best = checked_largest(logits, vocab_size);
  Draw draw{workspace.take<Candidate>(vocab_size), workspace.take<float>(vocab_size),
            workspace.take<double>((vocab_size + kSumBlock - 1) / kSumBlock), vocab_size, exp};
  for (int64_t i = 0; i < vocab_size; ++i) {
    draw.candidates[i] = {ranked_logit(logits[i]), static_cast<int32_t>(i)};
  }

  const bool cut_k = p.top_k > 0 && p.top_k < vocab_size;
  if (cut_k) {
    select_best(draw, p.top_k, vocab_size, p, best);
  } else {
    draw.weigh(p, best);
  }
  draw.sum();
  if (p.top_p < 1.0f) {
    const double total = draw.total;
    const int64_t n_all = draw.n;
    for (int64_t prefix = cut_k ? n_all : std::min(kFirstPrefix, n_all);;
         prefix = std::min(prefix * 8, n_all)) {
      if (!cut_k) select_best(draw, prefix, n_all, p, best);
      if (keep_top_p(draw, total, p.top_p) || prefix == n_all) break;
    }
  }
  if (p.min_p > 0) keep_min_p(draw, p.min_p);
  draw.sum();
  const double uniform = philox_uniform(p.seed, static_cast<uint64_t>(args.position));
  return draw.candidates[draw.find(uniform * draw.total)].id;
}

// The one implementation: its order of operations is the contract. `exp` is portable_exp in vectors
// of any width, whose bits are equal.
void sample_with(ExpFn exp, const ExecContext& ctx, const SampleArgs& args) {
  Workspace workspace = ctx.workspace;
  const float* logits = adjusted_logits(args, workspace);
  if (args.params->temperature > 0) {
    *args.token = draw_token(args, logits, workspace, exp);
    return;
  }
  const float best = checked_largest(logits, args.s.vocab_size);
  *args.token = static_cast<int32_t>(std::find(logits, logits + args.s.vocab_size, best) - logits);
}

template <class T>
void require(bool ok, const char* name, T found, const char* expected) {
  if (!ok) fail(ErrorCode::usage, "{}: found {}, expected {}", name, found, expected);
}

}  // namespace

void validate(const SamplerParams& p) {
  require(p.temperature >= 0 && p.temperature < kInfinity, "temperature", p.temperature,
          "a finite number of at least 0");
  require(p.top_k >= 0, "top-k", p.top_k, "0 (all) or more");
  require(p.top_p > 0 && p.top_p <= 1, "top-p", p.top_p, "more than 0 and at most 1");
  require(p.min_p >= 0 && p.min_p < 1, "min-p", p.min_p, "at least 0 and less than 1");
  require(p.repeat_penalty > 0 && p.repeat_penalty < kInfinity, "repeat-penalty", p.repeat_penalty,
          "a finite number above 0");
  require(p.repeat_last_n >= -1, "repeat-last-n", p.repeat_last_n, "-1 (all) or more");
}

void validate(std::span<const LogitBias> logit_bias, int64_t vocab_size) {
  for (const LogitBias& entry : logit_bias) {
    if (entry.token < 0 || entry.token >= vocab_size || std::isnan(entry.bias) ||
        entry.bias == kInfinity) {
      fail(ErrorCode::usage,
           "logit bias: found token {} with bias {}, expected a token below {} and a bias below "
           "infinity",
           entry.token, entry.bias, vocab_size);
    }
  }
}

std::span<const int32_t> penalty_window(const SampleArgs& args) {
  const SamplerParams& p = *args.params;
  if (p.repeat_penalty == 1.0f || p.repeat_last_n == 0) return {};
  const size_t length = p.repeat_last_n < 0
                            ? args.history.size()
                            : std::min<size_t>(args.history.size(), p.repeat_last_n);
  const std::span<const int32_t> window = args.history.last(length);
  for (const int32_t token : window) {
    FATHOM_CHECK(token >= 0 && token < args.s.vocab_size,
                 "history holds a token outside the vocabulary");
  }
  return window;
}

void fail_without_finite_logit(float largest) {
  fail(ErrorCode::usage,
       "no token can be drawn: the largest logit is {}, expected a finite one; check the logit "
       "bias and the model file",
       largest);
}

Cost cost(const SampleArgs::Static& s, int64_t n_out) {
  Cost c;
  c.act_read_bytes = n_out * s.vocab_size * 4;
  c.act_written_bytes = n_out * 4;
  return c;
}

Cost cost(const DrawArgs::Static& s, const StepShape& shape) {
  return cost(SampleArgs::Static{s.vocab_size}, shape.n_out);
}

int64_t workspace_bytes_cpu(const SampleArgs::Static& s) {
  const int64_t per_token = 2 * sizeof(float) + sizeof(Candidate);
  const int64_t blocks = (s.vocab_size + kSumBlock - 1) / kSumBlock;
  return s.vocab_size * per_token + blocks * static_cast<int64_t>(sizeof(double)) + 4 * 64;
}

void sample_ref(ExecContext& ctx, const SampleArgs& args) { sample_with(scalar_exp, ctx, args); }

void sample_cpu(ExecContext& ctx, const SampleArgs& args) {
  sample_with(ctx.cpu->elementwise.exp, ctx, args);
}

void draw_ref(ExecContext& ctx, const DrawArgs& args) {
  const int64_t vocab_size = args.s.vocab_size;
  Drawn* const drawn = args.drawn + (*args.n_steps - 1) % kStepRing * args.s.max_draws;
  for (int32_t row = 0; row < args.n_rows; ++row) {
    const DrawRequest& r = args.requests[row];
    if (!r.is_wanted) continue;
    const float* const logits = args.logits + row * vocab_size;
    const std::span<const float> all(logits, static_cast<size_t>(vocab_size));
    const SamplerParams params{.temperature = r.temperature,
                               .top_k = r.top_k,
                               .top_p = r.top_p,
                               .min_p = r.min_p,
                               .repeat_penalty = r.repeat_penalty,
                               .repeat_last_n = r.repeat_last_n,
                               .seed = r.seed};
    Drawn out;
    const SampleArgs sample{{vocab_size},
                            &params,
                            {r.bias, static_cast<size_t>(r.n_bias)},
                            {args.history + r.slot * args.s.n_ctx, static_cast<size_t>(r.position)},
                            r.position,
                            logits,
                            &out.token};
    Workspace workspace = ctx.workspace;
    out.largest = largest(adjusted_logits(sample, workspace), vocab_size);
    if (out.largest > -kInfinity && out.largest < kInfinity) {
      sample_ref(ctx, sample);
    } else {
      out.status = DrawStatus::no_finite_logit;
    }
    out.any_not_finite = !all_finite(all);
    out.logits_sum = logits_sum(all);
    args.newest[r.slot] = out.status == DrawStatus::ok ? out.token : 0;
    drawn[row] = out;
  }
}

}  // namespace fathom
