// SPDX-License-Identifier: Apache-2.0
// A backend library that speaks no interface that it is asked for.
#include "device/backend.hpp"

extern "C" const fathom::Backend* fathom_backend(uint32_t) { return nullptr; }
