// SPDX-License-Identifier: Apache-2.0
// Softmax states {output, maximum, sum} and how they fold, in order: a node of the reduction tree
// starts empty and takes the states below one after the other. Empty ones change nothing.
#pragma once

#include "kernels/attn/attn_layout_kernel.cuh"
#include "kernels/attn/attn_mma_kernel.cuh"

namespace fathom::cuda {

// How a state moves to a maximum: the factors of the old state and of what is added.
struct AttnMerge {
  float max, old_factor, new_factor;
  __device__ __forceinline__ AttnMerge(float old_max, float new_max) {
    max = fmaxf(old_max, new_max);
    const float shift = max == -INFINITY ? 0.0f : max;  // both empty: factors of zero
    old_factor = attn_exp2(__fsub_rn(old_max, shift));
    new_factor = attn_exp2(__fsub_rn(new_max, shift));
  }
  __device__ __forceinline__ float operator()(float old_value, float new_value) const {
    return __fmaf_rn(old_value, old_factor, __fmul_rn(new_value, new_factor));
  }
  __device__ __forceinline__ float4 operator()(const float4& a, const float4& b) const {
    return make_float4((*this)(a.x, b.x), (*this)(a.y, b.y), (*this)(a.z, b.z), (*this)(a.w, b.w));
  }
};

// Of a row, with the thread's outputs of n chunks: AttnLeaf::dim says which.
template <int kN>
struct AttnState {
  float4 out[kN];
  float max, sum;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kN; ++i) out[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    max = -INFINITY;
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

// The states of all columns as they lie in memory: outputs [tiles][chunks][lane][4], maxima
// [columns], sums [columns].
template <class L>
struct AttnStored {
  float* data;

  __device__ float4& out(const AttnThread<L>& at, int chunk) const {
    return reinterpret_cast<float4*>(data)[(static_cast<int>(at.tile) * L::kChunks + chunk) * 32 +
                                           static_cast<int>(at.lane)];
  }
  __device__ float& max(const AttnThread<L>& at) const {
    return data[L::kColumnTiles * L::kChunks * 128 + at.tile * kAttnKernelColumns + at.row];
  }
  __device__ float& sum(const AttnThread<L>& at) const { return (&max(at))[L::kColumns]; }
};

// States that one block folds over many rounds, in shared memory; a thread meets its own only.
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
    constexpr int kTokens[] = {kAttnNodeTokens, kAttnSuperTokens, 1 << 30};
#pragma unroll
    for (int level = 0; level < L::kLevels; ++level) {
      State below = own;
      load(level, own);
      own.fold(below);
      if (!is_last && end % kTokens[3 - L::kLevels + level] != 0) {
        store(level, own);
        return;
      }
      empty(level);
    }
  }

 private:
  __device__ void empty(int level) {
    max_[level] = -INFINITY;
    sum_[level] = 0.0f;
    is_empty_[level] = true;
  }
  __device__ float4& out(int level, int i) const {
    return reinterpret_cast<float4*>(
        at_.shared + L::kLevelStates +
        level * L::kLevelBytes)[(static_cast<int>(at_.tile) * L::kChunks + at_.own_chunk(i)) * 32 +
                                static_cast<int>(at_.lane)];
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
  float max_[L::kLevels], sum_[L::kLevels];
  bool is_empty_[L::kLevels];
};

// States that blocks leave for each other in scratch.
template <class L>
class AttnSlots {
 public:
  using State = AttnState<L::kOwnChunks>;
  __device__ explicit AttnSlots(const AttnThread<L>& at) : at_(at) {}

  __device__ void store(int slot, const State& s) const {
    const AttnStored<L> to = stored(slot);
#pragma unroll
    for (int i = 0; i < L::kOwnChunks; ++i) {
      if (at_.own_chunk(i) < L::kChunks) to.out(at_, at_.own_chunk(i)) = s.out[i];
    }
    if (at_.stream != 0 || at_.quad != 0) return;
    to.max(at_) = s.max;
    to.sum(at_) = s.sum;
  }

  // Whether this block is the last of n to say so. REQUIRES: all threads call it.
  __device__ bool is_last(unsigned* counter, int n) const {
    int* flag = reinterpret_cast<int*>(at_.shared + L::kScan + L::kWarps * 32);
    __syncthreads();  // all have stored
    if (threadIdx.x == 0) *flag = attn_is_last(counter, n);
    __syncthreads();
    return *flag != 0;
  }

  // The states of n slots, every stride-th from `first`, in order. Runs of four make a node of
  // their own if `in_runs`. The loads of a batch are under way together.
  __device__ void fold(int first, int stride, int n, bool in_runs, State& all) const {
    constexpr int kBatch = L::kOwnChunks >= 8 ? 2 : 16 / L::kOwnChunks;
    State node;
    all.clear();
    node.clear();
#pragma unroll 1
    for (int base = 0; base < n; base += kBatch) {
      State x[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (base + i < n) load(first + (base + i) * stride, x[i]);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (base + i >= n) break;
        if (!in_runs) {
          all.fold(x[i]);
          continue;
        }
        if ((base + i) % 4 == 0 && base + i > 0) {
          all.fold(node);
          node.clear();
        }
        node.fold(x[i]);
      }
    }
    if (in_runs) all.fold(node);
  }

 private:
  __device__ AttnStored<L> stored(int slot) const {
    return {at_.params.states + int64_t{slot} * L::kStateFloats};
  }
  __device__ void load(int slot, State& s) const {
    const AttnStored<L> from = stored(slot);
    s.max = __ldcg(&from.max(at_));
    s.sum = __ldcg(&from.sum(at_));
#pragma unroll
    for (int i = 0; i < L::kOwnChunks; ++i) {
      s.out[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (at_.own_chunk(i) < L::kChunks) s.out[i] = __ldcg(&from.out(at_, at_.own_chunk(i)));
    }
  }

  const AttnThread<L> at_;
};

}  // namespace fathom::cuda
