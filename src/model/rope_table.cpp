// SPDX-License-Identifier: Apache-2.0
// The frequencies by the formulas of the header; yarn's ramp by the pair that turns a given number
// of times over the original context.
#include "model/rope_table.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fathom {
namespace {

// The pair that turns `rotations` times over the original context.
double pair_of_rotations(const RopeParams& p, double rotations) {
  const double context = static_cast<double>(p.original_context);
  return p.dim * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(p.base));
}

}  // namespace

RopeTable make_rope_table(const RopeParams& p) {
  const bool yarn = p.extrapolation != 0;
  const double low = yarn ? std::max(0.0, std::floor(pair_of_rotations(p, p.beta_fast))) : 0;
  const double high =
      yarn ? std::min(p.dim - 1.0, std::ceil(pair_of_rotations(p, p.beta_slow))) : 0;
  RopeTable out;
  out.inv_freq.resize(p.dim / 2);
  for (int i = 0; i < p.dim / 2; ++i) {
    double frequency = std::pow(p.base, -2.0 * i / p.dim);
    if (!p.freq_divisors.empty()) frequency /= p.freq_divisors[i];
    const double position = (i - low) / std::max(0.001, high - low);
    const double kept = yarn ? (1 - std::clamp(position, 0.0, 1.0)) * p.extrapolation : 0;
    out.inv_freq[i] = frequency * ((1 - kept) / p.factor + kept);
  }
  const double stretch = yarn ? std::max(1.0, 1 + 0.1 * std::log(p.factor)) : 1;
  out.magnitude = static_cast<float>(p.magnitude * stretch);
  return out;
}

}  // namespace fathom
