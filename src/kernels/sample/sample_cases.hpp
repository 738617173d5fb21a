// SPDX-License-Identifier: Apache-2.0
// Seeded cases of sampling for the tests of the host and of the GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "fathom/sampling.hpp"
#include "kernels/sample/sample_math.hpp"

namespace fathom {

struct SampleCase {
  SamplerParams params;
  std::vector<float> logits;
  int64_t position = 0;
};

// Logits of several kinds: normal, few distinct values, nearly all forbidden, all alike.
inline std::vector<float> case_logits(int kind, size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> out(n);
  for (float& x : out) {
    const float value = normal(random);
    switch (kind) {
      case 0:
        x = value;
        break;
      case 1:
        x = std::rint(value) * 0.5f;  // ties, and zeros of both signs
        break;
      case 2:
        x = random() % 16 == 0 ? value : random() % 2 ? -INFINITY : NAN;
        break;
      case 3:
        x = 1.5f;
        break;
      case 4:
        x = value * 1e-3f;  // flat, so that top-p keeps nearly all
        break;
      default:
        x = value * 40;  // most weights are zero
    }
  }
  return out;
}

inline SampleCase random_case(uint32_t seed, size_t n = 0) {
  std::mt19937 random(seed);
  const auto one_of = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[random() % sizeof...(values)];
  };
  SampleCase p;
  const size_t some_n = one_of(1, 2, 255, 256, 257, 1000, 1025, 2049, 5000, 20000);
  if (n == 0) n = some_n;
  p.logits = case_logits(static_cast<int>(random() % 6), n, seed);
  p.params.temperature = one_of(0.05f, 0.7f, 1.0f, 3.0f, 0.0f, 1e-40f, 1e30f);
  const int32_t some_k = static_cast<int32_t>(1 + random() % (n + 1));
  p.params.top_k = one_of(0, 0, 1, 40, 1024, 1025, some_k);
  p.params.top_p = one_of(1.0f, 0.99999994f, 0.99f, 0.9f, 0.5f, 1e-6f);
  p.params.min_p = one_of(0.0f, 0.0f, 1e-30f, 0.02f, 0.5f, 0.999f);
  if (random() % 3 == 0) {  // the very weight of a candidate
    const float best = *std::max_element(p.logits.begin(), p.logits.end(), [](float a, float b) {
      return logit_key(a) > logit_key(b);
    });
    const float weight = candidate_weight(p.logits[random() % n], best, p.params.temperature);
    if (weight < 1) p.params.min_p = weight;
  }
  p.params.seed = random();
  p.position = random();
  return p;
}

}  // namespace fathom
