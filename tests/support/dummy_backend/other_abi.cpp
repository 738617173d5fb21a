// SPDX-License-Identifier: Apache-2.0
// A backend library that answers with an interface that nobody asked for.
#include "device/backend.hpp"

extern "C" const fathom::Backend* fathom_backend(uint32_t abi) {
  static fathom::Backend backend{};
  backend.abi = abi + 1;
  backend.name = "otherabi";
  return &backend;
}
