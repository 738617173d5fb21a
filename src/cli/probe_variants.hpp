// SPDX-License-Identifier: Apache-2.0
// The variants of an op that a person can name: on a device with variants of its own those, on the
// host the same code on other instruction sets and thread counts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.hpp"
#include "cli/command.hpp"
#include "measure/probe.hpp"

namespace fathom::cli {

// The variants, and what they run on.
struct ProbeSet {
  std::vector<measure::ProbeVariant> variants;  // the first is the base
  std::vector<std::unique_ptr<ThreadPool>> pools;
};

// "production", "seed:splits=64", "isa=avx2,threads=1"; none = production. Throws Error{usage} for
// a name that says nothing here, Error{unavailable} for an instruction set that is missing.
ProbeSet named_variants(const Backend& backend, const std::string& op,
                        const std::vector<std::string>& names, const CommonFlags& common);

// All combinations of the knobs' values that exist, the base first; a knob that is not named keeps
// its base's value, and a base's value is always among those of its knob. {"splits=16,32", ...}
ProbeSet swept_variants(const Backend& backend, const std::string& op,
                        const std::vector<std::string>& knobs, const CommonFlags& common);

// What can be named for the op, for --list.
std::vector<std::string> variant_names(const Backend& backend, const std::string& op);

}  // namespace fathom::cli
