// SPDX-License-Identifier: Apache-2.0
// The rotary frequencies of a model with its scaling applied, once, in double. A rotation at
// position p turns pair i by p * inv_freq[i] and stretches it by `magnitude`.
//   plain    inv_freq[i] = base^(-2i/dim) / freq_divisor[i]
//   linear   the same / factor (position interpolation, arXiv 2306.15595)
//   yarn     between both by a ramp over i (arXiv 2309.00071); magnitude 1 + 0.1 ln factor
#pragma once

#include <cstdint>
#include <vector>

namespace fathom {

struct RopeParams {
  int dim = 0;
  double base = 10000;
  double factor = 1;  // of linear and yarn
  // Share of the ramp in yarn; 0 = linear.
  double extrapolation = 0;
  int64_t original_context = 0;
  double beta_fast = 32, beta_slow = 1;
  double magnitude = 1;              // a factor of the file, times yarn's own
  std::vector<float> freq_divisors;  // [dim/2] or empty
};

struct RopeTable {
  std::vector<double> inv_freq;  // [dim/2]
  float magnitude = 1;
};

RopeTable make_rope_table(const RopeParams& params);

}  // namespace fathom
