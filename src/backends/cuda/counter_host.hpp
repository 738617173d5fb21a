// SPDX-License-Identifier: Apache-2.0
// CUPTI's host side of counters: which metrics a chip has, in how many passes a set is counted, and
// the values in a filled image. It needs neither GPU nor driver.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/cupti_library.hpp"

namespace fathom::cuda {

// What the device needs to count a set of metrics.
struct CounterPlan {
  std::vector<std::string> metrics;
  std::vector<uint8_t> image;
  int n_passes = 0;
};

class CounterHost {
 public:
  static std::vector<std::string> supported_chips(const Cupti& api);

  // `availability` is the driver's list of counters that may be used; empty = all. Throws
  // Error{unavailable} for a chip that CUPTI does not know.
  CounterHost(const Cupti& api, std::string chip, std::span<const uint8_t> availability = {});

  const std::string& chip() const { return chip_; }
  bool has(std::string_view metric) const;  // "dram__bytes_read.sum"
  CounterPlan plan(std::vector<std::string> metrics) const;
  // Of one range of a filled image, in the plan's order.
  std::vector<double> values(const CounterPlan& plan, std::span<const uint8_t> counters,
                             size_t range) const;

 private:
  // A host object holds one set of metrics.
  class Object;
  const Cupti& api_;
  std::string chip_;
  std::vector<uint8_t> availability_;
  std::set<std::string, std::less<>> bases_;  // metrics without their suffixes
};

}  // namespace fathom::cuda
