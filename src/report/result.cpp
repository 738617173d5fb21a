// SPDX-License-Identifier: Apache-2.0
// The document as JSON, the machine's part of it, and the names of the gates that failed.
#include "report/result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.hpp"

namespace fathom::report {
namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

bool Result::trusted() const {
  return std::all_of(gates.begin(), gates.end(), [](const Gate& gate) { return gate.pass; });
}

Json Result::to_json() const {
  Json out{{"schema", kResultSchema}, {"command", command}, {"machine", machine},
           {"samples", samples},      {"summary", summary}, {"gates", Json::array()}};
  for (const Gate& gate : gates) {
    FATHOM_CHECK(std::any_of(std::begin(kGateIds), std::end(kGateIds),
                             [&](std::string_view id) { return id == gate.id; }),
                 "a gate whose id is not in the schema");
    out["gates"].push_back({{"id", gate.id},
                            {"pass", gate.pass},
                            {"value", or_null(gate.value)},
                            {"limit", or_null(gate.limit)},
                            {"why", gate.why}});
  }
  return out;
}

Json machine_json(const measure::Machine& m) {
  Json gpus = Json::array();
  for (const measure::Gpu& gpu : m.gpus) {
    gpus.push_back({{"name", gpu.name},
                    {"total_bytes", gpu.total_bytes},
                    {"used_bytes", gpu.used_bytes},
                    {"sm_clock_mhz", gpu.sm_clock_mhz ? Json(gpu.sm_clock_mhz) : Json(nullptr)}});
  }
  return {{"cpu", m.cpu},
          {"isas", m.isas},
          {"logical_cpus", m.logical_cpus},
          {"usable_cpus", m.usable_cpus},
          {"cgroup_cpus", or_null(m.cgroup_cpus)},
          {"cpu_mhz", or_null(m.cpu_mhz)},
          {"virtual_machine", m.virtual_machine},
          {"llc_bytes", m.llc_bytes},
          {"memory_bytes", m.memory_bytes},
          {"available_bytes", m.available_bytes},
          {"cgroup_memory_bytes", or_null(m.cgroup_memory_bytes)},
          {"huge_pages", text_or_null(m.huge_pages)},
          {"kernel", m.kernel},
          {"counters", m.counters.empty()},
          {"counters_why", text_or_null(m.counters)},
          {"gpu_driver", text_or_null(m.gpu_driver)},
          {"gpu_why", text_or_null(m.gpu_problem)},
          {"gpus", gpus}};
}

std::vector<std::string> failed_gates(const std::vector<Gate>& gates) {
  std::vector<std::string> lines;
  for (const Gate& gate : gates) {
    if (!gate.pass) lines.push_back(fmt::format("gate {} failed: {}", gate.id, gate.why));
  }
  return lines;
}

}  // namespace fathom::report
