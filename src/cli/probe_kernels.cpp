// SPDX-License-Identifier: Apache-2.0
// The child's windows, and what crosses the pipe.
#include "cli/probe_kernels.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "cli/child_process.hpp"
#include "cli/interrupt.hpp"
#include "cli/probe_figures.hpp"
#include "cli/terminal.hpp"

namespace fathom::cli {

using measure::CallTimes;
using measure::ProbeMemory;

bool has_kernels_apart(const ProbeCommand& c, const ProbeResults& results) {
  if (c.is_sweep() || !c.backend.trace_source || !c.backend.has_graphs) return false;
  return std::ranges::any_of(results, [](const SizeResult& r) {
    return r.times &&
           std::ranges::any_of(r.times->kernels, [](const auto& call) { return call.size() > 1; });
  });
}

void add_kernels_apart(const ProbeCommand& c, ProbeResults& results) {
  const ChildResult child = run_child(c.context.arguments, {kKernelsChildFlag});
  if (child.status != 0) {
    write_stderr_line(fmt::format(
        "the kernels of a call are not timed apart: the process that watches them ended with "
        "status {}",
        child.status));
    return;
  }
  const Json all = parse_json(child.text, "the records of the process that watches");
  if (all.size() != results.size()) {
    fail(ErrorCode::internal, "the process that watches saw {} sizes, not {}", all.size(),
         results.size());
  }
  for (size_t i = 0; i < results.size(); ++i) results[i].calls = calls_from_json(all[i]);
}

Json watch_kernels(const ProbeCommand& c, const measure::Machine& machine, TraceSource& source) {
  const Stream stream = make_stream(*c.backend.device);
  const measure::ProbeDevice device{c.backend, *c.set.variants.front().pool, stream.get()};
  measure::ProbeOptions options;
  options.memories = c.memories;
  options.cache_bytes = probe_cache_bytes(c.backend, machine);
  options.budget_bytes = probe_budget_bytes(c.backend);
  Json out = Json::array();
  for (measure::ProbeInput input : c.formats) {
    for (const measure::ProbeSize& size : c.timed) {
      if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
      input.size = size;
      out.push_back(calls_json(measure::probe_kernels(probed_op(c.flags), input, c.set.variants,
                                                      device, source, options)));
    }
  }
  return out;
}

Json calls_json(const std::vector<CallTimes>& calls) {
  Json out = Json::array();
  for (const CallTimes& call : calls) {
    Json kernels = Json::array();
    for (const measure::KernelTimes& kernel : call.kernels)
      kernels.push_back({{"kernel", kernel.kernel}, {"values_us", kernel.us}});
    out.push_back({{"variant", call.variant},
                   {"memory", measure::probe_memory_name(call.memory)},
                   {"kernels", kernels}});
  }
  return out;
}

std::vector<CallTimes> calls_from_json(const Json& json) {
  std::vector<CallTimes> out;
  try {
    for (const Json& call : json) {
      CallTimes& times = out.emplace_back();
      times.variant = call.at("variant");
      times.memory = call.at("memory") == "hot" ? ProbeMemory::hot : ProbeMemory::cold;
      for (const Json& kernel : call.at("kernels"))
        times.kernels.push_back({kernel.at("kernel"), kernel.at("values_us")});
    }
  } catch (const Json::exception& e) {
    fail(ErrorCode::internal, "the process that watches sent something else: {}", e.what());
  }
  return out;
}

}  // namespace fathom::cli
