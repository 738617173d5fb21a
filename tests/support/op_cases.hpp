// SPDX-License-Identifier: Apache-2.0
// What the tests of the CPU ops share: seeded matrices and rows, runs with poisoned scratch, and
// the sweep that holds every instruction set, thread count and number of rows to one result.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/common/cpu_kernels.hpp"
#include "kernels/exec_context.hpp"
#include "kernels/quant/cases.hpp"
#include "kernels/quant/pack.hpp"
#include "tensor/step_state.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/sanitizer.hpp"

namespace fathom::test {

inline constexpr int kMaxOpRows = 70;
inline constexpr std::array<int, 5> kOpRows{1, 2, 5, 17, kMaxOpRows};

// Pools are kept: starting threads would take most of the time.
inline ThreadPool& op_pool(int threads) {
  static ThreadPool one(1, false), three(3, false);
  return threads == 1 ? one : three;
}

// A random matrix in file layout for the reference and packed for the CPU.
struct OpMatrix {
  OpMatrix(DType type, int64_t rows, int64_t cols, Activations mode, uint64_t seed)
      : file(quant::random_weights(type, rows, cols, seed)),
        cpu(quant::plan_matrix(type, rows, cols, mode)),
        packed(static_cast<size_t>(cpu.packed_bytes)) {
    quant::pack_matrix(op_pool(1), cpu, file.data(), packed.data());
    cpu.data = packed.data();
    reference = cpu;
    reference.data = file.data();
    reference.packed_type = type;
    reference.packed_bytes = reference.file_bytes;
  }

  std::vector<std::byte> file;
  PackedMatrix cpu, reference;
  std::vector<std::byte> packed;
};

// Values in [low, high), for norms and biases.
inline std::vector<float> uniform_values(int64_t n, float low, float high, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> value(low, high);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = value(random);
  return out;
}
inline std::vector<float> poisoned(int64_t n) {
  return std::vector<float>(static_cast<size_t>(n), std::nanf(""));
}

// The rows as a product with `w` reads them: through int8 blocks and back, or as they are.
inline std::vector<float> seen_by(const PackedMatrix& w, const std::vector<float>& rows) {
  if (takes_float_activations(w.packed_type)) return rows;
  std::vector<ActBlock> blocks(rows.size() / kActBlockElems);
  select_cpu_kernels("scalar").elementwise.quantize(rows.data(), static_cast<int64_t>(rows.size()),
                                                    blocks.data());
  std::vector<float> out(rows.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const ActBlock& block = blocks[i / kActBlockElems];
    out[i] = block.d * static_cast<float>(block.q[i % kActBlockElems]);
  }
  return out;
}

inline std::vector<float> rms_norm_rows(const std::vector<float>& x, const std::vector<float>& norm,
                                        float eps) {
  std::vector<float> out(x.size());
  for (size_t at = 0; at < x.size(); at += norm.size()) {
    select_cpu_kernels("scalar").elementwise.rms_norm(
        x.data() + at, norm.data(), eps, static_cast<int64_t>(norm.size()), out.data() + at);
  }
  return out;
}

// Calls a CPU op with scratch of the planned size, every float of it NaN.
template <class Args>
void run_cpu_op(void (*op)(ExecContext&, const Args&), const Args& args, const CpuKernels& isa,
                int threads, int64_t workspace_bytes) {
  std::vector<ActBlock> scratch(static_cast<size_t>(workspace_bytes / 64 + 1));
  std::memset(static_cast<void*>(scratch.data()), 0xff, scratch.size() * sizeof(ActBlock));
  ExecContext ctx;
  ctx.pool = &op_pool(threads);
  ctx.cpu = &isa;
  ctx.workspace = {reinterpret_cast<std::byte*>(scratch.data()), workspace_bytes};
  op(ctx, args);
}

// run(isa, threads, n_rows) gives `width` values a row. All runs have the bits of the first rows
// of the scalar one with most rows, and that one is close to `expected`. Under the thread sanitizer
// one instruction set and three threads, on one row, which is made by each, and on several.
template <class Run>
void expect_one_result(const std::vector<float>& expected, size_t width, double tolerance,
                       const Run& run) {
  ASSERT_TRUE(meaningful(expected, width));
  if constexpr (kThreadSanitizer) {
    const CpuKernels& best = *available_cpu_kernels().front();
    const std::vector<float> base = run(best, 3, kMaxOpRows);
    EXPECT_TRUE(close(base, expected, tolerance));
    EXPECT_TRUE(same_bits(run(best, 3, 1), std::span(base).first(width)));
    return;
  }
  const std::vector<float> base = run(select_cpu_kernels("scalar"), 1, kMaxOpRows);
  EXPECT_TRUE(close(base, expected, tolerance));
  for (const CpuKernels* isa : available_cpu_kernels()) {
    for (const int threads : {1, 3}) {
      for (const int n_rows : kOpRows) {
        const std::vector<float> got = run(*isa, threads, n_rows);
        EXPECT_TRUE(same_bits(got, std::span(base).first(n_rows * width)))
            << isa->isa << ", " << threads << " threads, " << n_rows << " rows";
      }
    }
  }
}

inline const std::vector<DType>& op_formats() {
  static const std::vector<DType> kTypes{DType::f32,  DType::f16,  DType::q4_1,
                                         DType::q8_0, DType::q4_k, DType::q6_k};
  return kTypes;
}
// Columns that are whole blocks of the type, and an odd number where it has no blocks.
inline int64_t op_cols(DType type) { return dtype_info(type).block_elems == 1 ? 33 : 256; }

inline std::string mode_name(Activations mode) {
  return mode == Activations::int8 ? "int8" : "f32";
}

}  // namespace fathom::test
