// SPDX-License-Identifier: Apache-2.0
// Overflow-checked arithmetic for sizes that come from a file. Each returns false on overflow.
#pragma once

#include <cstdint>

namespace fathom {

[[nodiscard]] inline bool checked_add(uint64_t a, uint64_t b, uint64_t& out) {
  return !__builtin_add_overflow(a, b, &out);
}
[[nodiscard]] inline bool checked_mul(uint64_t a, uint64_t b, uint64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}

constexpr uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr int64_t ceil_div(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace fathom
