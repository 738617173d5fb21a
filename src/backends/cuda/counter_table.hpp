// SPDX-License-Identifier: Apache-2.0
// Logical counters and what chips call them. The names of metrics differ from chip to chip, and one
// that a chip does not have makes CUPTI refuse a whole set: each is looked up first.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/counters.hpp"

namespace fathom::cuda {

std::vector<std::string> all_counters();
std::vector<std::string> core_counters();  // one pass, or two
std::vector<std::string> cache_counters();
std::vector<std::string> stall_counters();

// The first candidate of each name that `has` says the chip has; a reason where there is none.
// Throws Error{usage} for an unknown name.
std::vector<Counter> resolve_counters(std::span<const std::string> names, std::string_view chip,
                                      const std::function<bool(std::string_view metric)>& has);

}  // namespace fathom::cuda
