// SPDX-License-Identifier: Apache-2.0
// The tensors of a synthetic model and the scale of each, so that its activations, its attention
// and its text behave like a trained model's.
#include <cmath>

#include "base/error.hpp"
#include "convert/synth.hpp"

namespace fathom::convert {
namespace {

// With rows of d values and inputs of RMS 1, a matrix with deviation 1/sqrt(d) gives outputs of
// RMS 1. From that:
//
// - embedding: RMS 1, so the residual starts at 1;
// - q, k: RMS kQkRms, so attention scores have deviation kQkRms^2 and a head looks at about three
//   of many tokens; flatter attention averages the context and lets greedy text fall into loops;
// - attn_output, ffn_down: each sublayer adds kLayerVariance / (2 n_layers) to the mean square, so
//   the residual ends at RMS sqrt(1 + kLayerVariance) = 2;
// - head: logits of deviation kLogitSigma ln vocab_size, an entropy of 4.7 nats at 512 tokens and
//   6.3 at 150,000, with single steps between 1 and 8.
//
// A tied head would give the current token a logit of sqrt(d) deviations and repeat it for ever;
// random signs in output_norm take that correlation away.
constexpr double kQkRms = 2.0;
constexpr double kLogitSigma = 0.28;
constexpr double kLayerVariance = 3;
constexpr double kSiluSquare = 0.3558;     // E[silu(x)^2] for a normal x
constexpr double kAttentionSquare = 0.33;  // typical sum of squared attention probabilities
constexpr double kNormSigma = 0.06;        // of norm weights, relative to their mean
constexpr double kQkBiasSigma = 0.2, kVBiasSigma = 0.1;

class Planner {
 public:
  explicit Planner(SynthPlan& plan)
      : plan_(plan),
        shape_(plan.shape),
        model_{shape_.n_layers, shape_.n_heads / shape_.n_kv_heads, shape_.tied_head} {}

  void run() {
    const double logit_sigma = kLogitSigma * std::log(shape_.vocab_size);
    const double head_sigma = logit_sigma / std::sqrt(shape_.d_model);
    vocab_matrix("token_embd.weight", TensorRole::token_embd, 1.0);
    if (shape_.llama3_rope) {
      vector("rope_freqs.weight", shape_.head_dim / 2, Fill::rope_factors, 1.0, 0.0);
    }
    for (int layer = 0; layer < shape_.n_layers; ++layer) add_layer(layer);
    if (shape_.tied_head) {
      vector("output_norm.weight", shape_.d_model, Fill::signed_mean, head_sigma,
             kNormSigma * head_sigma);
    } else {
      norm("output_norm.weight", shape_.d_model, 1.0);
      vocab_matrix("output.weight", TensorRole::output, head_sigma);
    }
  }

 private:
  void add_layer(int layer) {
    const ModelShape& s = shape_;
    const int q_dim = s.n_heads * s.head_dim;
    const int kv_dim = s.n_kv_heads * s.head_dim;
    const double in_sigma = 1 / std::sqrt(s.d_model);
    const double out_rms = std::sqrt(kLayerVariance / (2.0 * s.n_layers));
    const double qk_rms = s.qk_norm ? 1.0 : kQkRms;  // with QK-norm its weights hold the RMS
    const std::string prefix = fmt::format("blk.{}.", layer);
    layer_ = layer;

    norm(prefix + "attn_norm.weight", s.d_model, 1.0);
    matrix(prefix + "attn_q.weight", TensorRole::attn_q, s.d_model, q_dim, qk_rms * in_sigma);
    matrix(prefix + "attn_k.weight", TensorRole::attn_k, s.d_model, kv_dim, qk_rms * in_sigma);
    matrix(prefix + "attn_v.weight", TensorRole::attn_v, s.d_model, kv_dim, in_sigma);
    if (s.qkv_bias) {
      vector(prefix + "attn_q.bias", q_dim, Fill::around_mean, 0, kQkBiasSigma);
      vector(prefix + "attn_k.bias", kv_dim, Fill::around_mean, 0, kQkBiasSigma);
      vector(prefix + "attn_v.bias", kv_dim, Fill::around_mean, 0, kVBiasSigma);
    }
    if (s.qk_norm) {
      norm(prefix + "attn_q_norm.weight", s.head_dim, kQkRms);
      norm(prefix + "attn_k_norm.weight", s.head_dim, kQkRms);
    }
    matrix(prefix + "attn_output.weight", TensorRole::attn_output, q_dim, s.d_model,
           out_rms / std::sqrt(q_dim * kAttentionSquare));
    norm(prefix + "ffn_norm.weight", s.d_model, 1.0);
    matrix(prefix + "ffn_gate.weight", TensorRole::ffn_gate, s.d_model, s.d_ff, in_sigma);
    matrix(prefix + "ffn_up.weight", TensorRole::ffn_up, s.d_model, s.d_ff, in_sigma);
    matrix(prefix + "ffn_down.weight", TensorRole::ffn_down, s.d_ff, s.d_model,
           out_rms / std::sqrt(s.d_ff * kSiluSquare));
    layer_ = -1;
  }

  void matrix(const std::string& name, TensorRole role, int64_t row_elems, int64_t n_rows,
              double sigma) {
    const DType type = recipe_type(plan_.recipe, model_, role, layer_, row_elems);
    plan_.tensors.push_back(
        {.name = name,
         .role = role,
         .type = type,
         .dims = {static_cast<uint64_t>(row_elems), static_cast<uint64_t>(n_rows)},
         .fill = Fill::weights,
         .mean = 0,
         .sigma = sigma,
         .quiet_from_row = n_rows});
  }

  // Control tokens get small logits, so that greedy text does not stop by chance.
  void vocab_matrix(const std::string& name, TensorRole role, double sigma) {
    matrix(name, role, shape_.d_model, shape_.vocab_size, sigma);
    plan_.tensors.back().quiet_from_row = shape_.vocab_size - shape_.n_control;
  }

  void vector(const std::string& name, int64_t n_elems, Fill fill, double mean, double sigma) {
    plan_.tensors.push_back({.name = name,
                             .role = TensorRole::f32_vector,
                             .type = DType::f32,
                             .dims = {static_cast<uint64_t>(n_elems)},
                             .fill = fill,
                             .mean = mean,
                             .sigma = sigma,
                             .quiet_from_row = 1});
  }

  void norm(const std::string& name, int64_t n_elems, double mean) {
    vector(name, n_elems, Fill::around_mean, mean, kNormSigma * mean);
  }

  SynthPlan& plan_;
  const ModelShape& shape_;
  const RecipeModel model_;
  int layer_ = -1;
};

void check_override(const char* what, int64_t value, int64_t most) {
  if (value < 0 || value > most) {
    fail(ErrorCode::usage, "{} {}; choose 1 to {}, or 0 for the shape's own", what, value, most);
  }
}

}  // namespace

SynthPlan plan_synth(const SynthOptions& options) {
  SynthPlan plan{find_model_shape(options.shape), find_recipe(options.type, options.pure), {}};
  check_override("layers", options.n_layers, 1024);
  check_override("context", options.n_ctx, 1 << 24);
  check_override("vocabulary", options.vocab_size, 1 << 20);
  if (options.n_layers > 0) plan.shape.n_layers = options.n_layers;
  if (options.n_ctx > 0) plan.shape.n_ctx = options.n_ctx;
  if (options.vocab_size > 0) plan.shape.vocab_size = options.vocab_size;
  Planner(plan).run();
  return plan;
}

}  // namespace fathom::convert
