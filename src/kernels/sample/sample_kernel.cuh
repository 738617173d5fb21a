// SPDX-License-Identifier: Apache-2.0
// The launches of the sampling chain: each kernel gives its blocks of threads to the functions of
// sample_chain.cuh; blockIdx.y is the row of logits. What one launch leaves to the next lies in the
// row's State; a launch that has nothing to do for a row returns at once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <nv/target>

#include "kernels/common/arch.cuh"
#include "kernels/common/cxx20.cuh"
#include "kernels/sample/sample_chain.cuh"
#include "tensor/step_ring.hpp"

namespace fathom::sample {

inline constexpr int kBlockThreads = 256;
inline constexpr int kBestPairs = 2;  // of logits, a thread of the first launch
inline constexpr int kBestElems = 2 * kBestPairs * kBlockThreads;
inline constexpr int kDigitElems = 8 * kBlockThreads;  // of the second digit's launch
inline constexpr int kDrawThreads = kMaxThreads;       // of the block that draws
inline constexpr int kGatherElems = 4 * kDrawThreads;

// What the blocks of a row agree on by atomics; zero between draws.
struct Tally {
  unsigned long long best;  // the largest complement of a candidate's key
  unsigned long long logits_sum;
  uint32_t any_not_finite;
  uint32_t n_done;  // blocks of a launch that are through
};

struct DrawParams {
  DrawArgs args;
  Memory first;       // of row 0
  int64_t row_bytes;  // from one row's memory to the next
  Tally* tallies;     // [n_rows]

  template <class T>
  __device__ static T* moved(T* p, int64_t bytes) {
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(p) + static_cast<uint64_t>(bytes));
  }
  __device__ static List moved(const List& list, int64_t bytes) {
    return {moved(list.weights, bytes), list.ids ? moved(list.ids, bytes) : nullptr,
            moved(list.sums, bytes), moved(list.kept, bytes), moved(list.n, bytes)};
  }
  __device__ Memory memory(int64_t row) const {
    const int64_t by = row * row_bytes;
    return {moved(first.state, by),
            moved(first.by_id, by),
            moved(first.sorted, by),
            moved(first.kept, by),
            moved(first.kept_weights, by),
            moved(first.kept_ids, by),
            moved(first.prefix, by),
            moved(first.digit_counts, by),
            moved(first.gathered, by),
            moved(first.adjusted, by),
            {moved(first.keys[0], by), moved(first.keys[1], by)},
            {moved(first.ids[0], by), moved(first.ids[1], by)}};
  }
  __device__ const float* logits(int64_t row) const {
    return args.logits + row * args.s.vocab_size;
  }
  // What is drawn from.
  __device__ const float* adjusted(const DrawRequest& r, const Memory& m, int64_t row) const {
    return is_adjusted(r) ? m.adjusted : logits(row);
  }
  __device__ int32_t vocab_size() const { return static_cast<int32_t>(args.s.vocab_size); }
  // The answer goes to the host and to the step that follows; by one thread.
  __device__ void publish(const State& s, const DrawRequest& r, int64_t row) const {
    const int64_t place = (*args.n_steps - 1) % kStepRing;
    args.drawn[place * args.s.max_draws + row] = s.drawn;
    args.newest[r.slot] = s.drawn.status == Status::ok ? s.drawn.token : 0;
  }
};

// All threads of a block.
struct BlockGroup {
  FATHOM_HD int rank() const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return static_cast<int>(threadIdx.x);), (return 0;))
  }
  FATHOM_HD int size() const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return static_cast<int>(blockDim.x);), (return 1;))
  }
  FATHOM_HD void sync() const { NV_IF_TARGET(NV_IS_DEVICE, (__syncthreads();)) }
};

// All that came before is complete; the next launch may get ready meanwhile.
__device__ __forceinline__ void begin_launch() {
  cuda::pdl_wait();
  cuda::pdl_launch_dependents();
}

// Whether this block is the last of its row to get here; it sees what the others wrote by atomics,
// and through __ldcg what they stored.
__device__ __forceinline__ bool is_last_block(Tally& tally) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(&tally.n_done, 1u) == gridDim.x - 1;
    if (last) tally.n_done = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// Of a warp's values; lane 0 has it.
template <class Combine>
__device__ __forceinline__ unsigned long long warp_fold(unsigned long long value,
                                                        const Combine& combine) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value = combine(value, __shfl_down_sync(0xffffffffu, value, lanes));
  }
  return value;
}

// Penalty and bias, the best candidate of all, and what the host wants to know of the logits;
// clears the histograms. Greedy ends here.
__global__ void __launch_bounds__(kBlockThreads) sample_best_kernel(DrawParams p) {
  __shared__ float tile[kBestElems];
  __shared__ unsigned long long warp_best[kBlockThreads / 32], warp_sum[kBlockThreads / 32];
  begin_launch();
  const int64_t row = blockIdx.y;
  const DrawRequest r = p.args.requests[row];
  if (!r.is_wanted) return;
  const Memory m = p.memory(row);
  const float* logits = p.logits(row);
  const int tid = static_cast<int>(threadIdx.x), vocab_size = p.vocab_size();
  const int64_t begin = int64_t{blockIdx.x} * kBestElems;
  if (r.temperature > 0) {
    for (unsigned i = blockIdx.x * kBlockThreads + threadIdx.x; i < 2 * kDigits;
         i += gridDim.x * kBlockThreads) {
      m.digit_counts[i] = 0;
    }
  }

  unsigned long long sum = 0;
  bool not_finite = false;
#pragma unroll
  for (int i = 0; i < kBestPairs; ++i) {
    const int at = 2 * (i * kBlockThreads + tid);
    const int64_t id = begin + at;
    if (id >= vocab_size) break;
    uint32_t bits[2] = {0, 0};
    for (int j = 0; j < 2 && id + j < vocab_size; ++j) {
      tile[at + j] = logits[id + j];
      bits[j] = __float_as_uint(tile[at + j]);
      not_finite |= (bits[j] & 0x7f800000u) == 0x7f800000u;
    }
    sum += logits_sum_term(static_cast<uint32_t>(id), bits[0], bits[1]);
  }
  not_finite = __syncthreads_or(not_finite);
  const int64_t n = smaller(vocab_size - begin, kBestElems);
  if (is_adjusted(r)) {
    adjust_tile(BlockGroup{}, r, logits, p.args.history + r.slot * p.args.s.n_ctx, begin, n, tile);
    for (int64_t i = tid; i < n; i += kBlockThreads) m.adjusted[begin + i] = tile[i];
  }
  unsigned long long best = 0;
  for (int64_t i = tid; i < n; i += kBlockThreads) {
    const unsigned long long key = ~candidate_key(tile[i], static_cast<int32_t>(begin + i));
    if (key > best) best = key;
  }
  const auto larger = [](auto a, auto b) { return a > b ? a : b; };
  best = warp_fold(best, larger);
  sum = warp_fold(sum, [](auto a, auto b) { return a + b; });
  if (tid % 32 == 0) {
    warp_best[tid / 32] = best;
    warp_sum[tid / 32] = sum;
  }
  __syncthreads();
  Tally& tally = p.tallies[row];
  if (tid == 0) {
    for (int warp = 1; warp < kBlockThreads / 32; ++warp) {
      best = larger(best, warp_best[warp]);
      sum += warp_sum[warp];
    }
    atomicMax(&tally.best, best);
    atomicAdd(&tally.logits_sum, sum);
    if (not_finite) atomicOr(&tally.any_not_finite, 1u);
  }
  if (!is_last_block(tally) || tid != 0) return;
  const int32_t token = candidate_id(~atomicExch(&tally.best, 0ull));
  State& s = *m.state;
  finish_best(s, request_of(r, vocab_size), token, __ldcg(p.adjusted(r, m, row) + token));
  s.drawn.logits_sum = atomicExch(&tally.logits_sum, 0ull);
  s.drawn.any_not_finite = atomicExch(&tally.any_not_finite, 0u);
  if (!s.goes_on()) p.publish(s, r, row);
}

// Counts of a digit: of the block's logits into `all`, and the digit itself once all are counted.
__device__ __forceinline__ void count_digits(const State& view, State& s, Tally& tally,
                                             const float* logits, int64_t begin, int64_t n,
                                             int pass, uint32_t* all, DigitScratch& scratch) {
  for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kBlockThreads) {
    scratch.counts[i] = 0;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n; i += kBlockThreads) {
    const int digit = counted_digit(view, logits[begin + i], pass);
    if (digit >= 0) atomicAdd(&scratch.counts[digit], 1u);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kBlockThreads) {
    if (scratch.counts[i] > 0) atomicAdd(&all[i], scratch.counts[i]);
  }
  if (!is_last_block(tally)) return;
  for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kBlockThreads) {
    scratch.counts[i] = __ldcg(&all[i]);
  }
  __syncthreads();
  finish_digits(BlockGroup{}, s, pass, scratch);
}

// Weights by id where somebody sums them, and the first digit of the bound.
__global__ void __launch_bounds__(kBlockThreads) sample_weigh_kernel(DrawParams p) {
  __shared__ ListScratch list_scratch;
  __shared__ DigitScratch digit_scratch;
  begin_launch();
  const int64_t row = blockIdx.y;
  const DrawRequest r = p.args.requests[row];
  if (!r.is_wanted || !(r.temperature > 0)) return;
  const Memory m = p.memory(row);
  const State view = *m.state;  // no block changes what others read before all have counted
  if (!view.goes_on()) return;
  const float* logits = p.adjusted(r, m, row);
  if (!view.request.cuts_k()) {
    weigh_block(BlockGroup{}, view, logits, m.by_id, blockIdx.x, list_scratch);
  }
  if (!view.request.seeks_best()) return;
  const int64_t begin = int64_t{blockIdx.x} * kSampleSumBlock;
  count_digits(view, *m.state, p.tallies[row], logits, begin,
               smaller(p.vocab_size() - begin, kSampleSumBlock), 0, m.digit_counts, digit_scratch);
}

// The second digit.
__global__ void __launch_bounds__(kBlockThreads) sample_digits_kernel(DrawParams p) {
  __shared__ DigitScratch scratch;
  begin_launch();
  const int64_t row = blockIdx.y;
  const DrawRequest r = p.args.requests[row];
  if (!r.is_wanted || !(r.temperature > 0)) return;
  const Memory m = p.memory(row);
  const State view = *m.state;
  if (!view.goes_on() || !view.request.seeks_best()) return;
  const int64_t begin = int64_t{blockIdx.x} * kDigitElems;
  count_digits(view, *m.state, p.tallies[row], p.adjusted(r, m, row), begin,
               smaller(p.vocab_size() - begin, kDigitElems), 1, m.digit_counts + kDigits, scratch);
}

// --- The sort of everything ----------------------------------------------------------------------

inline constexpr int kSortBits = 8, kSortDigits = 1 << kSortBits;

struct SortScratch {
  uint32_t places[kDrawThreads / 32][kSortDigits];  // where a warp puts its next of a digit
  uint32_t warp_sums[kSortDigits / 32];
};

// Walks the warp's run of keys in order: put(place, key, id), where places[digit] counts up.
template <class Put>
__device__ __forceinline__ void each_place(const uint32_t* keys, const int32_t* ids, int64_t begin,
                                           int64_t end, int shift, uint32_t* places,
                                           const Put& put) {
  constexpr int kAhead = 4;  // loads under way
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int64_t i = begin; i < end; i += 32 * kAhead) {
    uint32_t key[kAhead];
    int32_t id[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int64_t at = i + 32 * j + lane;
      key[j] = at < end ? keys[at] : 0;
      id[j] = at < end ? ids[at] : 0;
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const bool is_there = i + 32 * j + lane < end;
      const uint32_t digit = key[j] >> shift & (kSortDigits - 1);
      // Lanes behind the end have a digit of their own.
      const uint32_t same = __match_any_sync(0xffffffffu, is_there ? digit : kSortDigits);
      const uint32_t lower = same & ((1u << lane) - 1);
      const uint32_t first = is_there ? places[digit] : 0;
      __syncwarp();
      if (is_there && lower == 0) places[digit] = first + __popc(same);
      if (is_there) put(first + __popc(lower), key[j], id[j]);
      __syncwarp();
    }
  }
}

// By all kDrawThreads: ids of the n logits in the order of preference. Four stable passes from the
// lowest digit; each warp has a run of the keys and, per digit, a place to put its next one.
__device__ __forceinline__ const int32_t* sort_everything(const Memory& m, const float* logits,
                                                          int64_t n, SortScratch& scratch) {
  constexpr int kWarps = kDrawThreads / 32;
  const int tid = static_cast<int>(threadIdx.x), warp = tid / 32;
  for (int64_t i = tid; i < n; i += kDrawThreads) {
    m.keys[0][i] = logit_key(logits[i]);
    m.ids[0][i] = static_cast<int32_t>(i);
  }
  const int64_t run = (n + kWarps - 1) / kWarps;
  const int64_t begin = smaller(warp * run, n), end = smaller(begin + run, n);
  uint32_t* places = scratch.places[warp];
  for (int pass = 0; pass < 32 / kSortBits; ++pass) {
    const int from = pass % 2, to = 1 - from, shift = pass * kSortBits;
    for (int i = tid % 32; i < kSortDigits; i += 32) places[i] = 0;
    __syncthreads();  // the keys are there too
    each_place(m.keys[from], m.ids[from], begin, end, shift, places,
               [](uint32_t, uint32_t, int32_t) {});
    __syncthreads();
    // Counts to places: by digit, and within a digit by warp.
    uint32_t total = 0, before = 0;
    if (tid < kSortDigits) {
      for (int w = 0; w < kWarps; ++w) total += scratch.places[w][tid];
      before = total;
      for (int lanes = 1; lanes < 32; lanes *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, before, lanes);
        if (tid % 32 >= lanes) before += other;
      }
      if (tid % 32 == 31) scratch.warp_sums[warp] = before;
      before -= total;
    }
    __syncthreads();
    if (tid < kSortDigits) {
      for (int w = 0; w < warp; ++w) before += scratch.warp_sums[w];
      for (int w = 0; w < kWarps; ++w) {
        const uint32_t count = scratch.places[w][tid];
        scratch.places[w][tid] = before;
        before += count;
      }
    }
    __syncthreads();
    each_place(m.keys[from], m.ids[from], begin, end, shift, places,
               [&](uint32_t place, uint32_t key, int32_t id) {
                 m.keys[to][place] = key;
                 m.ids[to][place] = id;
               });
    __syncthreads();
  }
  return m.ids[0];
}

// Gathers the candidates within the bound; the last block draws.
__global__ void __launch_bounds__(kDrawThreads) sample_draw_kernel(DrawParams p) {
  union Scratch {
    FinishScratch finish;
    SortScratch sort;
  };
  __shared__ Scratch scratch;
  begin_launch();
  const int64_t row = blockIdx.y;
  const DrawRequest r = p.args.requests[row];
  if (!r.is_wanted || !(r.temperature > 0)) return;
  const Memory m = p.memory(row);
  const State view = *m.state;
  if (!view.goes_on()) return;
  const float* logits = p.adjusted(r, m, row);
  const bool seeks = view.request.seeks_best() && view.needs_no_sort();
  if (seeks) {
    const int64_t begin = int64_t{blockIdx.x} * kGatherElems + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kGatherElems / kDrawThreads; ++i) {
      const int64_t id = begin + i * kDrawThreads;
      if (id >= p.vocab_size()) break;
      const float logit = logits[id];
      if (!within_bound(view, logit)) continue;
      const uint32_t at = atomicAdd(&m.state->n_gathered, 1u);
      if (at < kCapacity) m.gathered[at] = candidate_key(logit, static_cast<int32_t>(id));
    }
  }
  if (!is_last_block(p.tallies[row])) return;
  const int n_gathered = seeks ? static_cast<int>(__ldcg(&m.state->n_gathered)) : 0;
  for (int i = static_cast<int>(threadIdx.x); i < n_gathered; i += kDrawThreads) {
    scratch.finish.best.keys[i] = __ldcg(reinterpret_cast<unsigned long long*>(&m.gathered[i]));
  }
  __syncthreads();
  finish_draw(BlockGroup{}, m, logits, n_gathered, scratch.finish,
              [&] { return sort_everything(m, logits, p.vocab_size(), scratch.sort); });
  __syncthreads();
  if (threadIdx.x == 0) p.publish(*m.state, r, row);
}

}  // namespace fathom::sample
