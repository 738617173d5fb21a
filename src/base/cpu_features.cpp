// SPDX-License-Identifier: Apache-2.0
// Which CPUID flags each instruction set needs, and the list of sets from best to plainest.
#include "base/cpu_features.hpp"

#include <algorithm>
#include <iterator>

namespace fathom {
namespace {

// The flags that the files of each set are compiled with (cmake/isa.cmake).
bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

bool has_avx512() {
#if defined(__x86_64__)
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
#else
  return false;
#endif
}

}  // namespace

std::span<const CpuIsa> cpu_isas() {
  static const CpuIsa kIsas[] = {
      {"avx512", "AVX-512 F, BW, DQ, VL, VNNI and VBMI", has_avx512()},
      {"avx2", "AVX2, FMA, F16C and BMI2", has_avx2()},
      {"scalar", "nothing", true},
  };
  return kIsas;
}

bool cpu_isa_usable(std::string_view name) {
  const std::span<const CpuIsa> isas = cpu_isas();
  return std::any_of(isas.begin(), isas.end(),
                     [&](const CpuIsa& isa) { return isa.usable && name == isa.name; });
}

bool cpu_reads_ahead() {
#if defined(__x86_64__)
  static const bool kAmd = __builtin_cpu_is("amd");
  return kAmd;
#else
  return false;
#endif
}

}  // namespace fathom
