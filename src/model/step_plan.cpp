// SPDX-License-Identifier: Apache-2.0
// The static arguments of each op from configuration, weights and cache, and the sums of their
// workspaces and costs.
#include "model/step_plan.hpp"

#include <algorithm>

namespace fathom {

StepPlan plan_step(const ModelConfig& c, const Weights& weights, const StepLimits& limits,
                   const std::function<KvLayerView(int layer)>& kv_layer) {
  StepPlan plan;
  plan.embed = {weights.embedding(), weights.embedding_type(), c.vocab_size,
                c.d_model,           c.rope.inv_freq.data(),   c.rope_dim,
                c.rope.magnitude};
  for (int layer = 0; layer < c.n_layers; ++layer) {
    const LayerWeights& w = weights.layers[layer];
    const KvLayerView kv = kv_layer(layer);
    LayerPlan& p = plan.layers.emplace_back();
    p.qkv = {.d_model = c.d_model,
             .n_heads = c.n_heads,
             .n_kv_heads = c.n_kv_heads,
             .head_dim = c.head_dim,
             .rope_dim = c.rope_dim,
             .pairs = c.family->rope_pairs,
             .rms_eps = c.rms_eps,
             .norm = w.attn_norm,
             .q = w.attn_q,
             .k = w.attn_k,
             .v = w.attn_v,
             .q_bias = w.attn_q_bias,
             .k_bias = w.attn_k_bias,
             .v_bias = w.attn_v_bias,
             .q_norm = w.attn_q_norm,
             .k_norm = w.attn_k_norm,
             .kv = kv,
             .max_rows = limits.max_rows};
    p.attn = {.n_heads = c.n_heads,
              .n_kv_heads = c.n_kv_heads,
              .head_dim = c.head_dim,
              .scale = c.attn_scale,
              .kv = kv,
              .max_rows = limits.max_rows,
              .n_ctx = limits.n_ctx};
    p.attn_output = {w.attn_output, w.attn_output_bias, limits.max_rows};
    p.ffn_front = {.d_model = c.d_model,
                   .d_ff = c.d_ff,
                   .rms_eps = c.rms_eps,
                   .norm = w.ffn_norm,
                   .gate = w.ffn_gate,
                   .up = w.ffn_up,
                   .max_rows = limits.max_rows};
    p.ffn_down = {w.ffn_down, w.ffn_down_bias, limits.max_rows};
  }
  plan.head = {.d_model = c.d_model,
               .vocab_size = c.vocab_size,
               .rms_eps = c.rms_eps,
               .norm = weights.output_norm,
               .head = weights.output,
               .max_out = limits.max_out};
  plan.sample = {c.vocab_size};
  return plan;
}

int64_t workspace_bytes_cpu(const StepPlan& plan) {
  int64_t bytes = std::max(workspace_bytes_cpu(plan.head), workspace_bytes_cpu(plan.sample));
  for (const LayerPlan& layer : plan.layers) {
    bytes = std::max({bytes, workspace_bytes_cpu(layer.qkv), workspace_bytes_cpu(layer.attn),
                      workspace_bytes_cpu(layer.attn_output), workspace_bytes_cpu(layer.ffn_front),
                      workspace_bytes_cpu(layer.ffn_down)});
  }
  return bytes;
}

Cost step_cost(const StepPlan& plan, const StepShape& shape) {
  Cost total = cost(plan.embed, shape);
  for (const LayerPlan& layer : plan.layers) {
    total += cost(layer.qkv, shape);
    total += cost(layer.attn, shape);
    total += cost(layer.attn_output, shape);
    total += cost(layer.ffn_front, shape);
    total += cost(layer.ffn_down, shape);
  }
  total += cost(plan.head, shape);
  return total;
}

}  // namespace fathom
