// SPDX-License-Identifier: Apache-2.0
// The shuffled rounds, and the warm-up that ends when three runs in a row agree.
#include "measure/rounds.hpp"

#include <cmath>
#include <numeric>
#include <span>

#include "base/error.hpp"
#include "measure/clock.hpp"
#include "measure/statistics.hpp"

namespace fathom::measure {

Rounds run_rounds(const std::vector<Arm>& arms, const RoundsOptions& options) {
  Rounds result;
  result.seed = options.seed;
  for (const Arm& arm : arms) result.arms.push_back(arm.name);
  result.values.resize(arms.size());

  Random random(options.seed);
  const int total = options.n_rounds * static_cast<int>(arms.size());
  int done = 0;
  for (int round = 0; round < options.n_rounds; ++round) {
    std::vector<int> order(arms.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (int arm : order) {
      if (options.cancel && options.cancel->load()) {
        fail(ErrorCode::cancelled, "interrupted in round {} of {}", round + 1, options.n_rounds);
      }
      result.values[static_cast<size_t>(arm)].push_back(arms[static_cast<size_t>(arm)].run());
      if (options.progress) options.progress(++done, total);
    }
    result.order.push_back(std::move(order));
  }
  return result;
}

WarmUp warm_up(const std::function<double()>& run, const WarmUpOptions& options) {
  constexpr size_t kWindow = 3;
  WarmUp result;
  const int64_t start = now_ns();
  while (static_cast<int>(result.values.size()) < options.max_runs) {
    result.values.push_back(run());
    const bool out_of_time = static_cast<double>(now_ns() - start) * 1e-9 > options.max_seconds;
    if (result.values.size() >= kWindow) {
      const std::span<const double> last = std::span(result.values).last(kWindow);
      const double centre = median(last);
      result.stable = true;
      for (double v : last) result.stable &= std::abs(v - centre) <= options.tolerance * centre;
      if (result.stable) break;
    }
    if (out_of_time) break;
  }
  return result;
}

}  // namespace fathom::measure
