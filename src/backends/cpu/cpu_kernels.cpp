// SPDX-License-Identifier: Apache-2.0
// Fills one table of kernels per instruction set and picks by cpuid.
#include "kernels/common/cpu_kernels.hpp"

#include <array>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "kernels/attn/attn_tables.hpp"
#include "kernels/common/elementwise_tables.hpp"
#include "kernels/quant/matmul_tables.hpp"

namespace fathom {
namespace {

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
}
bool always() { return true; }

struct Isa {
  const char* name;
  const char* needs;
  bool (*available)();
  void (*fill_matmul)(MatmulFn*);
  ElementwiseKernels (*elementwise)();
  AttnKernels (*attn)();
};

// Best first.
constexpr Isa kIsas[] = {
    {"avx512", "AVX-512 F, BW, DQ, VL, VNNI and VBMI", has_avx512, quant::fill_matmul_avx512,
     elementwise_avx512, attn_kernels_avx512},
    {"avx2", "AVX2, FMA, F16C and BMI2", has_avx2, quant::fill_matmul_avx2, elementwise_avx2,
     attn_kernels_avx2},
    {"scalar", "nothing", always, quant::fill_matmul_scalar, elementwise_scalar,
     attn_kernels_scalar},
};
constexpr size_t kIsaCount = std::size(kIsas);

const CpuKernels& table_of(size_t index) {
  static const std::array<CpuKernels, kIsaCount> kTables = [] {
    std::array<CpuKernels, kIsaCount> tables{};
    for (size_t i = 0; i < kIsaCount; ++i) {
      tables[i].isa = kIsas[i].name;
      kIsas[i].fill_matmul(tables[i].matmul);
      tables[i].elementwise = kIsas[i].elementwise();
      tables[i].attn = kIsas[i].attn();
    }
    return tables;
  }();
  return kTables[index];
}

}  // namespace

std::span<const CpuKernels* const> available_cpu_kernels() {
  static const std::vector<const CpuKernels*> kAvailable = [] {
    std::vector<const CpuKernels*> out;
    for (size_t i = 0; i < kIsaCount; ++i) {
      if (kIsas[i].available()) out.push_back(&table_of(i));
    }
    return out;
  }();
  return kAvailable;
}

const CpuKernels& select_cpu_kernels(std::string_view isa) {
  if (isa.empty()) return *available_cpu_kernels().front();
  std::string known;
  for (size_t i = 0; i < kIsaCount; ++i) {
    if (isa == kIsas[i].name) {
      if (kIsas[i].available()) return table_of(i);
      fail(ErrorCode::unavailable,
           "--isa {}: this machine lacks {}; leave --isa out for its best set, {}", isa,
           kIsas[i].needs, available_cpu_kernels().front()->isa);
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", kIsas[i].name);
  }
  fail(ErrorCode::usage, "--isa {}: unknown instruction set; known: {}", isa, known);
}

}  // namespace fathom
