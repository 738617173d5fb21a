// SPDX-License-Identifier: Apache-2.0
// Bytes generated per second by one thread, by format: writing a model should wait for the disk.
#include <benchmark/benchmark.h>

#include <vector>

#include "convert/random_blocks.hpp"

namespace fathom::convert {
namespace {

void generate(benchmark::State& state, DTypeInfo info) {
  const int64_t n_blocks = (1 << 20) / info.block_bytes;
  std::vector<std::byte> out(static_cast<size_t>(n_blocks * info.block_bytes));
  const BlockGenerator generator(info.type, 1, 0.02);
  int64_t first = 0;
  for (auto _ : state) {
    generator.fill(first, n_blocks, out.data());
    benchmark::ClobberMemory();
    first += n_blocks;
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(out.size()));
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const DTypeInfo& info : all_dtypes()) {
    benchmark::RegisterBenchmark(info.name, generate, info);
  }
  return true;
}();

}  // namespace
}  // namespace fathom::convert

BENCHMARK_MAIN();
