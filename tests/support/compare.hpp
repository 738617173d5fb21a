// SPDX-License-Identifier: Apache-2.0
// The comparator of numeric tests: NaN and infinities at equal places, and
//   |got - expected| <= tolerance * |expected|   in the Euclidean norm.
// A failure names the worst element, the bound and the cosine distance. Without fmt, so that tests
// of device code can use it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>

namespace fathom::test {

inline constexpr double kEpsilonF32 = std::numeric_limits<float>::epsilon();

// Of a sum of n products in f32: the roundings walk at random.
inline double dot_tolerance(int64_t n) {
  return (4 + 0.5 * std::sqrt(static_cast<double>(n))) * kEpsilonF32;
}

inline testing::AssertionResult close(std::span<const float> got, std::span<const float> expected,
                                      double tolerance) {
  if (got.size() != expected.size()) {
    return testing::AssertionFailure() << got.size() << " values, expected " << expected.size();
  }
  double error = 0, norm = 0, got_norm = 0, dot = 0, worst = -1;
  size_t worst_at = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double g = got[i], e = expected[i];
    if (!std::isfinite(e) || !std::isfinite(g)) {
      if (g == e || (std::isnan(g) && std::isnan(e))) continue;
      return testing::AssertionFailure() << "[" << i << "] = " << g << ", expected " << e;
    }
    error += (g - e) * (g - e);
    norm += e * e;
    got_norm += g * g;
    dot += g * e;
    if (std::fabs(g - e) > worst) {
      worst = std::fabs(g - e);
      worst_at = i;
    }
  }
  if (std::sqrt(error) <= tolerance * std::sqrt(norm)) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "relative error " << std::sqrt(error / norm) << " above " << tolerance
         << ", cosine distance " << 1 - dot / std::sqrt(norm * got_norm) << "; worst [" << worst_at
         << "] = " << got[worst_at] << ", expected " << expected[worst_at];
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// Rows of `width` values that could tell a right kernel from a wrong one: finite, not all small,
// no two neighbouring rows alike.
inline testing::AssertionResult meaningful(std::span<const float> values, size_t width) {
  double squares = 0;
  for (const float x : values) squares += static_cast<double>(x) * x;
  if (!std::isfinite(squares)) return testing::AssertionFailure() << "not finite";
  const double rms = std::sqrt(squares / static_cast<double>(values.size()));
  if (rms < 1e-3) return testing::AssertionFailure() << "all small, RMS " << rms;
  for (size_t at = width; at < values.size(); at += width) {
    if (same_bits(values.subspan(at, width), values.subspan(at - width, width))) {
      return testing::AssertionFailure() << "row " << at / width << " repeats its neighbour";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace fathom::test
