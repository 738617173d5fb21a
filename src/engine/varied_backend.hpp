// SPDX-License-Identifier: Apache-2.0
// A backend with one entry of its op table replaced by a variant (kernels/op_variant.hpp), for an
// engine that measures the variant in place.
#pragma once

#include <memory>
#include <string>

#include "device/backend.hpp"
#include "kernels/op_variant.hpp"

namespace fathom::engine {

// The variant of that name: a family, and knobs in any order; those that are not named are the
// base's. Throws Error{usage} that says which there are.
const OpVariant& find_variant(const Backend& backend, const std::string& name);

struct VariedBackend {
  OpTable ops;
  Backend backend;  // whose ops are these
};
// Null for an empty name. Errors as find_variant's.
std::unique_ptr<VariedBackend> vary_backend(const Backend& backend, const std::string& variant);

}  // namespace fathom::engine
