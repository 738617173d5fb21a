// SPDX-License-Identifier: Apache-2.0
// The prototypes of the library's functions, as the header of CUDA 13 gives them, and their calls.
#include "measure/nvml.hpp"

#include <dlfcn.h>

#include <algorithm>

namespace fathom::measure {
namespace {

enum NvmlStatus { kSuccess = 0, kNotSupported = 3, kInsufficientSize = 7 };
constexpr int kSmDomain = 1, kMemoryDomain = 2;

// nvmlProcessInfo_t of the functions ending in _v3.
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned long long kUnknownBytes = ~0ull;

}  // namespace

std::string throttle_text(uint64_t bits) {
  static constexpr struct {
    uint64_t bit;
    const char* text;
  } kReasons[] = {{0x4, "power cap"},
                  {0x8, "hardware slowdown"},
                  {0x20, "thermal slowdown"},
                  {0x40, "hardware thermal slowdown"},
                  {0x80, "power brake"}};
  std::string text;
  for (const auto& reason : kReasons) {
    if (bits & reason.bit) text += (text.empty() ? "" : ", ") + std::string(reason.text);
  }
  return text;
}

// A missing symbol becomes a function that reports failure.
template <class Function>
Function Nvml::call(const char* name) const {
  if (void* symbol = dlsym(library_, name)) return reinterpret_cast<Function>(symbol);
  return [](auto...) { return -1; };
}

Nvml::Nvml(const char* library) : library_(dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
  if (!library_) {
    problem_ = "no NVIDIA driver (libnvidia-ml.so.1 is not found)";
    return;
  }
  ready_ = call<int (*)()>("nvmlInit_v2")() == kSuccess;
  if (!ready_) {
    problem_ = "the NVIDIA driver's library is here, but no driver answers";
    return;
  }
  unsigned count = 0;
  call<int (*)(unsigned*)>("nvmlDeviceGetCount_v2")(&count);
  for (unsigned index = 0; index < count; ++index) {
    void* device = nullptr;
    if (call<int (*)(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2")(index, &device) ==
        kSuccess) {
      devices_.push_back(device);
    }
  }
  if (devices_.empty()) problem_ = "the NVIDIA driver lists no GPU";
}

Nvml::~Nvml() {
  if (ready_) call<int (*)()>("nvmlShutdown")();
  if (library_) dlclose(library_);
}

std::string Nvml::driver_version() const {
  char text[96] = {};
  if (!ready_ || call<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion")(text, sizeof text)) {
    return "";
  }
  return text;
}

std::vector<GpuState> Nvml::read() const {
  std::vector<GpuState> states;
  for (void* device : devices_) states.push_back(read(device));
  return states;
}

std::optional<int> Nvml::sm_clock_mhz(size_t gpu) const {
  if (gpu >= devices_.size()) return {};
  return clock("nvmlDeviceGetClockInfo", devices_[gpu], kSmDomain);
}

std::optional<uint64_t> Nvml::throttle_bits(size_t gpu) const {
  if (gpu >= devices_.size()) return {};
  return throttle_bits_of(devices_[gpu]);
}

std::optional<int> Nvml::number(const char* name, void* device) const {
  unsigned value = 0;
  if (call<int (*)(void*, unsigned*)>(name)(device, &value) != kSuccess) return {};
  return static_cast<int>(value);
}

std::optional<int> Nvml::clock(const char* name, void* device, int domain) const {
  unsigned mhz = 0;
  if (call<int (*)(void*, int, unsigned*)>(name)(device, domain, &mhz) != kSuccess) return {};
  return static_cast<int>(mhz);
}

std::optional<uint64_t> Nvml::throttle_bits_of(void* device) const {
  for (const char* name :
       {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"}) {
    unsigned long long bits = 0;
    if (call<int (*)(void*, unsigned long long*)>(name)(device, &bits) == kSuccess) return bits;
  }
  return {};
}

std::optional<std::vector<GpuProcess>> Nvml::processes(void* device) const {
  std::vector<GpuProcess> found;
  for (const char* name :
       {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"}) {
    const auto ask = call<int (*)(void*, unsigned*, ProcessInfo*)>(name);
    std::vector<ProcessInfo> infos(16);
    unsigned count = static_cast<unsigned>(infos.size());
    int status = ask(device, &count, infos.data());
    for (int again = 0; status == kInsufficientSize && again < 4; ++again) {  // they come and go
      infos.resize(2 * std::max<size_t>(count, infos.size()));
      count = static_cast<unsigned>(infos.size());
      status = ask(device, &count, infos.data());
    }
    if (status != kSuccess || count > infos.size()) return {};
    for (unsigned i = 0; i < count; ++i) {
      const auto same = [&](const GpuProcess& process) { return process.pid == infos[i].pid; };
      if (std::any_of(found.begin(), found.end(), same)) continue;
      GpuProcess process{infos[i].pid, {}};
      if (infos[i].used_bytes != kUnknownBytes) {
        process.used_bytes = static_cast<int64_t>(infos[i].used_bytes);
      }
      found.push_back(process);
    }
  }
  return found;
}

GpuState Nvml::read(void* device) const {
  GpuState gpu;
  char text[96] = {};
  using TextCall = int (*)(void*, char*, unsigned);
  if (call<TextCall>("nvmlDeviceGetName")(device, text, sizeof text) == kSuccess) gpu.name = text;
  if (call<TextCall>("nvmlDeviceGetUUID")(device, text, sizeof text) == kSuccess) gpu.uuid = text;
  struct {
    unsigned long long total, free, used;
  } memory{};
  call<int (*)(void*, void*)>("nvmlDeviceGetMemoryInfo")(device, &memory);
  gpu.total_bytes = static_cast<int64_t>(memory.total);
  gpu.used_bytes = static_cast<int64_t>(memory.used);
  gpu.sm_clock_mhz = clock("nvmlDeviceGetClockInfo", device, kSmDomain);
  gpu.memory_clock_mhz = clock("nvmlDeviceGetClockInfo", device, kMemoryDomain);
  gpu.max_sm_clock_mhz = clock("nvmlDeviceGetMaxClockInfo", device, kSmDomain);
  unsigned celsius = 0;
  constexpr int kOfTheChip = 0;
  if (call<int (*)(void*, int, unsigned*)>("nvmlDeviceGetTemperature")(device, kOfTheChip,
                                                                       &celsius) == kSuccess) {
    gpu.temperature_c = static_cast<int>(celsius);
  }
  if (const auto milliwatts = number("nvmlDeviceGetPowerUsage", device)) {
    gpu.power_w = *milliwatts / 1000;
  }
  struct {
    unsigned gpu, memory;
  } busy{};
  if (call<int (*)(void*, void*)>("nvmlDeviceGetUtilizationRates")(device, &busy) == kSuccess) {
    gpu.utilisation_pct = static_cast<int>(busy.gpu);
  }
  gpu.throttle_bits = throttle_bits_of(device);
  gpu.processes = processes(device);
  unsigned mig = 0, pending = 0;
  const int mig_status =
      call<int (*)(void*, unsigned*, unsigned*)>("nvmlDeviceGetMigMode")(device, &mig, &pending);
  if (mig_status == kSuccess) gpu.mig = mig != 0;
  if (mig_status == kNotSupported) gpu.mig = false;
  constexpr int kGuestOfVgpu = 2;
  int virtualised = 0;
  if (call<int (*)(void*, int*)>("nvmlDeviceGetVirtualizationMode")(device, &virtualised) ==
      kSuccess) {
    gpu.vgpu = virtualised == kGuestOfVgpu;
  }
  constexpr int kUncorrected = 1, kSinceLoaded = 0;
  unsigned long long errors = 0;
  if (call<int (*)(void*, int, int, unsigned long long*)>("nvmlDeviceGetTotalEccErrors")(
          device, kUncorrected, kSinceLoaded, &errors) == kSuccess) {
    gpu.ecc_errors = static_cast<int64_t>(errors);
  }
  return gpu;
}

}  // namespace fathom::measure
