// SPDX-License-Identifier: Apache-2.0
// What `probe` and `attribute --confirm` both need of a probe: the read ceilings beside it, how
// much memory its operands may take, and what its times come to.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "device/backend.hpp"
#include "measure/cached_bandwidth.hpp"
#include "measure/device_bandwidth.hpp"
#include "measure/machine.hpp"
#include "measure/probe.hpp"
#include "measure/read_bandwidth.hpp"
#include "measure/statistics.hpp"

namespace fathom::cli {

// Of the last level, in front of the backend's memory.
int64_t probe_cache_bytes(const Backend& backend, const measure::Machine& machine);
// For all sets of operands.
int64_t probe_budget_bytes(const Backend& backend);

// The read ceilings of the memory and of its cache, on the host or on the device.
class ProbeCeilingSamplers {
 public:
  ProbeCeilingSamplers(const Backend& backend, int threads, int64_t cache_bytes);
  measure::ProbeCeilings functions();

 private:
  std::unique_ptr<measure::ReadBandwidth> host_, host_cached_;
  std::unique_ptr<measure::DeviceBandwidth> device_;
  std::unique_ptr<measure::CachedBandwidth> device_cached_;
};

// Of a variant's times in one kind of memory.
struct ProbeFigures {
  double us = 0, gbps = 0;
  measure::Interval us_ci{};
  std::optional<double> peak_gbps, share;  // of the memory level's ceiling, a median over rounds
};
std::optional<ProbeFigures> figures_of(const measure::ProbeTimes& times, int variant,
                                       measure::ProbeMemory memory, uint64_t seed);

// Of a variant's times over the base's, round by round.
struct ProbeRatio {
  double value = 1;
  measure::Interval ci{1, 1};
};
std::optional<ProbeRatio> ratio_of(std::span<const double> us, std::span<const double> base);

}  // namespace fathom::cli
