// SPDX-License-Identifier: Apache-2.0
// What is said of the kernels that an op launches, and the passes over cached bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cuda/kernel_code.hpp"
#include "kernels/attn/attn_cases.hpp"
#include "kernels/attn/attn_seed_plan.hpp"
#include "tests/support/cuda_fixture.hpp"

namespace fathom {
namespace {

using namespace test;
using namespace attn_cases;

class LaunchWatch : public CudaTest {};

// Kernels are registered without a GPU.
TEST(KernelCode, IsThatOfTheBinaryWithTheSymbol) {
  const auto combine = [](const char* head_dim) {
    return cuda::kernel_code_hash(std::string("_ZN6fathom4cuda24attn_seed_combine_kernelILi") +
                                  head_dim + "EEEvNS0_14AttnSeedParamsE");
  };
  EXPECT_NE(combine("128"), 0u);
  EXPECT_EQ(combine("128"), combine("64")) << "of one file";
  EXPECT_EQ(combine("96"), 0u) << "no such kernel";
}

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

// What gate `verbatim` compares: nodes of graphs, captured with buffers of their own.
TEST_F(LaunchWatch, NodesOfAGraphHaveTheirArguments) {
  const Problem p({7, 4, 128}, KvFormat::f16, {{99, 0}}, {.max_rows = 1});
  AttnArgs::Static s = p.s;
  StepState step = p.step;
  const auto k = upload(p.k), v = upload(p.v), other_k = upload(p.k);
  const auto pos = upload(p.pos), slot = upload(p.slot), pages = upload(p.page_table);
  const auto q = upload(p.q);
  const auto out = poisoned<float>(p.width());
  s.kv.v = v.get();
  step.pos = pos.get();
  step.slot = slot.get();
  step.page_table = pages.get();
  use_workspace(cuda::attn_seed_scratch_bytes(s));
  const auto nodes_of = [&](const cuda::AttnSeedKnobs& knobs, std::byte* keys) {
    s.kv.k = keys;
    int64_t n = 0;
    const auto graphs = api().watch_captures([&] {
      capture_graph(api(), stream().get(), [&] {
        cuda::attn_seed(knobs, ctx(), {s, &step, q.get(), out.get()});
        n = api().captured_kernels();
      });
    });
    EXPECT_EQ(n, 2);
    EXPECT_EQ(graphs.size(), 1u);
    return graphs.at(0);
  };
  s.kv.k = k.get();
  cuda::attn_seed({}, ctx(), {s, &step, q.get(), out.get()});  // loads the kernels
  const std::vector<KernelLaunch> engine = nodes_of({}, k.get());
  ASSERT_EQ(engine.size(), 2u);
  EXPECT_THAT(engine[0].kernel, testing::HasSubstr("attn_seed_partial_kernel"));
  EXPECT_EQ(engine[0].grid, (std::array{32, 28, 1}));
  int n_addresses = 0;
  for (const KernelWord& word : engine[0].arguments) n_addresses += word.is_address;
  EXPECT_EQ(n_addresses, 8) << "K, V, pos, slot, pages, q, out and states";
  EXPECT_NE(engine[0].code_hash, 0u);
  const std::vector<KernelLaunch> elsewhere = nodes_of({}, other_k.get());
  ASSERT_EQ(elsewhere[0].arguments.size(), engine[0].arguments.size());
  int n_moved = 0;
  for (size_t i = 0; i < engine[0].arguments.size(); ++i) {
    const KernelWord &a = engine[0].arguments[i], &b = elsewhere[0].arguments[i];
    EXPECT_EQ(a.is_address, b.is_address);
    n_moved += a.value != b.value;
    EXPECT_TRUE(a.value == b.value || a.is_address) << i;
  }
  EXPECT_EQ(n_moved, 1) << "the keys";
  EXPECT_EQ(nodes_of({.splits = 64}, k.get())[0].grid, (std::array{64, 28, 1}));
  EXPECT_NE(nodes_of({.window = 16}, k.get())[0].arguments, engine[0].arguments);
  EXPECT_NE(nodes_of({.staging = 8}, k.get())[0].kernel, engine[0].kernel);
  EXPECT_TRUE(api().watch_captures([] {}).empty());
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
