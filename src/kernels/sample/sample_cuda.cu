// SPDX-License-Identifier: Apache-2.0
// The launcher: four launches whatever is asked for, since what that is lies on the device. None of
// them waits for the host, so that a captured step may hold them.
#include <cuda_runtime.h>

#include <type_traits>

#include "base/check.hpp"
#include "kernels/common/cuda_check.cuh"
#include "kernels/common/cxx20.cuh"
#include "kernels/sample/draw.hpp"
#include "kernels/sample/sample_kernel.cuh"

namespace fathom {
namespace {

using namespace sample;
static_assert(std::is_trivially_copyable_v<State> && std::is_trivially_copyable_v<DrawParams>);

unsigned blocks_of(int64_t n, int64_t per_block) {
  return static_cast<unsigned>((n + per_block - 1) / per_block);
}

// Carves a row's memory; with a null start it only measures.
class Carver {
 public:
  explicit Carver(std::byte* start) : start_(start) {}
  template <class T>
  T* take(int64_t n) {
    std::byte* at = start_ ? start_ + bytes_ : nullptr;
    bytes_ += (n * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return reinterpret_cast<T*>(at);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* start_;
  int64_t bytes_ = 0;
};

Memory carve(Carver& carver, int64_t n) {
  const int64_t n_blocks = sum_blocks(n);
  Memory m{};
  m.state = carver.take<State>(1);
  float* weights = carver.take<float>(n);
  m.kept_weights = carver.take<float>(n);
  m.kept_ids = carver.take<int32_t>(n);
  m.prefix = carver.take<double>(n_blocks);
  m.digit_counts = carver.take<uint32_t>(2 * kDigits);
  m.gathered = carver.take<uint64_t>(kCapacity);
  int32_t* kept = carver.take<int32_t>(n_blocks);
  m.by_id = {weights, nullptr, carver.take<double>(n_blocks), kept, &m.state->n_list};
  m.sorted = {weights, nullptr, carver.take<double>(n_blocks), kept, &m.state->n_list};
  m.kept = {m.kept_weights, m.kept_ids, carver.take<double>(n_blocks), kept, &m.state->n_kept};
  m.adjusted = carver.take<float>(n);
  for (uint32_t*& keys : m.keys) keys = carver.take<uint32_t>(n);
  for (int32_t*& ids : m.ids) ids = carver.take<int32_t>(n);
  return m;
}

int64_t row_bytes(int64_t vocab_size) {
  Carver carver(nullptr);
  carve(carver, vocab_size);
  return carver.bytes();
}

void launch(const char* name, void (*kernel)(DrawParams), unsigned blocks, int threads,
            const DrawParams& params, void* stream) {
  const dim3 grid(blocks, static_cast<unsigned>(params.args.n_rows));
  cuda::launch(kernel, grid, dim3(static_cast<unsigned>(threads)), 0, stream, params);
  cuda::check_launch(name);
}

}  // namespace

int64_t workspace_bytes_draw_cuda(const DrawArgs::Static& s) {
  return s.max_draws * row_bytes(s.vocab_size);
}

void draw_cuda(ExecContext& ctx, const DrawArgs& args) {
  const int64_t n = args.s.vocab_size;
  FATHOM_CHECK(n > 0 && n <= INT32_MAX, "a vocabulary has between 1 and 2^31 - 1 tokens");
  FATHOM_CHECK(args.n_rows >= 0 && args.n_rows <= args.s.max_draws && args.n_rows <= 65535,
               "more rows than were planned");
  if (args.n_rows == 0) return;
  DrawParams params{};
  params.args = args;
  params.row_bytes = row_bytes(n);
  Workspace workspace = ctx.workspace, counters = ctx.counters;
  Carver carver(workspace.take<std::byte>(args.n_rows * params.row_bytes));
  params.first = carve(carver, n);
  params.tallies = counters.take<Tally>(args.n_rows);
  void* const stream = ctx.stream.handle;
  launch("sample_best", sample_best_kernel, blocks_of(n, kBestElems), kBlockThreads, params,
         stream);
  launch("sample_weigh", sample_weigh_kernel, blocks_of(n, kSampleSumBlock), kBlockThreads, params,
         stream);
  launch("sample_digits", sample_digits_kernel, blocks_of(n, kDigitElems), kBlockThreads, params,
         stream);
  launch("sample_draw", sample_draw_kernel, blocks_of(n, kGatherElems), kDrawThreads, params,
         stream);
}

}  // namespace fathom
