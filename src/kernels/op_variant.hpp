// SPDX-License-Identifier: Apache-2.0
// Other kernels for an op than the one in the OpTable: to be probed beside it, or put in its place
// in a whole engine. A variant takes the op's arguments and gives its results, within the op's
// tolerance.
#pragma once

#include <string>
#include <vector>

#include "kernels/op_table.hpp"

namespace fathom {

struct OpVariant {
  struct Knob {
    std::string name;
    int value;
    bool operator==(const Knob&) const = default;
  };
  std::string op;           // whose entry it replaces
  std::string name;         // "seed:splits=64": a family, and the knobs that are not its base's
  std::vector<Knob> knobs;  // all of them
  void (*apply)(OpTable& table);
};

}  // namespace fathom
