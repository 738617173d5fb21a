// SPDX-License-Identifier: Apache-2.0
// Everything about a model's step that does not change from step to step: the static arguments of
// each op, fixed when the model is loaded.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "base/cancel.hpp"
#include "kernels/op_table.hpp"
#include "model/model_config.hpp"
#include "model/weights.hpp"

namespace fathom {

struct LayerPlan {
  NormQkvRopeAppendArgs::Static qkv;
  AttnArgs::Static attn;
  OutProjResidualArgs::Static attn_output;
  NormGateUpActArgs::Static ffn_front;
  DownProjResidualArgs::Static ffn_down;
};

struct StepPlan {
  EmbedArgs::Static embed;
  std::vector<LayerPlan> layers;
  NormHeadArgs::Static head;
  SampleArgs::Static sample;
  DrawArgs::Static draw;
};

struct StepLimits {
  int64_t max_rows;  // rows of one step
  int64_t max_out;   // rows of logits of one step
  int64_t n_ctx;     // tokens of a sequence
  int64_t n_slots;   // sequences
  // Rows of one step that a token is drawn from: a sequence has one.
  int64_t max_draws() const { return max_out < n_slots ? max_out : n_slots; }
};

// The weights need only be bound; their data pointers are filled by load(), after which the plan
// is made again. `ops` say in which form one hands over to the next.
StepPlan plan_step(const ModelConfig& config, const Weights& weights, const StepLimits& limits,
                   const OpTable& ops, const std::function<KvLayerView(int layer)>& kv_layer);

// Scratch that the ops of a table need, the largest of all.
int64_t workspace_bytes(const StepPlan& plan, const OpTable& ops);

// Activations of a step, on the device.
struct StepBuffers {
  float* x;       // [max_rows, d_model] the residual stream
  float* rope;    // [max_rows, rope_dim]
  float* q;       // [max_rows, q_dim]
  float* attn;    // [max_rows, q_dim]
  float* h;       // [max_rows, d_ff]
  float* logits;  // [max_out, vocab_size]
};

// What the blocks of one step share.
struct StepContext {
  ExecContext& exec;
  const DeviceApi& device;
  const OpTable& ops;
  const StepPlan& plan;
  const StepBuffers& buffers;
  const StepState& state;
  const StepShape& shape;
  const BeginStepArgs* begin = nullptr;  // null where the host wrote the state itself
  const DrawArgs* draw = nullptr;        // null where no token is drawn
  const std::atomic<bool>* cancel = nullptr;
  OpScopeSink* sink = nullptr;  // told of every op
  // The ops are recorded and not run: a scope ends when its op is, and nothing waits.
  bool captured = false;
};

// What ends an op's scope: the device has done the op, where somebody watches it run.
inline void finish_op(const StepContext& step) {
  if (step.sink && !step.captured) step.device.stream_synchronize(step.exec.stream.handle);
}

// Runs one op inside its scope, which ends when the device has done it. Throws Error{cancelled}
// instead once the step's flag is set: what the step has written until then is void.
template <class Args>
void run_op(const StepContext& step, void (*op)(ExecContext&, const Args&), const char* name,
            int layer, const Args& args) {
  stop_if_cancelled(step.cancel);
  const OpScope scope(step.sink, {name, layer}, step.sink ? cost(args.s, step.shape) : Cost{});
  op(step.exec, args);
  finish_op(step);
}

// The sum over a step's ops.
Cost step_cost(const StepPlan& plan, const StepShape& shape);

}  // namespace fathom
