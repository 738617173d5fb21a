// SPDX-License-Identifier: Apache-2.0
// The table. A candidate of another meaning than the counter's name says so in its note.
#include "backends/cuda/counter_table.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace fathom::cuda {
namespace {

enum class Set { core, cache, stalls };

struct Candidate {
  const char* metric = nullptr;
  double scale = 1;
  const char* note = "";
};

struct Row {
  const char* name;
  const char* unit;
  Set set;
  std::array<Candidate, 4> candidates;
};

constexpr double kSector = 32;  // bytes of an L2 sector
constexpr const char* kNotDram = "filled from system memory: this chip has no DRAM counters";
constexpr const char* kStallUnit = "warps stalled per issue";

constexpr Row kRows[] = {
    {"time_ns", "ns", Set::core, {{{"gpu__time_duration.sum"}}}},
    {"dram_read_bytes",
     "bytes",
     Set::core,
     {{{"dram__bytes_read.sum"},
       {"dram__bytes_op_read.sum"},
       {"fbpa__dram_read_bytes.sum"},
       {"lts__d_sectors_fill_sysmem.sum", kSector, kNotDram}}}},
    {"dram_write_bytes",
     "bytes",
     Set::core,
     {{{"dram__bytes_write.sum"}, {"dram__bytes_op_write.sum"}, {"fbpa__dram_write_bytes.sum"}}}},
    {"warps_active_pct", "%", Set::core, {{{"sm__warps_active.avg.pct_of_peak_sustained_active"}}}},
    {"sm_cycles_active_avg", "cycles", Set::core, {{{"sm__cycles_active.avg"}}}},
    {"sm_cycles_active_min", "cycles", Set::core, {{{"sm__cycles_active.min"}}}},
    {"sm_cycles_active_max", "cycles", Set::core, {{{"sm__cycles_active.max"}}}},
    {"sm_cycles_elapsed_max", "cycles", Set::core, {{{"sm__cycles_elapsed.max"}}}},
    {"ctas", "blocks", Set::core, {{{"sm__ctas_launched.sum"}}}},
    {"issue_active_pct",
     "%",
     Set::core,
     {{{"smsp__issue_active.avg.pct_of_peak_sustained_active"}}}},
    {"tensor_pipe_pct",
     "%",
     Set::core,
     {{{"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"}}}},
    {"fma_pipe_pct",
     "%",
     Set::core,
     {{{"sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active"}}}},
    {"alu_pipe_pct",
     "%",
     Set::core,
     {{{"sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active"}}}},
    {"stall_long_scoreboard",
     kStallUnit,
     Set::core,
     {{{"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"}}}},
    {"l2_read_bytes", "bytes", Set::cache, {{{"lts__t_sectors_op_read.sum", kSector}}}},
    {"l2_read_miss_bytes",
     "bytes",
     Set::cache,
     {{{"lts__t_sectors_op_read_lookup_miss.sum", kSector}}}},
    {"tma_bytes", "bytes", Set::cache, {{{"l1tex__m_xbar2l1tex_read_bytes_pipe_tma.sum"}}}},
    {"ldgsts_bytes",
     "bytes",
     Set::cache,
     {{{"l1tex__m_xbar2l1tex_read_bytes_mem_global_op_ldgsts_cache_access.sum"}}}},
    {"instructions", "instructions", Set::cache, {{{"smsp__inst_executed.sum"}}}},
    {"tensor_instructions", "instructions", Set::cache, {{{"sm__inst_executed_pipe_tensor.sum"}}}},
    {"tensor_active_pct",
     "%",
     Set::cache,
     {{{"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"}}}},
    {"sm_clock_hz", "Hz", Set::cache, {{{"sm__cycles_elapsed.avg.per_second"}}}},
    {"warp_latency_per_issue",
     "cycles",
     Set::stalls,
     {{{"smsp__average_warp_latency_per_inst_issued.ratio"}}}},
    {"stall_short_scoreboard",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio"}}}},
    {"stall_wait",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"}}}},
    {"stall_barrier",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"}}}},
    {"stall_membar",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_membar_per_issue_active.ratio"}}}},
    {"stall_lg_throttle",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio"}}}},
    {"stall_mio_throttle",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio"}}}},
    {"stall_math_pipe_throttle",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio"}}}},
    {"stall_not_selected",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio"}}}},
    {"stall_drain",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_drain_per_issue_active.ratio"}}}},
    {"stall_no_instruction",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio"}}}},
    {"stall_sleeping",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_sleeping_per_issue_active.ratio"}}}},
    {"stall_branch_resolving",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_branch_resolving_per_issue_active.ratio"}}}},
    {"stall_dispatch",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_dispatch_stall_per_issue_active.ratio"}}}},
    {"stall_tex_throttle",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_tex_throttle_per_issue_active.ratio"}}}},
    {"stall_imc_miss",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_imc_miss_per_issue_active.ratio"}}}},
    {"stall_gmma",
     kStallUnit,
     Set::stalls,
     {{{"smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio"}}}},
};

template <class Wanted>
std::vector<std::string> names_of(Wanted wanted) {
  std::vector<std::string> out;
  for (const Row& row : kRows) {
    if (wanted(row)) out.push_back(row.name);
  }
  return out;
}

std::string tried(const Row& row) {
  std::string out;
  for (const Candidate& candidate : row.candidates) {
    if (candidate.metric) out += (out.empty() ? "" : " nor ") + std::string(candidate.metric);
  }
  return out;
}

Counter resolve(const Row& row, std::string_view chip,
                const std::function<bool(std::string_view)>& has) {
  for (const Candidate& candidate : row.candidates) {
    if (candidate.metric && has(candidate.metric)) {
      return {row.name, row.unit, candidate.metric, candidate.scale, candidate.note};
    }
  }
  return {.name = row.name,
          .unit = row.unit,
          .metric = "",
          .scale = 1,
          .note = fmt::format("chip {} has no {}", chip, tried(row))};
}

}  // namespace

std::vector<std::string> all_counters() {
  return names_of([](const Row&) { return true; });
}
std::vector<std::string> core_counters() {
  return names_of([](const Row& row) { return row.set == Set::core; });
}
std::vector<std::string> cache_counters() {
  return names_of([](const Row& row) { return row.set == Set::cache; });
}
std::vector<std::string> stall_counters() {
  std::vector<std::string> out = names_of([](const Row& row) { return row.set == Set::stalls; });
  out.insert(out.begin(), "stall_long_scoreboard");
  return out;
}

std::vector<Counter> resolve_counters(std::span<const std::string> names, std::string_view chip,
                                      const std::function<bool(std::string_view)>& has) {
  std::vector<Counter> out;
  for (const std::string& name : names) {
    const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                  [&](const Row& known) { return name == known.name; });
    if (row == std::end(kRows)) {
      fail(ErrorCode::usage, "counter '{}': expected one of {}", name,
           fmt::join(all_counters(), ", "));
    }
    out.push_back(resolve(*row, chip, has));
  }
  return out;
}

}  // namespace fathom::cuda
