// SPDX-License-Identifier: Apache-2.0
// Distances in units of the last place over the ordered integers of floats; the worst evidence
// decides the class.
#include "measure/bitwise.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace fathom::measure {
namespace {

constexpr uint32_t kPoison = 0xffc5a5a5u;  // a quiet NaN
constexpr std::byte kCanary{0xa7};

// Floats in order as integers in order, -0 and +0 both 0.
int64_t ordered(float x) {
  const int32_t bits = std::bit_cast<int32_t>(x);
  return bits < 0 ? -int64_t{bits & 0x7fffffff} : int64_t{bits};
}

void add_value(BitDifference& d, float got, float base) {
  if (std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(base)) return;
  ++d.n_different;
  if (got == 0 && base == 0) {
    ++d.n_signed_zeros;
  } else if (std::isnan(got) && std::isnan(base)) {
    ++d.n_nan_payloads;
  } else if (!std::isfinite(got) || !std::isfinite(base)) {
    d.max_abs = std::numeric_limits<double>::infinity();
  } else {
    d.max_abs = std::max(d.max_abs, std::fabs(double{got} - base));
    const auto ulp = static_cast<double>(std::abs(ordered(got) - ordered(base)));
    d.max_ulp = std::max(d.max_ulp, ulp);
    d.sum_ulp += ulp;
  }
}

}  // namespace

const char* bit_class_name(BitClass c) {
  constexpr const char* kNames[] = {"B0", "B1", "B2", "B3", "F"};
  return kNames[static_cast<int>(c)];
}

BitDifference& BitDifference::operator+=(const BitDifference& o) {
  n_values += o.n_values;
  n_different += o.n_different;
  n_signed_zeros += o.n_signed_zeros;
  n_nan_payloads += o.n_nan_payloads;
  max_abs = std::max(max_abs, o.max_abs);
  max_ulp = std::max(max_ulp, o.max_ulp);
  sum_ulp += o.sum_ulp;
  n_rows += o.n_rows;
  n_argmax_flips += o.n_argmax_flips;
  return *this;
}

BitDifference compare_bits(std::span<const float> got, std::span<const float> base, int64_t width) {
  FATHOM_CHECK(
      got.size() == base.size() && width > 0 && got.size() % static_cast<size_t>(width) == 0,
      "outputs are whole rows, and as many of both");
  BitDifference d;
  d.n_values = static_cast<int64_t>(got.size());
  for (size_t i = 0; i < got.size(); ++i) add_value(d, got[i], base[i]);
  d.n_rows = d.n_values / width;
  for (int64_t row = 0; row < d.n_rows; ++row) {
    const auto largest = [&](std::span<const float> all) {
      const auto of_row = all.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
      return std::ranges::max_element(of_row) - of_row.begin();
    };
    d.n_argmax_flips += largest(got) != largest(base);
  }
  return d;
}

BitVerdict classify(const BitEvidence& variant, const BitEvidence& base) {
  FATHOM_CHECK(variant.outputs.size() == base.outputs.size(), "a variant saw other draws");
  BitVerdict out;
  for (size_t draw = 0; draw < base.outputs.size(); ++draw)
    out.difference += compare_bits(variant.outputs[draw], base.outputs[draw], variant.width);
  if (out.difference.n_different > 0) out.bit_class = BitClass::different;
  if (!variant.batch_invariant) out.bit_class = BitClass::shape_dependent;
  if (!variant.repeats) out.bit_class = BitClass::nondeterministic;
  if (!variant.problem.empty()) out.bit_class = BitClass::fail;
  out.why = variant.problem;
  return out;
}

std::vector<std::byte> poisoned_with_canaries(int64_t output_bytes) {
  std::vector<std::byte> out(static_cast<size_t>(output_bytes + 2 * kCanaryBytes), kCanary);
  for (int64_t i = 0; i < output_bytes; ++i) {
    out[static_cast<size_t>(kCanaryBytes + i)] = static_cast<std::byte>(kPoison >> 8 * (i % 4));
  }
  return out;
}

std::string canary_problem(std::span<const std::byte> bytes) {
  const auto is_canary = [](std::byte b) { return b == kCanary; };
  if (!std::ranges::all_of(bytes.first(kCanaryBytes), is_canary)) {
    return "bytes before the output were written";
  }
  if (!std::ranges::all_of(bytes.last(kCanaryBytes), is_canary)) {
    return "bytes behind the output were written";
  }
  return "";
}

int64_t n_unwritten(std::span<const float> output) {
  return std::ranges::count_if(output,
                               [](float x) { return std::bit_cast<uint32_t>(x) == kPoison; });
}

}  // namespace fathom::measure
