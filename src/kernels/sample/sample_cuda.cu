// SPDX-License-Identifier: Apache-2.0
// The launcher. The request goes to the device as one small State and comes back with the answer;
// between the two everything is launched without the host, but for the sort of all candidates,
// which the host adds where the answer asks for it. In a captured step that sort has to be a
// conditional node, and the State is written by the step before.
#include <cuda_runtime.h>

#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <type_traits>
#include <vector>

#include "base/check.hpp"
#include "kernels/common/cuda_check.cuh"
#include "kernels/common/cxx20.cuh"
#include "kernels/sample/sample.hpp"
#include "kernels/sample/sample_kernel.cuh"

namespace fathom {
namespace {

using namespace sample;
static_assert(std::is_trivially_copyable_v<State>);

// Of the sort, its temporary memory: counts and look-back states; a check holds it to be enough.
int64_t sort_bytes(int64_t n) { return (int64_t{1} << 20) + 16 * n; }

unsigned blocks_of(int64_t n, int64_t per_block) {
  return static_cast<unsigned>((n + per_block - 1) / per_block);
}

// The workspace, carved.
struct Scratch {
  Memory memory{};
  float* adjusted;    // [vocab_size]
  int32_t* window;    // [vocab_size] tokens that are penalised
  LogitBias* bias;    // [vocab_size]
  uint32_t* keys[2];  // [vocab_size]
  int32_t* ids[2];    // [vocab_size]
  std::byte* sort;    // [sort_bytes]

  Scratch(Workspace workspace, int64_t n) {
    const int64_t n_blocks = sum_blocks(n);
    Memory& m = memory;
    m.state = workspace.take<State>(1);
    float* weights = workspace.take<float>(n);
    m.kept_weights = workspace.take<float>(n);
    m.kept_ids = workspace.take<int32_t>(n);
    m.kept_counts = workspace.take<int32_t>(n_blocks);
    m.prefix = workspace.take<double>(n_blocks);
    m.digit_counts = workspace.take<uint32_t>(2 * kDigits);
    m.gathered = workspace.take<uint64_t>(kCapacity);
    m.by_id = {weights, nullptr, workspace.take<double>(n_blocks), &m.state->n_list};
    m.sorted = {weights, nullptr, workspace.take<double>(n_blocks), &m.state->n_list};
    m.kept = {m.kept_weights, m.kept_ids, workspace.take<double>(n_blocks), &m.state->n_kept};
    adjusted = workspace.take<float>(n);
    window = workspace.take<int32_t>(n);
    bias = workspace.take<LogitBias>(n);
    for (uint32_t*& k : keys) k = workspace.take<uint32_t>(n);
    for (int32_t*& i : ids) i = workspace.take<int32_t>(n);
    sort = workspace.take<std::byte>(sort_bytes(n));
  }
};

struct CudaStages {
  cudaStream_t stream;
  const Scratch& scratch;
  int32_t vocab_size;
  State answer{};
  bool is_read = false;  // `answer` is what all that was launched left

  template <class... Params, class... Args>
  void launch(const char* name, void (*kernel)(Params...), unsigned blocks, int threads,
              Args... args) {
    is_read = false;
    cuda::launch(kernel, dim3(blocks), dim3(static_cast<unsigned>(threads)), 0, stream, args...);
    cuda::check_launch(name);
  }
  const Memory& memory() const { return scratch.memory; }
  unsigned list_blocks() const { return blocks_of(vocab_size, kSampleSumBlock); }

  void best() {
    launch("sample_best", sample_best_kernel, blocks_of(vocab_size, kBestElems), kBlockThreads,
           memory(), vocab_size);
  }
  void weigh(const List& list) {
    launch("sample_weigh", sample_weigh_kernel, list_blocks(), kBlockThreads, memory(), list);
  }
  void sum(const List& list) {
    launch("sample_sum", sample_sum_kernel, list_blocks(), kBlockThreads, memory(), list);
  }
  void compact(const List& list) {
    launch("sample_compact", sample_compact_kernel, list_blocks(), kBlockThreads, memory(), list);
  }
  void cut_top_p(const List& list, const double* total_sums, int64_t n_total_blocks) {
    launch("sample_cut_top_p", sample_cut_top_p_kernel, 1, kBlockThreads, memory(), list,
           total_sums, n_total_blocks);
  }
  void draw(const List& list) {
    launch("sample_draw", sample_draw_kernel, 1, kBlockThreads, memory(), list);
  }
  void digits(int pass) {
    launch("sample_digits", sample_digits_kernel, blocks_of(vocab_size, kDigitElems), kBlockThreads,
           memory(), vocab_size, pass);
  }
  void gather() {
    launch("sample_gather", sample_gather_kernel, blocks_of(vocab_size, kBestElems), kBlockThreads,
           memory(), vocab_size);
  }
  void draw_from_best() {
    launch("sample_draw_from_best", sample_draw_from_best_kernel, 1, kDrawThreads, memory());
  }
  // Stable, so that equal logits stay in the order of their ids.
  const int32_t* sort_all() {
    launch("sample_keys", sample_keys_kernel, blocks_of(vocab_size, kBlockThreads), kBlockThreads,
           memory(), vocab_size, scratch.keys[0], scratch.ids[0]);
    cub::DoubleBuffer<uint32_t> keys(scratch.keys[0], scratch.keys[1]);
    cub::DoubleBuffer<int32_t> ids(scratch.ids[0], scratch.ids[1]);
    size_t bytes = 0;
    cuda::check(
        cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, ids, vocab_size, 0, 32, stream));
    FATHOM_CHECK(static_cast<int64_t>(bytes) <= sort_bytes(vocab_size),
                 "the sort needs more memory than was planned");
    cuda::check(
        cub::DeviceRadixSort::SortPairs(scratch.sort, bytes, keys, ids, vocab_size, 0, 32, stream));
    return ids.Current();
  }
  const State& state() {
    if (is_read) return answer;
    cuda::check(
        cudaMemcpyAsync(&answer, memory().state, sizeof answer, cudaMemcpyDeviceToHost, stream));
    cuda::check(cudaStreamSynchronize(stream));
    is_read = true;
    return answer;
  }
  Status status() { return state().status; }
};

// Penalty and bias on a copy of the logits, in pieces that fit the scratch; penalties first.
void adjust(CudaStages& on, const SampleArgs& args, std::span<const int32_t> window) {
  const size_t most = static_cast<size_t>(args.s.vocab_size);
  const Scratch& scratch = on.scratch;
  cuda::check(cudaMemcpyAsync(scratch.adjusted, args.logits, most * sizeof(float),
                              cudaMemcpyDeviceToDevice, on.stream));
  const auto run = [&](size_t n_window, size_t n_bias) {
    on.launch("sample_adjust", sample_adjust_kernel, 1, kMaxThreads, args.logits,
              args.params->repeat_penalty, scratch.window, n_window, scratch.bias, n_bias,
              scratch.adjusted);
  };
  const auto copy = [&](void* to, const void* from, size_t bytes) {
    cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, on.stream));
  };
  for (; !window.empty(); window = window.subspan(std::min(most, window.size()))) {
    const auto piece = window.first(std::min(most, window.size()));
    copy(scratch.window, piece.data(), piece.size_bytes());
    run(piece.size(), 0);
  }
  const auto by_token = [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; };
  for (std::span<const LogitBias> rest = args.logit_bias; !rest.empty();) {
    std::span<const LogitBias> piece = rest.first(std::min(most, rest.size()));
    rest = rest.subspan(piece.size());
    std::vector<LogitBias> sorted;
    if (!std::is_sorted(piece.begin(), piece.end(), by_token)) {
      sorted.assign(piece.begin(), piece.end());
      std::stable_sort(sorted.begin(), sorted.end(), by_token);
      piece = sorted;
    }
    copy(scratch.bias, piece.data(), piece.size_bytes());
    cuda::check(cudaStreamSynchronize(on.stream));  // `sorted` goes
    run(0, piece.size());
  }
}

}  // namespace

int64_t workspace_bytes_cuda(const SampleArgs::Static& s) {
  constexpr int64_t kAlign = 64, kParts = 20;
  const int64_t n = s.vocab_size, n_blocks = sum_blocks(n);
  const int64_t per_token =
      4 * sizeof(float) + sizeof(LogitBias) + 2 * sizeof(uint32_t) + 3 * sizeof(int32_t);
  const int64_t per_block = sizeof(int32_t) + 4 * sizeof(double);
  const int64_t fixed =
      sizeof(State) + 2 * kDigits * sizeof(uint32_t) + kCapacity * sizeof(uint64_t);
  return n * per_token + n_blocks * per_block + fixed + sort_bytes(n) + kParts * kAlign;
}

void sample_cuda(ExecContext& ctx, const SampleArgs& args) {
  const SamplerParams& p = *args.params;
  const int64_t n = args.s.vocab_size;
  FATHOM_CHECK(n > 0 && n <= INT32_MAX, "a vocabulary has between 1 and 2^31 - 1 tokens");
  const std::span<const int32_t> window = penalty_window(args);
  validate(args.logit_bias, n);

  Scratch scratch(ctx.workspace, n);
  CudaStages on{static_cast<cudaStream_t>(ctx.stream.handle), scratch, static_cast<int32_t>(n)};
  State state;
  state.request = {p.temperature,          p.top_p, p.min_p, p.top_k, p.seed, args.position,
                   static_cast<int32_t>(n)};
  state.n_list = state.request.cuts_k() ? p.top_k : static_cast<int32_t>(n);
  cuda::check(cudaMemcpyAsync(scratch.memory.state, &state, sizeof state, cudaMemcpyHostToDevice,
                              on.stream));
  scratch.memory.logits = args.logits;
  if (!window.empty() || !args.logit_bias.empty()) {
    adjust(on, args, window);
    scratch.memory.logits = scratch.adjusted;
  }
  run_stages(on, scratch.memory, state.request);
  const State& answer = on.state();
  if (answer.status == Status::no_finite_logit) fail_without_finite_logit(answer.best);
  FATHOM_CHECK(answer.status == Status::ok, "the sampling chain did not end");
  *args.token = answer.token;
}

}  // namespace fathom
