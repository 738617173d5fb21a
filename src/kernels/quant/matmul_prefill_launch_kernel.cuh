// SPDX-License-Identifier: Apache-2.0
// The launcher of matmul_prefill_kernel: which products it takes, and how it cuts them.
#pragma once

#include <algorithm>

#include "kernels/common/arriving_lanes.cuh"
#include "kernels/common/cuda_check.cuh"
#include "kernels/quant/matmul_prefill_kernel.cuh"

namespace fathom::cuda {

// From this many rows of the step on: below, matmul_kernel.cuh has one block for them.
inline constexpr int kPrefillRows = 33;

// Which form of activations a part reads.
inline int act_form(const quant::MatmulPart& part) {
  return part.type == DType::f16 ? 1 : part.type == DType::bf16 ? 2 : 0;
}

inline int device_attribute(cudaDeviceAttr attribute) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, attribute, 0));
  return value;
}

// On Hopper; matrices of a bundle must have one type, since a block turns one type into registers.
inline bool takes_prefill(const quant::MatmulParams& p) {
  if (p.n_rows < kPrefillRows) return false;
  for (int i = 1; i < p.n_parts && p.bundle > 1; ++i) {
    if (p.parts[i].type != p.parts[0].type) return false;
  }
  return device_attribute(cudaDevAttrComputeCapabilityMajor) == 9;
}

inline quant::PrefillPlan prefill_plan(const quant::MatmulParams& p, int n_sub) {
  quant::PrefillPlan plan{};
  const int groups = quant::groups_of_block(p, n_sub);
  plan.n_columns = (p.n_rows + quant::kPrefillColumns - 1) / quant::kPrefillColumns;
  for (int part = 0; part < (p.bundle > 1 ? 1 : p.n_parts); ++part) {
    plan.blocks_of[part] = (p.parts[part].n_groups + groups - 1) / groups;
    plan.n_tiles += plan.blocks_of[part] * plan.n_columns;
  }
  // Two stages of weights at least, then five of activations, then as many as are of use.
  constexpr int kBytes = quant::kPrefillRingBytes;
  const int weight_stage = quant::prefill_weight_stage(p, n_sub);
  plan.n_weight_stages = std::clamp((kBytes - 5 * quant::kActStageBytes) / weight_stage, 2, 4);
  plan.n_act_stages =
      std::min((kBytes - plan.n_weight_stages * weight_stage) / quant::kActStageBytes,
               quant::kPrefillMaxStages);
  plan.n_arriving = arriving_lanes;
  return plan;
}

// Sub-tiles of a block: two read the activations half as often; one leaves fewer multiprocessors
// idle where the matrix is small.
inline int prefill_sub_tiles(const quant::MatmulParams& p, int n_sms) {
  if (p.bundle > 1) return 2;
  const auto rounds = [&](int n_sub) {
    return (prefill_plan(p, n_sub).n_tiles + n_sms - 1) / n_sms * n_sub;
  };
  return rounds(1) < rounds(2) ? 1 : 2;
}

// Fills p.acts from p.in (matmul_prefill_cuda.cu).
void make_prefill_acts(const quant::MatmulParams& p, void* stream);

template <int kSub, class Op>
void launch_prefill_sub(const quant::MatmulParams& p, const Op& op, int n_sms, void* stream) {
  const auto kernel = quant::matmul_prefill_kernel<kSub, Op>;
  const quant::PrefillPlan plan = prefill_plan(p, kSub);
  constexpr int kShared = quant::kPrefillSharedBytes;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  launch(kernel, dim3(static_cast<unsigned>(std::min(plan.n_tiles, n_sms))),
         dim3(quant::kPrefillThreads), kShared, stream, p, plan, op);
}

// p.acts is scratch of prefill_acts(p, p.n_rows).bytes. Op as in matmul_kernel.cuh; it may name
// another for many rows.
template <class Op>
void launch_prefill(const quant::MatmulParams& p, const Op& op, void* stream) {
  if constexpr (requires { op.of_many_rows(); }) {
    launch_prefill(p, op.of_many_rows(), stream);
  } else {
    make_prefill_acts(p, stream);
    const int n_sms = device_attribute(cudaDevAttrMultiProcessorCount);
    if (prefill_sub_tiles(p, n_sms) == 1) {
      launch_prefill_sub<1>(p, op, n_sms, stream);
    } else {
      launch_prefill_sub<2>(p, op, n_sms, stream);
    }
  }
}

}  // namespace fathom::cuda
