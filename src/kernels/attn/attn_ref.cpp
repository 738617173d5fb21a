// SPDX-License-Identifier: Apache-2.0
// Attention in double precision, straight from the formula: what all kernels are compared with.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attn/attn.hpp"
#include "kernels/common/kv_ref.hpp"
#include "kernels/common/parallel.hpp"

namespace fathom {
namespace {

// All query heads of one row that share a KV head; keys and values are [tokens, head_dim].
void attend(const AttnArgs& args, int64_t row, int kv_head, const std::vector<double>& keys,
            const std::vector<double>& values) {
  const AttnArgs::Static& s = args.s;
  const int64_t n_tokens = int64_t{args.step->pos[row]} + 1;
  const int group = s.n_heads / s.n_kv_heads;
  std::vector<double> scores(n_tokens);
  std::vector<double> out(s.head_dim);
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const float* q = args.q + (row * s.n_heads + head) * s.head_dim;
    for (int64_t t = 0; t < n_tokens; ++t) {
      double dot = 0;
      for (int dim = 0; dim < s.head_dim; ++dim) dot += q[dim] * keys[t * s.head_dim + dim];
      scores[t] = dot * s.scale;
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    std::fill(out.begin(), out.end(), 0.0);
    double total = 0;
    for (int64_t t = 0; t < n_tokens; ++t) {
      const double p = std::exp(scores[t] - largest);
      total += p;
      for (int dim = 0; dim < s.head_dim; ++dim) out[dim] += p * values[t * s.head_dim + dim];
    }
    float* result = args.out + (row * s.n_heads + head) * s.head_dim;
    for (int dim = 0; dim < s.head_dim; ++dim) result[dim] = static_cast<float>(out[dim] / total);
  }
}

}  // namespace

void attn_ref(ExecContext& ctx, const AttnArgs& args) {
  const AttnArgs::Static& s = args.s;
  const StepState& step = *args.step;
  parallel_for(ctx.pool, s.n_kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int kv_head = static_cast<int>(begin); kv_head < end; ++kv_head) {
      std::vector<double> keys, values;
      int64_t loaded = 0;
      for (int32_t row = 0; row < step.n_rows; ++row) {
        if (row > 0 && step.slot[row] != step.slot[row - 1]) loaded = 0;
        const int64_t n_tokens = int64_t{step.pos[row]} + 1;
        keys.resize(std::max<size_t>(keys.size(), n_tokens * s.head_dim));
        values.resize(keys.size());
        for (; loaded < n_tokens; ++loaded) {
          const int64_t at = loaded * s.head_dim;
          kv_load_ref(s.kv, KvPart::key, step.pages_of(row), kv_head, loaded, &keys[at]);
          kv_load_ref(s.kv, KvPart::value, step.pages_of(row), kv_head, loaded, &values[at]);
        }
        attend(args, row, kv_head, keys, values);
      }
    }
  });
}

}  // namespace fathom
