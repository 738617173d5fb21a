// SPDX-License-Identifier: Apache-2.0
// The launches of the sampling chain: each kernel gives its blocks of threads to the functions of
// sample_chain.cuh. What one launch leaves to the next lies in the State; a launch that an earlier
// one has made needless returns at once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <nv/target>

#include "kernels/common/arch.cuh"
#include "kernels/common/cxx20.cuh"
#include "kernels/sample/sample_chain.cuh"

namespace fathom::sample {

using cuda::pdl_wait;

inline constexpr int kBlockThreads = 256;
inline constexpr int kBestElems = 4 * kBlockThreads;   // logits of a block of the first launch
inline constexpr int kDigitElems = 8 * kBlockThreads;  // of a histogram's launch
inline constexpr int kDrawThreads = kMaxThreads;       // of the block that sorts

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

// Whether this block is the last of its launch to get here; it sees what the others wrote by
// atomics, and through __ldcg what they stored.
__device__ __forceinline__ bool is_last_block(State& s) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(&s.n_done, 1u) == gridDim.x - 1;
    if (last) s.n_done = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// The best candidate of all; clears the histograms.
__global__ void __launch_bounds__(kBlockThreads) sample_best_kernel(Memory m, int32_t vocab_size) {
  __shared__ unsigned long long warp_best[kBlockThreads / 32];
  pdl_wait();
  const int tid = static_cast<int>(threadIdx.x);
  for (unsigned i = blockIdx.x * kBlockThreads + threadIdx.x; i < 2 * kDigits;
       i += gridDim.x * kBlockThreads) {
    m.digit_counts[i] = 0;
  }
  unsigned long long best = ~0ull;
  const int64_t begin = int64_t{blockIdx.x} * kBestElems + tid;
#pragma unroll
  for (int i = 0; i < kBestElems / kBlockThreads; ++i) {
    const int64_t id = begin + i * kBlockThreads;
    if (id >= vocab_size) break;
    const unsigned long long key = candidate_key(m.logits[id], static_cast<int32_t>(id));
    if (key < best) best = key;
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const unsigned long long other = __shfl_down_sync(0xffffffffu, best, lanes);
    if (other < best) best = other;
  }
  if (tid % 32 == 0) warp_best[tid / 32] = best;
  __syncthreads();
  auto* best_key = reinterpret_cast<unsigned long long*>(&m.state->best_key);
  if (tid == 0) {
    for (const unsigned long long other : warp_best) {
      if (other < best) best = other;
    }
    atomicMin(best_key, best);
  }
  if (!is_last_block(*m.state) || tid != 0) return;
  m.state->best_key = atomicMin(best_key, ~0ull);  // reads it where the atomics are done
  finish_best(*m.state, m.logits);
}

__global__ void __launch_bounds__(kMaxThreads)
    sample_adjust_kernel(const float* logits, float repeat_penalty, const int32_t* window,
                         int64_t n_window, const LogitBias* bias, int64_t n_bias, float* out) {
  pdl_wait();
  adjust_logits(BlockGroup{}, logits, repeat_penalty, window, n_window, bias, n_bias, out);
}

__global__ void __launch_bounds__(kBlockThreads) sample_weigh_kernel(Memory m, List list) {
  __shared__ ListScratch scratch;
  pdl_wait();
  if (!m.state->goes_on()) return;
  weigh_block(BlockGroup{}, *m.state, m.logits, list, blockIdx.x, m.kept_counts, scratch);
}

__global__ void __launch_bounds__(kBlockThreads) sample_sum_kernel(Memory m, List list) {
  __shared__ ListScratch scratch;
  pdl_wait();
  if (!m.state->goes_on()) return;
  sum_block(BlockGroup{}, list, blockIdx.x, scratch);
}

__global__ void __launch_bounds__(kBlockThreads) sample_compact_kernel(Memory m, List list) {
  __shared__ ListScratch scratch;
  pdl_wait();
  if (!m.state->goes_on()) return;
  compact_block(BlockGroup{}, *m.state, list, m.kept_counts, blockIdx.x, m.kept_weights, m.kept_ids,
                scratch);
}

__global__ void __launch_bounds__(kBlockThreads)
    sample_cut_top_p_kernel(Memory m, List list, const double* total_sums, int64_t n_total_blocks) {
  __shared__ DrawScratch scratch;
  pdl_wait();
  if (!m.state->goes_on()) return;
  cut_top_p(BlockGroup{}, *m.state, list, total_sums, n_total_blocks, scratch);
}

__global__ void __launch_bounds__(kBlockThreads) sample_draw_kernel(Memory m, List list) {
  __shared__ DrawScratch scratch;
  pdl_wait();
  if (!m.state->goes_on()) return;
  draw_token(BlockGroup{}, *m.state, list, m.prefix, scratch);
}

__global__ void __launch_bounds__(kBlockThreads)
    sample_digits_kernel(Memory m, int32_t vocab_size, int pass) {
  __shared__ DigitScratch scratch;
  pdl_wait();
  const State view = *m.state;  // no block changes what others read before all have counted
  if (view.status != Status::ok) return;
  for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kBlockThreads) {
    scratch.counts[i] = 0;
  }
  __syncthreads();
  const int64_t begin = int64_t{blockIdx.x} * kDigitElems + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kDigitElems / kBlockThreads; ++i) {
    const int64_t id = begin + i * kBlockThreads;
    if (id >= vocab_size) break;
    const int digit = counted_digit(view, m.logits[id], pass);
    if (digit >= 0) atomicAdd(&scratch.counts[digit], 1u);
  }
  __syncthreads();
  uint32_t* all = m.digit_counts + pass * kDigits;
  for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kBlockThreads) {
    if (scratch.counts[i] > 0) atomicAdd(&all[i], scratch.counts[i]);
  }
  if (!is_last_block(*m.state)) return;
  for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kBlockThreads) {
    scratch.counts[i] = __ldcg(&all[i]);
  }
  __syncthreads();
  finish_digits(BlockGroup{}, *m.state, pass, scratch);
}

__global__ void __launch_bounds__(kBlockThreads)
    sample_gather_kernel(Memory m, int32_t vocab_size) {
  pdl_wait();
  const State view = *m.state;
  if (view.status != Status::ok) return;
  const int64_t begin = int64_t{blockIdx.x} * kBestElems + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kBestElems / kBlockThreads; ++i) {
    const int64_t id = begin + i * kBlockThreads;
    if (id >= vocab_size) break;
    const float logit = m.logits[id];
    if (!within_bound(view, logit)) continue;
    const uint32_t at = atomicAdd(&m.state->n_gathered, 1u);
    if (at < kCapacity) m.gathered[at] = candidate_key(logit, static_cast<int32_t>(id));
  }
}

__global__ void __launch_bounds__(kDrawThreads) sample_draw_from_best_kernel(Memory m) {
  __shared__ BestScratch scratch;
  pdl_wait();
  if (m.state->status != Status::ok) return;
  draw_from_best(BlockGroup{}, *m.state, m.logits, m.gathered, m.by_id.sums, scratch);
}

__global__ void __launch_bounds__(kBlockThreads)
    sample_keys_kernel(Memory m, int32_t vocab_size, uint32_t* keys, int32_t* ids) {
  pdl_wait();
  const int64_t id = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (id >= vocab_size) return;
  keys[id] = logit_key(m.logits[id]);
  ids[id] = static_cast<int32_t>(id);
}

}  // namespace fathom::sample
