// SPDX-License-Identifier: Apache-2.0
// What the GPU driver's management library says, opened at run time: nothing here needs a header or
// library of CUDA, and nothing is ever set, only read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fathom::measure {

struct GpuProcess {
  int64_t pid = 0;
  std::optional<int64_t> used_bytes;
};

// One GPU at one moment; empty = the driver does not say.
struct GpuState {
  std::string name, uuid;
  int64_t total_bytes = 0;
  int64_t used_bytes = 0;
  std::optional<int> sm_clock_mhz, memory_clock_mhz, max_sm_clock_mhz;
  std::optional<int> temperature_c, power_w, utilisation_pct;
  std::optional<uint64_t> throttle_bits;             // all reasons, as NVML numbers them
  std::optional<std::vector<GpuProcess>> processes;  // compute and graphics
  std::optional<bool> mig;                           // cut into instances
  std::optional<bool> vgpu;                          // shared with other machines
  std::optional<int64_t> ecc_errors;                 // uncorrected since the driver was loaded
};

// Reasons that mean a clock below what was asked for: power cap, hardware slowdown, thermal
// slowdown of software and hardware, power brake. An idle GPU's low clock is none of them.
inline constexpr uint64_t kThrottleBits = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;
// "power cap, thermal slowdown"; empty for none of those.
std::string throttle_text(uint64_t bits);

class Nvml {
 public:
  explicit Nvml(const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Why nothing can be read; empty when it can.
  const std::string& problem() const { return problem_; }
  std::string driver_version() const;
  std::vector<GpuState> read() const;
  // The two that every sample asks for; of the GPU at this place in read().
  std::optional<int> sm_clock_mhz(size_t gpu) const;
  std::optional<uint64_t> throttle_bits(size_t gpu) const;

 private:
  template <class Function>
  Function call(const char* name) const;
  std::optional<int> number(const char* name, void* device) const;
  std::optional<int> clock(const char* name, void* device, int domain) const;
  std::optional<std::vector<GpuProcess>> processes(void* device) const;
  std::optional<uint64_t> throttle_bits_of(void* device) const;
  GpuState read(void* device) const;

  void* library_ = nullptr;
  bool ready_ = false;
  std::string problem_;
  std::vector<void*> devices_;
};

}  // namespace fathom::measure
