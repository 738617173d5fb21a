// SPDX-License-Identifier: Apache-2.0
// Fills one table of kernels per instruction set and picks by cpuid.
#include "kernels/common/cpu_kernels.hpp"

#include <array>
#include <string>
#include <vector>

#include "base/cpu_features.hpp"
#include "base/error.hpp"
#include "kernels/attn/attn_tables.hpp"
#include "kernels/common/elementwise_tables.hpp"
#include "kernels/quant/matmul_tables.hpp"

namespace fathom {
namespace {

struct Isa {
  const char* name;  // as in base/cpu_features.hpp, best first
  void (*fill_matmul)(MatmulFn*);
  ElementwiseKernels (*elementwise)();
  AttnKernels (*attn)();
};

constexpr Isa kIsas[] = {
    {"avx512", quant::fill_matmul_avx512, elementwise_avx512, attn_kernels_avx512},
    {"avx2", quant::fill_matmul_avx2, elementwise_avx2, attn_kernels_avx2},
    {"scalar", quant::fill_matmul_scalar, elementwise_scalar, attn_kernels_scalar},
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
      if (cpu_isa_usable(kIsas[i].name)) out.push_back(&table_of(i));
    }
    return out;
  }();
  return kAvailable;
}

const CpuKernels& select_cpu_kernels(std::string_view isa) {
  if (isa.empty()) return *available_cpu_kernels().front();
  for (size_t i = 0; i < kIsaCount; ++i) {
    if (isa == kIsas[i].name && cpu_isa_usable(isa)) return table_of(i);
  }
  std::string known;
  for (const CpuIsa& candidate : cpu_isas()) {
    if (isa == candidate.name) {
      fail(ErrorCode::unavailable,
           "--isa {}: this machine lacks {}; leave --isa out for its best set, {}", isa,
           candidate.needs, available_cpu_kernels().front()->isa);
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", candidate.name);
  }
  fail(ErrorCode::usage, "--isa {}: unknown instruction set; known: {}", isa, known);
}

}  // namespace fathom
