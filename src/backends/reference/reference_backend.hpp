// SPDX-License-Identifier: Apache-2.0
// The backend whose ops are the formulas themselves, in double: the oracle of whole models. Its
// matrices stay in the file, so opening a model copies nothing.
#pragma once

#include "device/backend.hpp"

namespace fathom {

const Backend& reference_backend();

}  // namespace fathom
