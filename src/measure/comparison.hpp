// SPDX-License-Identifier: Apache-2.0
// Is B faster than A? Of the logarithms of two series of times: where rounds pair them, the
// differences of each round (Hodges-Lehmann, signed ranks), else all differences between the two
// (Mann-Whitney). A difference counts only beyond the noise floor, which is what two arms that do
// the same were seen to differ by.
//   faster, slower   the 95 % interval of the ratio lies beyond the floor, and its test against the
//                    floor, corrected for all comparisons made (Holm), beyond 5 %
//   same             the interval lies within 1 % of 1, and so does the floor
//   cannot tell      anything else
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "measure/statistics.hpp"

namespace fathom::measure {

enum class Verdict { faster, slower, same, cannot_tell };
const char* verdict_name(Verdict verdict);

inline constexpr double kSameRatio = 0.01;      // times within 1 % are the same
inline constexpr double kFamilyLevel = 0.05;    // of all comparisons of a family together
inline constexpr size_t kLeastForInterval = 6;  // pairs; of two series, 4 each

struct Comparison {
  double ratio = 1;   // time of B over time of A: below 1, B is faster
  Interval ci{0, 0};  // 95 %
  double floor = 0;   // as a share: 0.01 = 1 %
  bool paired = false;
  size_t n_a = 0, n_b = 0;
  double p = 1;  // of a difference beyond the floor; Holm's after judge()
  size_t family = 1;
  Verdict verdict = Verdict::cannot_tell;
  std::string why = {};
};

// REQUIRES: positive times, as many of each, those of one place taken in one round.
Comparison compare_paired(std::span<const double> a_ns, std::span<const double> b_ns, double floor);
// Of two separate runs: what changed on the machine between them is in the ratio, so the floor must
// hold it.
Comparison compare_unpaired(std::span<const double> a_ns, std::span<const double> b_ns,
                            double floor);

// The verdicts of comparisons that were made together.
void judge(std::vector<Comparison>& family);

// What an arm and its twin differ by: the noise floor.
struct NoiseFloor {
  double ratio = 1;  // of the twin to its arm
  Interval ci{0, 0};
  double floor = 0;      // the farther end of the interval from 1: the least difference to believe
  bool unbiased = true;  // 1 lies in the interval, or within half a percent of it
};
// REQUIRES: at least kLeastForInterval rounds.
NoiseFloor noise_floor(std::span<const double> arm_ns, std::span<const double> twin_ns);

}  // namespace fathom::measure
