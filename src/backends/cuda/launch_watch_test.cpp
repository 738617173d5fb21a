// SPDX-License-Identifier: Apache-2.0
// What is said of the kernels that an op launches, and the passes over cached bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/attn/attn_cases.hpp"
#include "kernels/attn/attn_seed_plan.hpp"
#include "tests/support/cuda_fixture.hpp"

namespace fathom {
namespace {

using namespace test;
using namespace attn_cases;

class LaunchWatch : public CudaTest {};

TEST_F(LaunchWatch, NamesTheKernelsOfAnOpAndWhatTheyTake) {
  const Problem p({7, 4, 128}, KvFormat::f16, {{99, 0}}, {.max_rows = 1});
  AttnArgs::Static s = p.s;
  StepState step = p.step;
  const auto k = upload(p.k), v = upload(p.v);
  const auto pos = upload(p.pos), slot = upload(p.slot), pages = upload(p.page_table);
  const auto q = upload(p.q);
  const auto out = poisoned<float>(p.width());
  s.kv.k = k.get();
  s.kv.v = v.get();
  step.pos = pos.get();
  step.slot = slot.get();
  step.page_table = pages.get();
  use_workspace(cuda::attn_seed_scratch_bytes(s));
  const int64_t before = api().kernel_launches();
  const std::vector<KernelLaunch> seen = api().watch_launches([&] {
    cuda::attn_seed({.warps = 8, .window = 256}, ctx(), {s, &step, q.get(), out.get()});
  });
  EXPECT_EQ(api().kernel_launches() - before, 2);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_THAT(seen[0].kernel, testing::HasSubstr("attn_seed_partial_kernel"));
  EXPECT_THAT(seen[1].kernel, testing::HasSubstr("attn_seed_combine_kernel"));
  EXPECT_EQ(seen[0].grid, (std::array{32, 28, 1}));
  EXPECT_EQ(seen[0].block, (std::array{256, 1, 1}));
  EXPECT_EQ(seen[1].grid, (std::array{28, 1, 1}));
  EXPECT_GE(seen[0].shared_bytes, 8 * 130 * 4);
  for (const KernelLaunch& launch : seen) {
    EXPECT_GT(launch.registers, 0);
    EXPECT_EQ(launch.local_bytes, 0) << "registers are spilled";
    EXPECT_GT(launch.occupancy, 0);
    EXPECT_LE(launch.occupancy, 1);
    EXPECT_NEAR(
        launch.waves,
        1.0 * launch.grid[0] * launch.grid[1] / (info().compute_units * launch.blocks_per_sm),
        1e-9);
  }
  EXPECT_TRUE(api().watch_launches([] {}).empty());
}

TEST_F(LaunchWatch, CachedReadsTakeEveryWordInEveryPass) {
  std::vector<uint64_t> words(3 * 1024 * 512 + 6);  // not whole rounds of the grid
  uint64_t expected = 0;
  for (size_t i = 0; i < words.size(); ++i) expected += words[i] = i * 0x9E3779B97F4A7C15u;
  const auto data = upload(words);
  const auto sum = upload(std::vector<uint64_t>{5});
  api().read_cached(data.get(), data.size_bytes(), 7, sum.get(), stream().get());
  EXPECT_EQ(download(sum)[0], 5 + 7 * expected);
}

}  // namespace
}  // namespace fathom
