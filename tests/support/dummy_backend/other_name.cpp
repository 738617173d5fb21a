// SPDX-License-Identifier: Apache-2.0
// A backend library whose file was renamed.
#include "device/backend.hpp"

extern "C" const fathom::Backend* fathom_backend(uint32_t abi) {
  static fathom::Backend backend{};
  backend.abi = abi;
  backend.name = "original";
  return &backend;
}
