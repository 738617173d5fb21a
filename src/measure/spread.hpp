// SPDX-License-Identifier: Apache-2.0
// How repeated samples spread: quantiles of the tails, and at which level of repetition the
// variance lies.
//   Harrell-Davis  a quantile as the mean of all order statistics, weighted by a beta distribution
//                  (1982): steadier in the tails than one or two of them
//   components     of variance of a balanced nested design, from the mean squares of its analysis
//                  of variance; a negative estimate counts as 0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace fathom::measure {

// REQUIRES: one sample at least, 0 < p < 1.
double harrell_davis(std::span<const double> samples, double p);

// Only of enough samples that about ten lie beyond it, 10 / (1 - p): 100 for p90, 1,000 for p99.
std::optional<double> tail_quantile(std::span<const double> samples, double p);

// Variance between the groups of each level. `counts`: groups in a group, outermost level first,
// the innermost in turn in `samples`. REQUIRES: their product is the number of samples. A level
// that was not repeated gets 0.
std::vector<double> variance_components(std::span<const double> samples,
                                        std::span<const size_t> counts);

// The level whose term of the variance of the mean over everything is largest: that to repeat more
// often. REQUIRES: a component for each count.
size_t level_to_raise(std::span<const double> components, std::span<const size_t> counts);

}  // namespace fathom::measure
