// SPDX-License-Identifier: Apache-2.0
// Byte time, compute time, and the rest.
#include "measure/decomposition.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace fathom::measure {
namespace {

Parts parts_of(double ns, const OpCost& cost, double gbps, std::optional<double> gflops) {
  Parts parts{.ns = ns, .bytes_ns = static_cast<double>(cost.bytes) / gbps, .compute_ns = {}};
  if (gflops) parts.compute_ns = static_cast<double>(cost.flops) / *gflops;
  return parts;
}

}  // namespace

std::optional<double> Peaks::of(Arithmetic arithmetic) const {
  switch (arithmetic) {
    case Arithmetic::f32:
      return gflops;
    case Arithmetic::f16_tensor:
      return f16_tensor_gflops;
    case Arithmetic::int8_tensor:
      return int8_tensor_gops;
  }
  return std::nullopt;
}

const char* residence_name(Residence residence) {
  constexpr const char* kNames[] = {"memory", "partly cached", "cached"};
  return kNames[static_cast<int>(residence)];
}

Residence residence_of(int64_t step_bytes, const Peaks& peaks) {
  if (step_bytes <= peaks.cache_bytes) return Residence::cached;
  return step_bytes < 2 * peaks.cache_bytes ? Residence::partly_cached : Residence::memory;
}

double Parts::floor_ns() const { return std::max(bytes_ns, compute_ns.value_or(0)); }

Decomposition decompose(const OpGrowth& growth, const OpCost& lo, const OpCost& hi,
                        std::optional<Arithmetic> arithmetic, int64_t step_bytes_hi,
                        const Peaks& peaks) {
  FATHOM_CHECK(peaks.memory_gbps > 0, "a decomposition needs the memory's bandwidth");
  Decomposition out{.op = growth.op,
                    .bytes_lo = lo.bytes,
                    .bytes_hi = hi.bytes,
                    .flops_lo = lo.flops,
                    .flops_hi = hi.flops,
                    .lo = {},
                    .hi = {},
                    .residence = residence_of(step_bytes_hi, peaks),
                    .arithmetic = arithmetic};
  // What may come from the cache is set against the cache: a floor must not be too high.
  const double gbps = out.residence == Residence::memory
                          ? peaks.memory_gbps
                          : std::max(peaks.memory_gbps, peaks.cache_gbps.value_or(0));
  const std::optional<double> gflops = arithmetic ? peaks.of(*arithmetic) : std::nullopt;
  out.lo = parts_of(growth.lo_ns, lo, gbps, gflops);
  out.hi = parts_of(growth.hi_ns, hi, gbps, gflops);
  return out;
}

}  // namespace fathom::measure
