// SPDX-License-Identifier: Apache-2.0
// Products where a block gets less shared memory than on Hopper (sm_86, sm_89 and sm_120: 99 KB)
// and with or without bulk copies: every launch fits, and the bits stay.
#include <gtest/gtest.h>

#include <vector>

#include "emulator/device.hpp"
#include "kernels/down_proj_residual/down_proj_residual.hpp"
#include "kernels/norm_gate_up_act/norm_gate_up_act.hpp"
#include "kernels/norm_qkv_rope_append/norm_qkv_rope_append.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/cuda_matrix_fixture.hpp"

namespace fathom {
namespace {

using namespace test;

constexpr int kMostRows = 32;
constexpr int kSmall = 99 << 10;

class SmallGpu : public CudaMatrixTest {};

TEST_P(SmallGpu, ProductsHaveTheSameBits) {
  const int64_t cols = 1536, d_ff = 64;
  const CudaMatrix gate(GetParam(), d_ff, cols, 3), up(GetParam(), d_ff, cols, 4),
      w(GetParam(), 75, cols, 5);
  const DeviceArray<float> x = upload(quant::random_activations(kMostRows * cols, 6)),
                           norm = upload(uniform_values(cols, 0.5f, 1.5f, 7));
  const NormGateUpActArgs::Static front{cols,          d_ff,     1e-5f, norm.get(), on_device(gate),
                                        on_device(up), kMostRows};
  const DownProjResidualArgs::Static down{on_device(w), nullptr, kMostRows};
  use_workspace(std::max(workspace_bytes_cuda(front), workspace_bytes_cuda(down)));
  StepState step{};
  for (const int n_rows : {1, 3, 8, 16, 32}) {
    step.n_rows = n_rows;
    const auto run = [&] {
      const DeviceArray<float> h = poisoned<float>(n_rows * d_ff);
      const DeviceArray<float> out = upload(std::vector<float>(n_rows * 75, 0.5f));
      norm_gate_up_act_cuda(ctx(), {front, &step, x.get(), h.get()});
      down_proj_residual_cuda(ctx(), {down, &step, x.get(), out.get()});
      std::vector<float> both = download(h);
      const std::vector<float> second = download(out);
      both.insert(both.end(), second.begin(), second.end());
      return both;
    };
    const std::vector<float> expected = run();
    for (const bool bulk_copies : {false, true}) {
      const emulator::SmallerGpu gpu(kSmall, bulk_copies);
      EXPECT_TRUE(same_bits(run(), expected)) << n_rows << " rows, bulk copies: " << bulk_copies;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, SmallGpu, testing::ValuesIn(kCudaMatrixTypes),
                         [](const auto& test) { return std::string(dtype_info(test.param).name); });

// Scratch in which a head is finished counts too: no size of shared memory leaves a launch that
// does not fit.
using SmallGpuHeads = SmallGpu;
TEST_P(SmallGpuHeads, ScratchOfHeadsFits) {
  constexpr int kHeads = 2, kHeadDim = 64, kPage = 16, kRows = 3;
  constexpr int64_t kModel = 1024;
  const CudaMatrix q(GetParam(), kHeads * kHeadDim, kModel, 3), k(GetParam(), kHeadDim, kModel, 4),
      v(GetParam(), kHeadDim, kModel, 5);
  const KvGeometry geometry{KvFormat::f16, 1, kHeadDim, kPage};
  const DeviceArray<float> x = upload(quant::random_activations(kRows * kModel, 6)),
                           norm = upload(uniform_values(kModel, 0.5f, 1.5f, 7)),
                           head_norm = upload(uniform_values(kHeadDim, 0.5f, 1.5f, 8)),
                           rope = upload(uniform_values(kRows * kHeadDim, -1, 1, 9));
  const DeviceArray<int32_t> pos = upload(std::vector<int32_t>{0, 1, 2}),
                             slot = upload(std::vector<int32_t>{0, 0, 0}),
                             pages = upload(std::vector<int32_t>{0});
  const DeviceArray<std::byte> counters = upload(std::vector(256, std::byte{0}));
  ctx().counters = {counters.get(), counters.size_bytes()};
  StepState step{};
  step.pos = pos.get();
  step.slot = slot.get();
  step.page_table = pages.get();
  step.max_pages = 1;
  const auto run = [&](int n_rows) {
    step.n_rows = n_rows;
    const DeviceArray<std::byte> keys = poisoned<std::byte>(geometry.page_bytes()),
                                 values = poisoned<std::byte>(geometry.page_bytes());
    const DeviceArray<float> out = poisoned<float>(n_rows * kHeads * kHeadDim);
    NormQkvRopeAppendArgs::Static s{};
    s.d_model = kModel;
    s.n_heads = kHeads;
    s.n_kv_heads = 1;
    s.head_dim = s.rope_dim = kHeadDim;
    s.pairs = RopePairs::half_split;
    s.rms_eps = 1e-5f;
    s.norm = norm.get();
    s.q = on_device(q);
    s.k = on_device(k);
    s.v = on_device(v);
    s.q_norm = s.k_norm = head_norm.get();
    s.kv = {geometry, keys.get(), values.get()};
    s.max_rows = kRows;
    use_workspace(workspace_bytes_cuda(s));
    norm_qkv_rope_append_cuda(ctx(), {s, &step, x.get(), rope.get(), out.get()});
    return download(out);
  };
  for (const int n_rows : {1, kRows}) {
    const std::vector<float> expected = run(n_rows);
    for (int bytes = 80 << 10; bytes <= 160 << 10; bytes += 512) {
      const emulator::SmallerGpu gpu(bytes, false);
      ASSERT_TRUE(same_bits(run(n_rows), expected)) << n_rows << " rows, " << bytes << " bytes";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, SmallGpuHeads, testing::Values(DType::q8_0, DType::q4_k),
                         [](const auto& test) { return std::string(dtype_info(test.param).name); });

}  // namespace
}  // namespace fathom
