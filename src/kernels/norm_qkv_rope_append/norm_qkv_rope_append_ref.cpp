// SPDX-License-Identifier: Apache-2.0
// The formula in double, with the cache written by kv_store_ref: the oracle of every backend.
#include "kernels/common/kv_ref.hpp"
#include "kernels/common/rms_norm_ref.hpp"
#include "kernels/norm_qkv_rope_append/norm_qkv_rope_append.hpp"
#include "kernels/quant/linear_ref.hpp"

namespace fathom {
namespace {

void rotate(const NormQkvRopeAppendArgs::Static& s, const float* rope, double* head) {
  const int half = s.rope_dim / 2;
  for (int i = 0; i < half; ++i) {
    const bool interleaved = s.pairs == RopePairs::interleaved;
    double& a = head[interleaved ? 2 * i : i];
    double& b = head[interleaved ? 2 * i + 1 : i + half];
    const double cosine = rope[2 * i];
    const double sine = rope[2 * i + 1];
    const double turned_a = a * cosine - b * sine;
    b = a * sine + b * cosine;
    a = turned_a;
  }
}

}  // namespace

void norm_qkv_rope_append_ref(ExecContext& ctx, const NormQkvRopeAppendArgs& args) {
  const NormQkvRopeAppendArgs::Static& s = args.s;
  const StepState& step = *args.step;
  std::vector<double> normed(step.n_rows * s.d_model);
  for (int64_t row = 0; row < step.n_rows; ++row) {
    rms_norm_ref(args.x + row * s.d_model, s.norm, s.d_model, s.rms_eps,
                 normed.data() + row * s.d_model);
  }
  std::vector<double> q = quant::linear_ref(ctx.pool, s.q, normed, step.n_rows, s.q_bias);
  std::vector<double> k = quant::linear_ref(ctx.pool, s.k, normed, step.n_rows, s.k_bias);
  const std::vector<double> v = quant::linear_ref(ctx.pool, s.v, normed, step.n_rows, s.v_bias);

  for (int64_t row = 0; row < step.n_rows; ++row) {
    const float* rope = args.rope + row * s.rope_dim;
    for (int head = 0; head < s.n_heads; ++head) {
      double* values = q.data() + (row * s.n_heads + head) * s.head_dim;
      if (s.q_norm) rms_norm_ref(values, s.q_norm, s.head_dim, s.rms_eps, values);
      rotate(s, rope, values);
      float* out = args.q_out + (row * s.n_heads + head) * s.head_dim;
      for (int dim = 0; dim < s.head_dim; ++dim) out[dim] = static_cast<float>(values[dim]);
    }
    for (int kv_head = 0; kv_head < s.n_kv_heads; ++kv_head) {
      double* keys = k.data() + (row * s.n_kv_heads + kv_head) * s.head_dim;
      const double* values = v.data() + (row * s.n_kv_heads + kv_head) * s.head_dim;
      if (s.k_norm) rms_norm_ref(keys, s.k_norm, s.head_dim, s.rms_eps, keys);
      rotate(s, rope, keys);
      const int32_t* pages = step.pages_of(static_cast<int32_t>(row));
      kv_store_ref(s.kv, KvPart::key, pages, kv_head, step.pos[row], keys);
      kv_store_ref(s.kv, KvPart::value, pages, kv_head, step.pos[row], values);
    }
  }
}

}  // namespace fathom
