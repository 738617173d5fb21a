// SPDX-License-Identifier: Apache-2.0
// Gate and up of the same rows go together, so that a block has both sums.
#include "kernels/norm_gate_up_act/norm_gate_up_act.hpp"
#include "kernels/quant/matmul_launch_kernel.cuh"
#include "tensor/portable_math.hpp"

namespace fathom {

// Without the branches of the portable exp, which are a tenth of a product of many rows. It has
// linkage since nothing uses it where no kernel takes many rows (matmul_prefill_kernel.cuh), which
// nvcc would report.
struct FastSiluTimes {
  float* h;  // [n_rows, d_ff]
  int d_ff;
  __device__ void operator()(int, int row, int col, const float* sums) const {
    h[static_cast<int64_t>(col) * d_ff + row] =
        __fdividef(sums[0], 1.0f + __expf(-sums[0])) * sums[1];
  }
};

namespace {

struct SiluTimes {
  float* h;  // [n_rows, d_ff]
  int d_ff;
  __device__ void operator()(int, int row, int col, const float* sums) const {
    h[static_cast<int64_t>(col) * d_ff + row] = portable_silu(sums[0]) * sums[1];
  }
  FastSiluTimes of_many_rows() const { return {h, d_ff}; }
};

// Of one row, into what down's product reads: 32 rows are a block of its activations.
struct SiluTimesCodes {
  std::byte* codes;  // quant::act_layout of d_ff columns
  quant::ActInfo* info;
  __device__ float value(const float* sums) const { return portable_silu(sums[0]) * sums[1]; }
  __device__ void store(int block, float x, bool stores) const {
    quant::store_block(x, stores, codes + int64_t{block} * quant::kMmaBlock, info + block);
  }
};

}  // namespace

int64_t workspace_bytes_cuda(const NormGateUpActArgs::Static& s) {
  return cuda::matmul_acts_bytes({&s.gate, &s.up}, s.max_rows);
}

void norm_gate_up_act_cuda(ExecContext& ctx, const NormGateUpActArgs& args) {
  const NormGateUpActArgs::Static& s = args.s;
  Workspace workspace = ctx.workspace;
  const int64_t n_rows = args.step->n_rows;
  const quant::MatmulParams p =
      cuda::matmul_params({&s.gate, &s.up}, 2, n_rows, args.x, s.norm, s.rms_eps);
  if (n_rows == 1 && s.h_form == HiddenForm::backend) {
    FATHOM_CHECK(s.d_ff % quant::kMmaTileCols == 0, "codes of h have no padding");
    auto* codes = reinterpret_cast<std::byte*>(args.h);
    auto* info = reinterpret_cast<quant::ActInfo*>(codes + s.d_ff);
    return cuda::launch_matmul_one(p, SiluTimesCodes{codes, info}, ctx.stream.handle);
  }
  cuda::launch_matmul(p, workspace.take<std::byte>(workspace_bytes_cuda(s)),
                      SiluTimes{args.h, static_cast<int>(s.d_ff)}, ctx.stream.handle);
}

}  // namespace fathom
