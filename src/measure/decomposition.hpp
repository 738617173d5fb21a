// SPDX-License-Identifier: Apache-2.0
// What the time of an op consists of, from what it declares and from peaks measured in the same
// run:
//   t = max(bytes / peak bandwidth, operations / peak rate) + exposed
// at both depths, and their differences. The bandwidth is that of the memory, or of the last-level
// cache when all that a step reads fits there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/cost.hpp"
#include "device/device_api.hpp"
#include "measure/attribution.hpp"

namespace fathom::measure {

struct Peaks {
  double memory_gbps = 0;
  std::optional<double> cache_gbps;  // of the last-level cache; empty = not measured
  std::optional<double> gflops;      // f32 multiply-adds; empty = not measured
  int64_t cache_bytes = 0;
  // Of the tensor cores of a device, as products of a warp (mma.sync) reach them.
  std::optional<double> f16_tensor_gflops{}, int8_tensor_gops{};

  std::optional<double> of(Arithmetic arithmetic) const;
};

// Where what a step reads lies when the next step begins.
enum class Residence { memory, partly_cached, cached };
const char* residence_name(Residence residence);
Residence residence_of(int64_t step_bytes, const Peaks& peaks);

struct OpCost {
  std::string op;
  int64_t bytes = 0;  // weights and cache, of all launches of a step
  int64_t flops = 0;
};

struct Parts {
  double ns = 0;
  double bytes_ns = 0;
  std::optional<double> compute_ns;  // empty where no peak belongs to the op's arithmetic
  double floor_ns() const;           // the larger of the two
  double exposed_ns() const { return ns - floor_ns(); }
};

struct Decomposition {
  std::string op;
  int64_t bytes_lo = 0, bytes_hi = 0, flops_lo = 0, flops_hi = 0;
  Parts lo, hi;
  Residence residence = Residence::memory;  // of the deeper step
  std::optional<Arithmetic> arithmetic;     // that bounds it; empty = none that was measured
  double growth_ns() const { return hi.ns - lo.ns; }
  double floor_growth_ns() const { return hi.floor_ns() - lo.floor_ns(); }
  double bytes_growth_ns() const { return hi.bytes_ns - lo.bytes_ns; }
  double exposed_growth_ns() const { return hi.exposed_ns() - lo.exposed_ns(); }
};

// `arithmetic`: with what the op computes, so that this peak bounds it; empty = with none of them.
Decomposition decompose(const OpGrowth& growth, const OpCost& lo, const OpCost& hi,
                        std::optional<Arithmetic> arithmetic, int64_t step_bytes_hi,
                        const Peaks& peaks);

}  // namespace fathom::measure
