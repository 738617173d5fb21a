// SPDX-License-Identifier: Apache-2.0
// Byte time, compute time, and the rest.
#include "measure/decomposition.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace fathom::measure {
namespace {

Parts parts_of(double ns, const OpCost& cost, bool f32, double gbps, const Peaks& peaks) {
  Parts parts{.ns = ns, .bytes_ns = static_cast<double>(cost.bytes) / gbps, .compute_ns = {}};
  if (f32 && peaks.gflops) parts.compute_ns = static_cast<double>(cost.flops) / *peaks.gflops;
  return parts;
}

}  // namespace

const char* residence_name(Residence residence) {
  constexpr const char* kNames[] = {"memory", "partly cached", "cached"};
  return kNames[static_cast<int>(residence)];
}

Residence residence_of(int64_t step_bytes, const Peaks& peaks) {
  if (step_bytes <= peaks.cache_bytes) return Residence::cached;
  return step_bytes < 2 * peaks.cache_bytes ? Residence::partly_cached : Residence::memory;
}

double Parts::floor_ns() const { return std::max(bytes_ns, compute_ns.value_or(0)); }

Decomposition decompose(const OpGrowth& growth, const OpCost& lo, const OpCost& hi, bool f32,
                        int64_t step_bytes_hi, const Peaks& peaks) {
  FATHOM_CHECK(peaks.memory_gbps > 0, "a decomposition needs the memory's bandwidth");
  Decomposition out{.op = growth.op,
                    .bytes_lo = lo.bytes,
                    .bytes_hi = hi.bytes,
                    .flops_lo = lo.flops,
                    .flops_hi = hi.flops,
                    .lo = {},
                    .hi = {},
                    .residence = residence_of(step_bytes_hi, peaks)};
  // What may come from the cache is set against the cache: a floor must not be too high.
  const double gbps = out.residence == Residence::memory
                          ? peaks.memory_gbps
                          : std::max(peaks.memory_gbps, peaks.cache_gbps.value_or(0));
  out.lo = parts_of(growth.lo_ns, lo, f32, gbps, peaks);
  out.hi = parts_of(growth.hi_ns, hi, f32, gbps, peaks);
  return out;
}

}  // namespace fathom::measure
