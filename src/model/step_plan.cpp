// SPDX-License-Identifier: Apache-2.0
// The static arguments of each op from configuration, weights and cache, and the sums of their
// workspaces and costs.
#include "model/step_plan.hpp"

#include <algorithm>

namespace fathom {

StepPlan plan_step(const ModelConfig& c, const Weights& weights, const StepLimits& limits,
                   const OpTable& ops, const std::function<KvLayerView(int layer)>& kv_layer) {
  StepPlan plan;
  plan.embed = {.table = weights.embedding,
                .table_type = weights.embedding_type(),
                .vocab_size = c.vocab_size,
                .d_model = c.d_model,
                .inv_freq = weights.inv_freq,
                .rope_dim = c.rope_dim,
                .rope_scale = c.rope.magnitude};
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
    if (ops.hidden_form) {
      p.ffn_front.h_form = p.ffn_down.a_form = ops.hidden_form(p.ffn_front, p.ffn_down);
    }
  }
  plan.head = {.d_model = c.d_model,
               .vocab_size = c.vocab_size,
               .rms_eps = c.rms_eps,
               .norm = weights.output_norm,
               .head = weights.output,
               .max_out = limits.max_out};
  plan.sample = {c.vocab_size};
  plan.draw = {c.vocab_size, limits.n_ctx, limits.max_draws()};
  return plan;
}

int64_t workspace_bytes(const StepPlan& plan, const OpTable& ops) {
  int64_t bytes = 0;
  const auto need = [&](auto fn, const auto& args) {
    if (fn) bytes = std::max(bytes, fn(args));
  };
  const OpWorkspaces& w = ops.workspace_bytes;
  need(w.norm_head, plan.head);
  need(w.sample, plan.sample);
  need(w.draw, plan.draw);
  for (const LayerPlan& layer : plan.layers) {
    need(w.norm_qkv_rope_append, layer.qkv);
    need(w.attn, layer.attn);
    need(w.out_proj_residual, layer.attn_output);
    need(w.norm_gate_up_act, layer.ffn_front);
    need(w.down_proj_residual, layer.ffn_down);
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
