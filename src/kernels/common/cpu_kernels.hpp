// SPDX-License-Identifier: Apache-2.0
// The inner functions of the CPU ops, one table per instruction set. Every set gives the same bits,
// so tables can be swapped freely; ops reach them through ExecContext::cpu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/cpu_features.hpp"
#include "kernels/common/act_block.hpp"
#include "tensor/kv_view.hpp"
#include "tensor/packed_matrix.hpp"

namespace fathom {

// Packed rows [16*group_begin, 16*group_end) of a matrix against activation rows [act_begin,
// act_end).
struct MatmulJob {
  const std::byte* tiles;
  int64_t rows, cols;  // of the matrix
  int64_t group_begin, group_end;
  const ActRows* act;
  int64_t act_begin, act_end;
  float* out;  // [act_end - act_begin, out_stride], column 0 is matrix row `row_begin`
  int64_t out_stride;
  int64_t row_begin;
  bool core_reads_ahead = cpu_reads_ahead();  // so that the product asks for fewer lines itself
};
using MatmulFn = void (*)(const MatmulJob&);

struct ElementwiseKernels {
  // out = x / rms(x) * weight, rms over n values.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  // REQUIRES: n a multiple of 32.
  void (*quantize)(const float* x, int64_t n, ActBlock* out);
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*add)(const float* y, int64_t n, float* x);  // x += y
  void (*to_f16)(const float* x, int64_t n, uint16_t* out);
  void (*exp)(const float* x, int64_t n, float* out);  // portable_exp's bits; x may be out
};

// A run of tokens of one KV head against query vectors that share it. Leaves for each query the
// state (max, sum, output) of the tokens [token_begin, min(token_end, limit)).
struct AttnSplitJob {
  const KvLayerView* kv;
  const int32_t* pages;  // of the sequence
  int kv_head;
  int64_t token_begin, token_end;
  int64_t token_last;  // end of the tokens that the caller reads after these, for prefetching
  int n_queries;
  const float* const* q;  // [n_queries] pointers to [head_dim]
  const int64_t* limit;   // [n_queries] tokens that the query may see
  float scale;
  float* max;     // [n_queries]
  float* sum;     // [n_queries]
  float* output;  // [n_queries, head_dim], not divided by sum
};

struct AttnKernels {
  void (*split)(const AttnSplitJob&);
  // Folds state b into state a (head_dim outputs).
  void (*merge)(float* max_a, float* sum_a, float* out_a, float max_b, float sum_b,
                const float* out_b, int head_dim);
};

inline constexpr int kMaxDTypeId = 40;

struct CpuKernels {
  const char* isa;
  MatmulFn matmul[kMaxDTypeId];  // by DType id of the packed type; null where there is no format
  ElementwiseKernels elementwise;
  AttnKernels attn;

  MatmulFn matmul_of(const PackedMatrix& w) const {
    return matmul[static_cast<uint32_t>(w.packed_type)];
  }
};

// Whether products with this packed type read f32 activations rather than int8 blocks.
constexpr bool takes_float_activations(DType packed_type) {
  return packed_type == DType::f32 || packed_type == DType::f16 || packed_type == DType::bf16;
}

// The table of an instruction set, or of the best one this machine has for "". Throws
// Error{unavailable} when the machine lacks it and Error{usage} when the name is unknown.
const CpuKernels& select_cpu_kernels(std::string_view isa);
// All that this machine can run, best first.
std::span<const CpuKernels* const> available_cpu_kernels();

}  // namespace fathom
