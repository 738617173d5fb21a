// SPDX-License-Identifier: Apache-2.0
// The list of all families: a new one is added here.
#include "model/families/family.hpp"

#include <string_view>

namespace fathom {

std::span<const Family* const> families() {
  static constexpr const Family* kFamilies[] = {&kLlama, &kQwen2, &kQwen3};
  return kFamilies;
}

const Family* find_family(std::string_view architecture) {
  for (const Family* family : families()) {
    if (architecture == family->architecture) return family;
  }
  return nullptr;
}

}  // namespace fathom
