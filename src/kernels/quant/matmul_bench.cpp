// SPDX-License-Identifier: Apache-2.0
// Products of every format on every instruction set that this machine has, two threads: decode (one
// activation row, a matrix beyond the last-level cache, GB/s of file bytes; read_stream is its
// ceiling), cached (the same on a matrix that stays in the second-level caches: what the arithmetic
// allows) and prefill (256 rows, GMAC/s).
#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "device/host_device.hpp"
#include "kernels/common/act_rows_cpu.hpp"
#include "kernels/quant/cases.hpp"
#include "kernels/quant/pack.hpp"
#include "measure/read_bandwidth.hpp"

namespace fathom {
namespace {

constexpr int kThreads = 2;
constexpr int64_t kCols = 1792;

ThreadPool& pool() {
  static ThreadPool p(kThreads);
  return p;
}

// A matrix whose rows repeat a small random one: contents do not matter to speed, making 128 MB of
// random codes for each format would.
struct Weights {
  PackedMatrix w;
  std::byte* data;

  Weights(DType type, int64_t rows) {
    constexpr int64_t kBase = 256;
    const std::vector<std::byte> file = quant::random_weights(type, kBase, kCols, 3);
    const PackedMatrix base = quant::plan_matrix(type, kBase, kCols, Activations::int8);
    std::vector<std::byte> packed(static_cast<size_t>(base.packed_bytes));
    quant::pack_matrix(pool(), base, file.data(), packed.data());
    w = quant::plan_matrix(type, rows, kCols, Activations::int8);
    data = static_cast<std::byte*>(host_device().alloc(w.packed_bytes));
    for (int64_t at = 0; at < w.packed_bytes; at += base.packed_bytes) {
      const int64_t n = std::min(base.packed_bytes, w.packed_bytes - at);
      std::copy_n(packed.data(), n, data + at);
    }
    w.data = data;
  }
  ~Weights() { host_device().free(data, w.packed_bytes); }
};

void run(benchmark::State& state, const CpuKernels* isa, DType type, int64_t n_act,
         int64_t target_bytes) {
  const int64_t row = row_bytes(type, kCols);
  const Weights weights(type, std::max<int64_t>(1, target_bytes / row / 256) * 256);
  const std::vector<float> values = quant::random_activations(n_act * kCols, 5);
  std::vector<ActBlock> blocks(static_cast<size_t>(n_act * kCols / kActBlockElems));
  for (int64_t a = 0; a < n_act; ++a) {
    isa->elementwise.quantize(values.data() + a * kCols, kCols,
                              blocks.data() + a * kCols / kActBlockElems);
  }
  const ActRows act{blocks.data(), values.data(), kCols};
  std::vector<float> out(static_cast<size_t>(n_act * weights.w.rows));
  ExecContext ctx;
  ctx.pool = &pool();
  ctx.cpu = isa;
  const int64_t n_groups = row_groups(weights.w);
  for (auto _ : state) {
    Chunks chunks(n_groups,
                  matmul_grain(n_groups, weights.w.packed_bytes / n_groups, n_act, kThreads));
    pool().run([&](Team&) {
      run_matmuls(ctx, chunks, {{&weights.w, out.data(), weights.w.rows}}, act, n_act,
                  [](const MatmulRun&) {});
    });
    benchmark::DoNotOptimize(out.data());
  }
  using benchmark::Counter;
  state.counters["GB/s"] =
      Counter(1e-9 * weights.w.file_bytes * state.iterations(), Counter::kIsRate);
  state.counters["GMAC/s"] =
      Counter(1e-9 * weights.w.rows * kCols * n_act * state.iterations(), Counter::kIsRate);
}

void read_stream(benchmark::State& state) {
  static measure::ReadBandwidth stream({.threads = kThreads, .buffer_bytes = 0});
  double sum = 0;                                       // the mean, as the rates beside it are
  for (auto _ : state) sum += stream.sample_gbps(0.0);  // one pass
  state.counters["GB/s"] = sum / static_cast<double>(state.iterations());
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
  using namespace fathom;
  benchmark::Initialize(&argc, argv);
  benchmark::RegisterBenchmark("read_stream", read_stream)->UseRealTime();
  for (const CpuKernels* isa : available_cpu_kernels()) {
    if (std::string_view(isa->isa) == "scalar") continue;
    for (const DTypeInfo& info : all_dtypes()) {
      const DType type = info.type;
      const std::string name = std::string(isa->isa) + "/" + info.name;
      benchmark::RegisterBenchmark(("decode/" + name).c_str(), [=](benchmark::State& s) {
        run(s, isa, type, 1, measure::beyond_cache_bytes());
      })->UseRealTime();
      benchmark::RegisterBenchmark(("cached/" + name).c_str(), [=](benchmark::State& s) {
        run(s, isa, type, 1, 512 << 10);
      })->UseRealTime();
      benchmark::RegisterBenchmark(("prefill/" + name).c_str(), [=](benchmark::State& s) {
        run(s, isa, type, 256, 1 << 20);
      })->UseRealTime();
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
