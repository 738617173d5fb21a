// SPDX-License-Identifier: Apache-2.0
// What a change of a kernel does to the bits of its result, as a class: whoever changes a kernel
// may leave out a new check of quality only for B0.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fathom::measure {

enum class BitClass {
  free,              // B0: the base's bits on all draws, at all batch positions, run after run
  different,         // B1: always the same bits, but not the base's
  shape_dependent,   // B2: a row's bits depend on its batch
  nondeterministic,  // B3: another run has other bits
  fail,              // F: over tolerance, not all written, or written where it should not
};
const char* bit_class_name(BitClass c);  // "B0" to "B3", "F"

struct BitDifference {
  int64_t n_values = 0;
  int64_t n_different = 0;  // bits; zeros of other sign and NaNs of other payload are among them
  int64_t n_signed_zeros = 0, n_nan_payloads = 0;
  double max_abs = 0;                      // infinite where one of the two is not finite
  double max_ulp = 0, sum_ulp = 0;         // steps between neighbouring floats; of finite values
  int64_t n_rows = 0, n_argmax_flips = 0;  // the first largest value of a row

  double share() const { return n_values ? static_cast<double>(n_different) / n_values : 0; }
  double mean_ulp() const { return n_different ? sum_ulp / n_different : 0; }
  BitDifference& operator+=(const BitDifference& other);
};

// REQUIRES: equally long, whole rows of `width`.
BitDifference compare_bits(std::span<const float> got, std::span<const float> base, int64_t width);

// Of one variant at one size: what its class is decided by.
struct BitEvidence {
  std::vector<std::vector<float>> outputs;  // [draw] whole rows
  int64_t width = 1;                        // of a row
  bool repeats = true;                      // run after run
  bool batch_invariant = true;              // a row alone has the bits it has in the batch
  std::string problem;                      // empty, or why it fails
};

struct BitVerdict {
  BitClass bit_class = BitClass::free;
  BitDifference difference;  // against the base, all draws
  std::string why;           // of F
};
// REQUIRES: the same draws.
BitVerdict classify(const BitEvidence& variant, const BitEvidence& base);

inline BitClass worst(BitClass a, BitClass b) { return a < b ? b : a; }

// Bytes that nobody may write, on both sides of an output, and the output's own poison: NaNs that
// no arithmetic makes.
inline constexpr int64_t kCanaryBytes = 256;
std::vector<std::byte> poisoned_with_canaries(int64_t output_bytes);
// Empty, or what is wrong with the bytes of an output with its canaries after a run.
std::string canary_problem(std::span<const std::byte> bytes);
// Values that still hold the poison.
int64_t n_unwritten(std::span<const float> output);

}  // namespace fathom::measure
