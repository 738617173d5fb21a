// SPDX-License-Identifier: Apache-2.0
// The look-up by name, and the copy of backend and table.
#include "engine/varied_backend.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace fathom::engine {

const OpVariant& find_variant(const Backend& backend, const std::string& name) {
  const std::span<const OpVariant> all =
      backend.variants ? backend.variants() : std::span<const OpVariant>();
  if (all.empty()) {
    fail(ErrorCode::usage, "variant '{}': backend {} has no variants", name, backend.name);
  }
  const auto found = std::ranges::find(all, name, &OpVariant::name);
  if (found != all.end()) return *found;
  std::string knobs;
  for (const OpVariant::Knob& knob : all.front().knobs) {
    std::vector<int> values;
    for (const OpVariant& variant : all) {
      for (const OpVariant::Knob& k : variant.knobs) {
        if (k.name == knob.name && std::ranges::find(values, k.value) == values.end())
          values.push_back(k.value);
      }
    }
    std::ranges::sort(values);
    knobs += fmt::format("{}{}={}", knobs.empty() ? "" : ", ", knob.name, fmt::join(values, "|"));
  }
  fail(ErrorCode::usage,
       "no variant '{}': expected e.g. '{}' or '{}', knobs in this order and those of '{}' left "
       "out: {}",
       name, all.front().name, all.back().name, all.front().name, knobs);
}

std::unique_ptr<VariedBackend> vary_backend(const Backend& backend, const std::string& variant) {
  if (variant.empty()) return nullptr;
  auto out = std::make_unique<VariedBackend>(VariedBackend{*backend.ops, backend});
  find_variant(backend, variant).apply(out->ops);
  out->backend.ops = &out->ops;
  return out;
}

}  // namespace fathom::engine
