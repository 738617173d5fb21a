// SPDX-License-Identifier: Apache-2.0
// Softmax states {output, maximum, sum} and how they fold, in order. Maxima are rounded up to whole
// powers of two: moving a state to another maximum is exact, so that the order of additions alone
// decides the bits, and empty states change nothing.
#pragma once

#include "kernels/attn/attn_layout_kernel.cuh"
#include "kernels/attn/attn_mma_kernel.cuh"

namespace fathom::cuda {

inline constexpr int kAttnEmpty = -(1 << 29);  // the maximum of no token

// How a state moves to a maximum: the factors of the old state and of what is added.
struct AttnMerge {
  int max;
  float old_factor, new_factor;
  __device__ __forceinline__ AttnMerge(int old_max, int new_max)
      : max(::max(old_max, new_max)),
        old_factor(power(old_max - max)),
        new_factor(power(new_max - max)) {}
  __device__ __forceinline__ float operator()(float old_value, float new_value) const {
    return __fmaf_rn(old_value, old_factor, __fmul_rn(new_value, new_factor));
  }
  __device__ __forceinline__ float4 operator()(const float4& a, const float4& b) const {
    return make_float4((*this)(a.x, b.x), (*this)(a.y, b.y), (*this)(a.z, b.z), (*this)(a.w, b.w));
  }
  // 2^exponent, of exponents up to 0.
  __device__ __forceinline__ static float power(int exponent) {
    return __int_as_float((::max(exponent, -127) + 127) << 23);
  }
};

// Of a row, with the thread's outputs of n chunks: AttnLeaf::store says which.
template <int kN>
struct AttnState {
  float4 out[kN];
  int max;
  float sum;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kN; ++i) out[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    max = kAttnEmpty;
    sum = 0.0f;
  }
  __device__ __forceinline__ void fold(const AttnState& next) {
    const AttnMerge merge(max, next.max);
    max = merge.max;
    sum = merge(sum, next.sum);
#pragma unroll
    for (int i = 0; i < kN; ++i) out[i] = merge(out[i], next.out[i]);
  }
};

// The states of all columns in shared memory: outputs [tiles][chunks][lane][4], maxima [columns],
// sums [columns]. A position is four outputs: (tile * chunks + chunk) * 32 + lane.
template <class L>
struct AttnStored {
  const std::byte* data;

  __device__ float4& out(int position) const { return as<float4>(0)[position]; }
  __device__ int& max(int column) const { return as<int>(L::kPositions * 16)[column]; }
  __device__ float& sum(int column) const {
    return as<float>(L::kPositions * 16 + L::kColumns * 4)[column];
  }
  template <class T>
  __device__ T* as(int offset) const {
    return reinterpret_cast<T*>(const_cast<std::byte*>(data) + offset);
  }
};

// Nodes of the tree over many rounds of one block, in shared memory; a thread meets its own
// positions only.
template <class L>
class AttnLevels {
 public:
  using State = AttnState<L::kOwnChunks>;
  __device__ explicit AttnLevels(const AttnThread<L>& at) : at_(at) {}

  __device__ void clear() {
#pragma unroll
    for (int level = 0; level < L::kLevels; ++level) empty(level);
  }
  // `own` is of the tokens up to `end`, a round; it becomes that of all since clear() if these are
  // the last.
  __device__ void climb(State& own, int end, bool is_last) {
    int tokens = L::kStreams * kAttnRunTokens * 4;
#pragma unroll
    for (int level = 0; level < L::kLevels; ++level, tokens *= 4) {
      State below = own;
      load(level, own);
      own.fold(below);
      if (!is_last && (level + 1 == L::kLevels || end % tokens != 0)) {
        store(level, own);
        return;
      }
      empty(level);
    }
  }

 private:
  __device__ void empty(int level) {
    max_[level] = kAttnEmpty;
    sum_[level] = 0.0f;
    is_empty_[level] = true;
  }
  __device__ float4& out(int level, int i) const {
    return reinterpret_cast<float4*>(at_.shared + L::kLevelStates +
                                     level * L::kLevelBytes)[at_.own_position(i)];
  }
  __device__ void load(int level, State& s) const {
    s.clear();
    s.max = max_[level];
    s.sum = sum_[level];
    if (is_empty_[level]) return;
#pragma unroll
    for (int i = 0; i < L::kOwnChunks; ++i) {
      if (at_.own_chunk(i) < L::kChunks) s.out[i] = out(level, i);
    }
  }
  __device__ void store(int level, const State& s) {
    max_[level] = s.max;
    sum_[level] = s.sum;
    is_empty_[level] = false;
#pragma unroll
    for (int i = 0; i < L::kOwnChunks; ++i) {
      if (at_.own_chunk(i) < L::kChunks) out(level, i) = s.out[i];
    }
  }

  const AttnThread<L> at_;
  int max_[L::kLevels];
  float sum_[L::kLevels];
  bool is_empty_[L::kLevels];
};

// States that blocks leave for each other, one every `stride` bytes, by positions: outputs [n][4],
// then {maximum, sum} [n].
struct AttnShares {
  std::byte* data;
  int n_positions, stride;

  __device__ static constexpr int bytes(int n_positions) { return n_positions * 24; }
  __device__ AttnShares state(int i) const {
    return {data + int64_t{i} * stride, n_positions, stride};
  }
  __device__ void store(int position, const float4& out, int max, float sum) const {
    reinterpret_cast<float4*>(data)[position] = out;
    reinterpret_cast<float2*>(data + n_positions * 16)[position] =
        make_float2(__int_as_float(max), sum);
  }
  __device__ AttnState<1> load(int position) const {
    const float2 of = rest(position);
    return {{reinterpret_cast<const float4*>(data)[position]}, __float_as_int(of.x), of.y};
  }
  // Of output `component` of a position.
  __device__ float out(int position, int component) const {
    return reinterpret_cast<const float*>(data)[position * 4 + component];
  }
  __device__ float2 rest(int position) const {
    return reinterpret_cast<const float2*>(data + n_positions * 16)[position];
  }
};

// One output and the sum over n states in order: of nodes of so many tokens, four make a node of
// the next level, up to kAttnTopTokens; at most three levels. Code that runs once is slow: the loop
// is short.
struct AttnOutput {
  float out, sum;
  int max;
};
__device__ __forceinline__ AttnOutput attn_fold(const AttnShares& states, int n, int tokens,
                                                int position, int component) {
  AttnOutput all{0.0f, 0.0f, kAttnEmpty};
#pragma unroll 4
  for (int i = 0; i < n; ++i)
    all.max = max(all.max, __float_as_int(states.state(i).rest(position).x));
  const int node = tokens * 4 <= kAttnTopTokens ? 4 : 1;
  const int nodes = tokens * 16 <= kAttnTopTokens ? 16 : node;
  float2 low = make_float2(0.0f, 0.0f), high = low;  // output and sum
#pragma unroll 4
  for (int i = 0; i < n; ++i) {
    const AttnShares state = states.state(i);
    const float2 rest = state.rest(position);
    const float factor = AttnMerge::power(__float_as_int(rest.x) - all.max);
    low.x = __fmaf_rn(state.out(position, component), factor, low.x);
    low.y = __fmaf_rn(rest.y, factor, low.y);
    const int end = i + 1;
    if (end % node != 0 && end != n) continue;
    high = make_float2(__fadd_rn(high.x, low.x), __fadd_rn(high.y, low.y));
    low = make_float2(0.0f, 0.0f);
    if (end % nodes != 0 && end != n) continue;
    all.out = __fadd_rn(all.out, high.x);
    all.sum = __fadd_rn(all.sum, high.y);
    high = low;
  }
  return all;
}

}  // namespace fathom::cuda
