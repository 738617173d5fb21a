// SPDX-License-Identifier: Apache-2.0
// The look-up by name, and the copy of backend and table.
#include "engine/varied_backend.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.hpp"

namespace fathom::engine {
namespace {

std::string_view family_of(std::string_view name) { return name.substr(0, name.find(':')); }

// "splits=64,warps=8" put into knobs; false where one is unknown or is no number.
bool set_knobs(std::string_view text, std::vector<OpVariant::Knob>& knobs) {
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const size_t equals = word.find('=');
    if (equals == word.npos) return false;
    const auto knob = std::ranges::find(knobs, word.substr(0, equals), &OpVariant::Knob::name);
    if (knob == knobs.end()) return false;
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data() + equals + 1, end, knob->value);
    if (error != std::errc() || stop != end) return false;
  }
  return true;
}

// The knobs that a name asks for; none where it names no family or no knob of it.
std::optional<std::vector<OpVariant::Knob>> knobs_of(std::span<const OpVariant> all,
                                                     std::string_view name) {
  const std::string_view family = family_of(name);
  const auto base = std::ranges::find(all, family, &OpVariant::name);
  if (base == all.end()) return std::nullopt;
  std::vector<OpVariant::Knob> knobs = base->knobs;
  if (family.size() == name.size()) return knobs;
  const std::string_view rest = name.substr(family.size() + 1);
  if (rest.empty() || !set_knobs(rest, knobs)) return std::nullopt;
  return knobs;
}

}  // namespace

const OpVariant& find_variant(const Backend& backend, const std::string& name) {
  const std::span<const OpVariant> all =
      backend.variants ? backend.variants() : std::span<const OpVariant>();
  if (all.empty()) {
    fail(ErrorCode::usage, "variant '{}': backend {} has no variants", name, backend.name);
  }
  if (const auto knobs = knobs_of(all, name)) {
    for (const OpVariant& variant : all) {
      if (family_of(variant.name) == family_of(name) && variant.knobs == *knobs) return variant;
    }
  }
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
  fail(
      ErrorCode::usage,
      "no variant '{}': expected e.g. '{}' or '{}', knobs that are not named are those of '{}': {}",
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
