// SPDX-License-Identifier: Apache-2.0
// The ops of a step, in the order a token meets them. A backend fills one table; a model runs on
// any.
#pragma once

#include "kernels/attn/attn.hpp"
#include "kernels/begin_step/begin_step.hpp"
#include "kernels/down_proj_residual/down_proj_residual.hpp"
#include "kernels/embed/embed.hpp"
#include "kernels/kv_fill/kv_fill.hpp"
#include "kernels/norm_gate_up_act/norm_gate_up_act.hpp"
#include "kernels/norm_head/norm_head.hpp"
#include "kernels/norm_qkv_rope_append/norm_qkv_rope_append.hpp"
#include "kernels/out_proj_residual/out_proj_residual.hpp"
#include "kernels/sample/draw.hpp"
#include "kernels/sample/sample.hpp"

namespace fathom {

// Scratch that an op needs for its static arguments, in bytes; no entry = none.
struct OpWorkspaces {
  int64_t (*norm_qkv_rope_append)(const NormQkvRopeAppendArgs::Static&);
  int64_t (*attn)(const AttnArgs::Static&);
  int64_t (*out_proj_residual)(const OutProjResidualArgs::Static&);
  int64_t (*norm_gate_up_act)(const NormGateUpActArgs::Static&);
  int64_t (*down_proj_residual)(const DownProjResidualArgs::Static&);
  int64_t (*norm_head)(const NormHeadArgs::Static&);
  int64_t (*sample)(const SampleArgs::Static&);
  int64_t (*draw)(const DrawArgs::Static&) = nullptr;
};

struct OpTable {
  void (*embed)(ExecContext&, const EmbedArgs&);
  void (*norm_qkv_rope_append)(ExecContext&, const NormQkvRopeAppendArgs&);
  void (*attn)(ExecContext&, const AttnArgs&);
  void (*out_proj_residual)(ExecContext&, const OutProjResidualArgs&);
  void (*norm_gate_up_act)(ExecContext&, const NormGateUpActArgs&);
  void (*down_proj_residual)(ExecContext&, const DownProjResidualArgs&);
  void (*norm_head)(ExecContext&, const NormHeadArgs&);
  void (*sample)(ExecContext&, const SampleArgs&);   // null where there is draw
  void (*kv_fill)(ExecContext&, const KvFillArgs&);  // for measurements, not of a step
  OpWorkspaces workspace_bytes;
  // The ends of a step on a device with memory of its own; null on others.
  void (*begin_step)(ExecContext&, const BeginStepArgs&) = nullptr;
  void (*draw)(ExecContext&, const DrawArgs&) = nullptr;
  // How a feed-forward block's two ops hand over h; null: as floats.
  HiddenForm (*hidden_form)(const NormGateUpActArgs::Static&,
                            const DownProjResidualArgs::Static&) = nullptr;
};

// Straight from the formulas, double accumulators, one thread: the oracle of whole models.
// Its matrices are in file layout (PackedMatrix::data points at GGUF blocks).
const OpTable& reference_ops();
// SIMD and threads; needs ExecContext::cpu and ::pool.
const OpTable& cpu_ops();
// What the CPU's and the reference's ops need.
inline constexpr OpWorkspaces kCpuWorkspaces = {
    workspace_bytes_cpu, workspace_bytes_cpu, workspace_bytes_cpu, workspace_bytes_cpu,
    workspace_bytes_cpu, workspace_bytes_cpu, workspace_bytes_cpu};

}  // namespace fathom
