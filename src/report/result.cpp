// SPDX-License-Identifier: Apache-2.0
// The document as JSON, the machine's part of it, and the names of the gates that failed.
#include "report/result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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
    out["gates"].push_back(gate_json(gate));
  }
  return out;
}

Json gate_json(const Gate& gate) {
  return {{"id", gate.id},
          {"pass", gate.pass},
          {"value", or_null(gate.value)},
          {"limit", or_null(gate.limit)},
          {"why", gate.why}};
}

Gate noise_gate(const std::string& arm, const measure::NoiseFloor& noise) {
  return {.id = "aa_noise",
          .pass = noise.unbiased,
          .value = std::abs(noise.ratio - 1),
          .limit = noise.floor,
          .why = fmt::format("{} and its twin, the same work: ratio {:.4f}, 95 % {:.4f} to {:.4f}; "
                             "differences up to {:.2f} % are noise here",
                             arm, noise.ratio, noise.ci.lo, noise.ci.hi, 100 * noise.floor)};
}

Json state_json(const measure::MachineState& state) {
  const measure::CpuState& cpu = state.cpu;
  Json gpus = Json::array();
  for (const measure::GpuState& gpu : state.gpus) {
    Json processes = nullptr;
    if (gpu.processes) {
      processes = Json::array();
      for (const measure::GpuProcess& process : *gpu.processes) {
        processes.push_back({{"pid", process.pid}, {"used_bytes", or_null(process.used_bytes)}});
      }
    }
    gpus.push_back({{"name", gpu.name},
                    {"uuid", text_or_null(gpu.uuid)},
                    {"used_bytes", gpu.used_bytes},
                    {"sm_clock_mhz", or_null(gpu.sm_clock_mhz)},
                    {"memory_clock_mhz", or_null(gpu.memory_clock_mhz)},
                    {"max_sm_clock_mhz", or_null(gpu.max_sm_clock_mhz)},
                    {"temperature_c", or_null(gpu.temperature_c)},
                    {"power_w", or_null(gpu.power_w)},
                    {"utilisation_pct", or_null(gpu.utilisation_pct)},
                    {"throttle_bits", or_null(gpu.throttle_bits)},
                    {"mig", or_null(gpu.mig)},
                    {"vgpu", or_null(gpu.vgpu)},
                    {"ecc_errors", or_null(gpu.ecc_errors)},
                    {"processes", processes}});
  }
  return {{"cpu",
           {{"clock_mhz", or_null(cpu.clock_mhz)},
            {"governor_mhz", or_null(cpu.governor_mhz)},
            {"load", or_null(cpu.load)},
            {"running", or_null(cpu.running)},
            {"steal_ns", or_null(cpu.steal_ns)},
            {"busy_ns", or_null(cpu.busy_ns)},
            {"pressure_pct", or_null(cpu.pressure_pct)},
            {"pressure_ns", or_null(cpu.pressure_ns)},
            {"memory_pressure_pct", or_null(cpu.memory_pressure_pct)},
            {"temperature_c", or_null(cpu.temperature_c)}}},
          {"gpus", gpus}};
}

Json sample_json(const std::string& arm, const measure::Sample& sample, const char* unit) {
  return {{"arm", arm},
          {"round", sample.round},
          {"place", sample.place},
          {unit, sample.value},
          {"start_ns", sample.start_ns},
          {"clock_mhz", or_null(sample.clock_mhz)},
          {"flags", measure::flag_names(sample.flags)}};
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
