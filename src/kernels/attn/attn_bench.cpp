// SPDX-License-Identifier: Apache-2.0
// Attention of one decode row on every instruction set that this machine has, two threads, over
// layers whose caches together exceed the last-level cache: GB/s of the cached keys and values and
// GMAC/s. read_stream is the ceiling for the former. "cached" repeats one layer of 512 tokens that
// stays in the second-level caches: what the arithmetic allows.
#include <benchmark/benchmark.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>

#include "device/host_device.hpp"
#include "kernels/attn/attn.hpp"
#include "kernels/common/cpu_kernels.hpp"
#include "kernels/common/kv_ref.hpp"
#include "measure/read_bandwidth.hpp"

namespace fathom {
namespace {

constexpr int kThreads = 2;
constexpr int kTokens = 4096;
constexpr int kCachedTokens = 512;

struct Shape {
  const char* name;
  int n_heads, n_kv_heads, head_dim;
};
constexpr Shape kShapes[] = {
    {"smollm2-135m", 9, 3, 64}, {"qwen2.5-0.5b", 14, 2, 64}, {"llama-3.1-8b", 32, 8, 128}};

ThreadPool& pool() {
  static ThreadPool p(kThreads);
  return p;
}

// Keys or values of n_layers layers. Blocks of 64 random tokens repeat: contents do not matter to
// speed, making hundreds of MB of them would take longer than the measurement.
class Cache {
 public:
  Cache(const KvGeometry& geometry, KvPart part, int n_layers)
      : bytes_(geometry.page_bytes() * n_layers),
        data_(static_cast<std::byte*>(host_device().alloc(bytes_))) {
    constexpr int kBase = 64;
    KvGeometry base = geometry;
    base.page_tokens = kBase;
    std::vector<std::byte> block(static_cast<size_t>(base.page_bytes()));
    const KvLayerView view{base, block.data(), block.data()};
    std::mt19937_64 random(part == KvPart::key ? 1 : 2);
    std::normal_distribution<double> normal;
    std::vector<double> head(static_cast<size_t>(geometry.head_dim));
    const int32_t page = 0;
    for (int token = 0; token < kBase; ++token) {
      for (int kv_head = 0; kv_head < geometry.n_kv_heads; ++kv_head) {
        for (double& x : head) x = normal(random);
        kv_store_ref(view, part, &page, kv_head, token, head.data());
      }
    }
    for (int64_t at = 0; at < bytes_; at += base.head_bytes()) {
      std::copy_n(block.data(), std::min(base.head_bytes(), bytes_ - at), data_ + at);
    }
  }
  ~Cache() { host_device().free(data_, bytes_); }
  std::byte* data() const { return data_; }

 private:
  int64_t bytes_;
  std::byte* data_;
};

void run(benchmark::State& state, const CpuKernels* isa, Shape shape, KvFormat format, int n_tokens,
         int64_t target_bytes) {
  AttnArgs args{};
  AttnArgs::Static& s = args.s;
  s.n_heads = shape.n_heads;
  s.n_kv_heads = shape.n_kv_heads;
  s.head_dim = shape.head_dim;
  s.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  s.max_rows = 1;
  s.n_ctx = n_tokens;
  s.kv.geometry = {format, shape.n_kv_heads, shape.head_dim, n_tokens};
  const int64_t layer_bytes = 2 * s.kv.geometry.page_bytes();
  const int n_layers = static_cast<int>(std::max<int64_t>(1, target_bytes / layer_bytes));
  const Cache k(s.kv.geometry, KvPart::key, n_layers), v(s.kv.geometry, KvPart::value, n_layers);
  s.kv.k = k.data();
  s.kv.v = v.data();

  int32_t page = 0;
  const int32_t token = 0, slot = 0, position = n_tokens - 1;
  StepState step{};
  step.n_rows = 1;
  step.max_pages = 1;
  step.token = &token;
  step.pos = &position;
  step.slot = &slot;
  step.page_table = &page;
  args.step = &step;
  std::vector<float> q(static_cast<size_t>(shape.n_heads * shape.head_dim)), out(q.size());
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  for (float& x : q) x = normal(random);
  args.q = q.data();
  args.out = out.data();

  std::vector<std::byte> workspace(static_cast<size_t>(workspace_bytes_cpu(s)));
  ExecContext ctx;
  ctx.pool = &pool();
  ctx.cpu = isa;
  ctx.workspace = {workspace.data(), static_cast<int64_t>(workspace.size())};
  for (auto _ : state) {
    page = (page + 1) % n_layers;
    attn_cpu(ctx, args);
    benchmark::DoNotOptimize(out.data());
  }
  using benchmark::Counter;
  const double pairs = 2.0 * n_tokens * shape.n_heads * shape.head_dim;
  state.counters["GB/s"] = Counter(1e-9 * layer_bytes * state.iterations(), Counter::kIsRate);
  state.counters["GMAC/s"] = Counter(1e-9 * pairs * state.iterations(), Counter::kIsRate);
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
    for (const Shape& shape : kShapes) {
      for (const KvFormat format : {KvFormat::f16, KvFormat::q8_0, KvFormat::fp8_e4m3}) {
        const std::string name =
            std::string(isa->isa) + "/" + shape.name + "/" + kv_format_name(format);
        benchmark::RegisterBenchmark(("decode/" + name).c_str(), [=](benchmark::State& state) {
          run(state, isa, shape, format, kTokens, measure::beyond_cache_bytes());
        })->UseRealTime();
        benchmark::RegisterBenchmark(("cached/" + name).c_str(), [=](benchmark::State& state) {
          run(state, isa, shape, format, kCachedTokens, 1);
        })->UseRealTime();
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
