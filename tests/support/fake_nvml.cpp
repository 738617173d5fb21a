// SPDX-License-Identifier: Apache-2.0
// A GPU driver's management library that says what the file $FAKE_NVML tells it to, so that what
// Fathom makes of processes, clocks and errors can be tested without a GPU. Lines of the file:
//   name, uuid, total, used, sm_clock, max_sm_clock, memory_clock, temperature, power_mw,
//   utilisation, throttle, mig, virtualisation, ecc   followed by their value
//   process PID BYTES      bytes -1 = not known; any number of them
//   without FUNCTION       that function answers that it is not supported
// One GPU; a fixture that cannot be read is a driver that does not answer.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0, kNotSupported = 3, kInsufficientSize = 7, kUnknown = 999;

struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

struct Fixture {
  std::map<std::string, std::string> values;
  std::set<std::string> without;
  std::vector<ProcessInfo> processes;
  bool read = false;
};

Fixture fixture() {
  Fixture out;
  const char* path = std::getenv("FAKE_NVML");
  std::ifstream file(path ? path : "");
  out.read = static_cast<bool>(file);
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string key, value;
    in >> key;
    std::getline(in >> std::ws, value);
    if (key == "without") {
      out.without.insert(value);
    } else if (key == "process") {
      std::istringstream numbers(value);
      long long pid = 0, bytes = 0;
      numbers >> pid >> bytes;
      out.processes.push_back(
          {static_cast<unsigned>(pid), static_cast<unsigned long long>(bytes), 0, 0});
    } else {
      out.values[key] = value;
    }
  }
  return out;
}

bool has(const char* function) { return !fixture().without.count(function); }

long long number(const char* key) {
  const Fixture f = fixture();
  const auto found = f.values.find(key);
  return found == f.values.end() ? 0 : std::atoll(found->second.c_str());
}

int text(const char* function, const char* key, char* out, unsigned size) {
  if (!has(function)) return kNotSupported;
  const Fixture f = fixture();
  const auto found = f.values.find(key);
  std::strncpy(out, found == f.values.end() ? "" : found->second.c_str(), size);
  out[size - 1] = 0;
  return kSuccess;
}

int one(const char* function, const char* key, unsigned* out) {
  if (!has(function)) return kNotSupported;
  *out = static_cast<unsigned>(number(key));
  return kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return fixture().read ? kSuccess : kUnknown; }
int nvmlShutdown() { return kSuccess; }
int nvmlSystemGetDriverVersion(char* out, unsigned size) {
  std::strncpy(out, "580.00", size);
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 1;
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned, void** device) {
  static int gpu;
  *device = &gpu;
  return kSuccess;
}
int nvmlDeviceGetName(void*, char* out, unsigned size) {
  return text("nvmlDeviceGetName", "name", out, size);
}
int nvmlDeviceGetUUID(void*, char* out, unsigned size) {
  return text("nvmlDeviceGetUUID", "uuid", out, size);
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {  // total, free, used
  memory[0] = static_cast<unsigned long long>(number("total"));
  memory[2] = static_cast<unsigned long long>(number("used"));
  memory[1] = memory[0] - memory[2];
  return kSuccess;
}
int nvmlDeviceGetClockInfo(void*, int domain, unsigned* mhz) {
  return one("nvmlDeviceGetClockInfo", domain == 2 ? "memory_clock" : "sm_clock", mhz);
}
int nvmlDeviceGetMaxClockInfo(void*, int, unsigned* mhz) {
  return one("nvmlDeviceGetMaxClockInfo", "max_sm_clock", mhz);
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  return one("nvmlDeviceGetTemperature", "temperature", celsius);
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  return one("nvmlDeviceGetPowerUsage", "power_mw", milliwatts);
}
int nvmlDeviceGetUtilizationRates(void*, unsigned* rates) {  // of the GPU, of its memory
  rates[1] = 0;
  return one("nvmlDeviceGetUtilizationRates", "utilisation", rates);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* bits) {
  if (!has("nvmlDeviceGetCurrentClocksThrottleReasons")) return kNotSupported;
  *bits = static_cast<unsigned long long>(number("throttle"));
  return kSuccess;
}
int nvmlDeviceGetMigMode(void*, unsigned* current, unsigned* pending) {
  *pending = 0;
  return one("nvmlDeviceGetMigMode", "mig", current);
}
int nvmlDeviceGetVirtualizationMode(void*, unsigned* mode) {
  return one("nvmlDeviceGetVirtualizationMode", "virtualisation", mode);
}
int nvmlDeviceGetTotalEccErrors(void*, int, int, unsigned long long* errors) {
  if (!has("nvmlDeviceGetTotalEccErrors")) return kNotSupported;
  *errors = static_cast<unsigned long long>(number("ecc"));
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, ProcessInfo* out) {
  if (!has("nvmlDeviceGetComputeRunningProcesses_v3")) return kNotSupported;
  const std::vector<ProcessInfo> found = fixture().processes;
  const unsigned room = *count;
  *count = static_cast<unsigned>(found.size());
  if (room < found.size()) return kInsufficientSize;
  if (!found.empty()) std::memcpy(out, found.data(), found.size() * sizeof(ProcessInfo));
  return kSuccess;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void*, unsigned* count, ProcessInfo*) {
  *count = 0;
  return kSuccess;
}

}  // extern "C"
