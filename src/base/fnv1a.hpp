// SPDX-License-Identifier: Apache-2.0
// FNV-1a, folded by 64-bit words: a name for values that is the same on every machine and in every
// version, for seeds, stored results and files that must fit together. No defence against malice.
// Source: Fowler, Noll, Vo; over bytes it is their published hash.
#pragma once

#include <cstdint>

namespace fathom {

class Fnv1a {
 public:
  constexpr void add(uint64_t word) { hash_ = (hash_ ^ word) * 0x100000001b3u; }
  constexpr uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace fathom
