// SPDX-License-Identifier: Apache-2.0
// The seed's attention and its variants: as near to the exact result as a plain implementation in
// f32; which knobs are free of bits and which are not; and the bits of a row depend on its query
// and tokens only. Also on the host (tests/emulator), over fewer lengths.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "kernels/attn/attn_cases.hpp"
#include "kernels/attn/attn_seed_plan.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/cuda_fixture.hpp"
#include "tests/support/emulated.hpp"

namespace fathom {
namespace {

using namespace test;
using namespace attn_cases;
using cuda::AttnSeedKnobs;

std::vector<Row> decode_rows(const std::vector<int>& lengths) {
  std::vector<Row> out;
  for (const int n : lengths) out.push_back({n - 1, static_cast<int32_t>(out.size())});
  return out;
}

class CudaAttnSeed : public CudaTest {
 protected:
  // The problem's rows by a variant, into poisoned memory and scratch.
  std::vector<float> run(const Problem& p, const AttnSeedKnobs& knobs) {
    AttnArgs::Static s = p.s;
    StepState step = p.step;
    const auto k = upload(p.k), v = upload(p.v);
    const auto pos = upload(p.pos), slot = upload(p.slot), pages = upload(p.page_table);
    const auto q = upload(p.q);
    const auto out = poisoned<float>(static_cast<int64_t>(p.q.size()));
    s.kv.k = k.get();
    s.kv.v = v.get();
    step.pos = pos.get();
    step.slot = slot.get();
    step.page_table = pages.get();
    use_workspace(cuda::attn_seed_scratch_bytes(s));
    cuda::attn_seed(knobs, ctx(), {s, &step, q.get(), out.get()});
    return download(out);
  }
  // Those that the emulator takes are a few of all.
  std::vector<AttnSeedKnobs> some_variants(size_t every) const {
    std::vector<AttnSeedKnobs> out;
    for (size_t i = 0; i < cuda::kAttnSeedVariants; i += kIsEmulated ? every : 1)
      out.push_back(cuda::kAttnSeedKnobs[i]);
    return out;
  }
};

TEST_F(CudaAttnSeed, EveryVariantIsAsGoodAsANaiveOne) {
  std::vector<int> lengths{130, 1, 29, 4, 52};
  if (!kIsEmulated) lengths.insert(lengths.end(), {1641, 512, 33, 1640, 257});
  const int pages[] = {16, 64, kContiguous};
  int i = 0;
  for (const AttnSeedKnobs& knobs : some_variants(13)) {
    SCOPED_TRACE(cuda::attn_seed_name(knobs));
    const Shape shape = i % 2 ? Shape{3, 1, 64} : Shape{2, 2, 128};
    const Problem p(shape, KvFormat::f16, decode_rows(lengths),
                    {.page_tokens = pages[i++ % 3], .n_ctx = 1648, .max_rows = 10});
    const std::vector<float> expected = exact(p), got = run(p, knobs);
    ASSERT_TRUE(meaningful(expected, static_cast<size_t>(p.width())));
    const Errors ours = errors(got, expected), theirs = errors(naive(p), expected);
    EXPECT_LE(ours.max, 2 * theirs.max + 1e-6 * ours.scale);
    EXPECT_LE(ours.mean, 1.5 * theirs.mean + 2e-7 * ours.scale);
    EXPECT_LT(ours.cosine_distance, 5e-6);
  }
}

// Staging keys deeper, staging values, and windows of one warp move loads and no arithmetic.
TEST_F(CudaAttnSeed, FreeKnobsLeaveTheBitsAlone) {
  const std::vector<int> lengths =
      kIsEmulated ? std::vector<int>{1, 2, 5, 29, 33, 52, 130}
                  : std::vector<int>{1, 2, 28, 29, 30, 51, 52, 53, 511, 512, 513, 1640, 1641, 1642};
  for (const int head_dim : {64, 128}) {
    const Problem p({2, 1, head_dim}, KvFormat::f16, decode_rows(lengths),
                    {.page_tokens = 16, .n_ctx = 1648, .max_rows = 32});
    for (const int splits : {4, 32}) {
      for (const auto& [warps, window] : {std::pair{1, 4}, std::pair{4, 16}, std::pair{8, 256}}) {
        AttnSeedKnobs base{.splits = splits, .warps = warps, .window = window};
        const std::vector<float> expected = run(p, base);
        for (const int staging : {4, 8, 16}) {
          for (const bool stages_values : {false, true}) {
            AttnSeedKnobs knobs = base;
            knobs.staging = staging;
            knobs.stages_values = stages_values;
            EXPECT_TRUE(same_bits(run(p, knobs), expected)) << cuda::attn_seed_name(knobs);
          }
        }
        if (warps > 1) continue;
        base.window = 256;
        EXPECT_TRUE(same_bits(run(p, base), expected)) << cuda::attn_seed_name(base);
      }
    }
  }
}

// 32 splits and more take up to 32 tokens alike, one each; the sums of more differ.
TEST_F(CudaAttnSeed, SplitsAndWarpsChangeBitsBeyondAToken) {
  const auto bits_of = [&](int n, const AttnSeedKnobs& knobs) {
    return run(Problem({3, 1, 64}, KvFormat::f16, {{n - 1, 0}}, {.max_rows = 1}), knobs);
  };
  for (const int splits : {64, 128}) {
    for (const int n : {1, 2, 31, 32})
      EXPECT_TRUE(same_bits(bits_of(n, {.splits = splits}), bits_of(n, {}))) << n;
    int n_different = 0;
    for (const int n : {65, 100, 127, 150})
      n_different += !same_bits(bits_of(n, {.splits = splits}), bits_of(n, {}));
    EXPECT_GT(n_different, 0) << splits;
  }
  const AttnSeedKnobs one{.splits = 4}, four{.splits = 4, .warps = 4, .window = 16};
  EXPECT_TRUE(same_bits(bits_of(4, four), bits_of(4, one)));
  EXPECT_FALSE(same_bits(bits_of(100, four), bits_of(100, one)));
}

TEST_F(CudaAttnSeed, BitsDependOnQueryAndTokensOnly) {
  const std::vector<Row> rows{{40, 0}, {7, 1}, {99, 2}, {-1, 0}};
  const Shape shape{2, 2, 64};
  const size_t width = static_cast<size_t>(shape.width());
  for (const AttnSeedKnobs& knobs :
       {AttnSeedKnobs{}, AttnSeedKnobs{.splits = 8, .warps = 8, .window = 256}}) {
    const std::vector<float> all = run(Problem(shape, KvFormat::f16, rows, {}), knobs);
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<float> alone =
          run(Problem(shape, KvFormat::f16, {rows[i]}, {.page_tokens = 16, .n_ctx = 128}), knobs);
      EXPECT_TRUE(same_bits(std::span(all).subspan(i * width, width), alone)) << i;
    }
    for (size_t i = 3 * width; i < all.size(); ++i) ASSERT_EQ(all[i], 0.0f) << i;
  }
}

TEST_F(CudaAttnSeed, AGraphServesEveryDepth) {
  const Problem p({2, 1, 64}, KvFormat::f16, {{200, 0}}, {.n_ctx = 208, .max_rows = 1});
  AttnArgs::Static s = p.s;
  StepState step = p.step;
  const auto k = upload(p.k), v = upload(p.v);
  const auto pos = upload(p.pos), slot = upload(p.slot), pages = upload(p.page_table);
  const auto q = upload(p.q);
  const auto out = poisoned<float>(p.width()), eager = poisoned<float>(p.width());
  s.kv.k = k.get();
  s.kv.v = v.get();
  step.pos = pos.get();
  step.slot = slot.get();
  step.page_table = pages.get();
  use_workspace(cuda::attn_seed_scratch_bytes(s));
  const auto launch_to = [&](const DeviceArray<float>& to) {
    cuda::attn_seed({}, ctx(), {s, &step, q.get(), to.get()});
  };
  launch_to(eager);
  const Graph graph = capture_graph(api(), stream(), [&] { launch_to(out); });
  for (const int32_t at : {0, 200, 15, 100}) {
    api().copy_to_device(pos.get(), &at, sizeof at, stream().get());
    synchronize();
    api().graph_launch(graph.get(), stream().get());
    launch_to(eager);
    EXPECT_TRUE(same_bits(download(out), download(eager))) << "position " << at;
  }
}

// Steps of many rows are not the seed's.
TEST_F(CudaAttnSeed, ManyRowsGoToTheProductionKernel) {
  if (kIsEmulated) GTEST_SKIP() << "attention of clusters is not emulated";
  const Problem p({7, 2, 64}, KvFormat::f16, rows_of(0, 100, 140), {});
  AttnArgs::Static s = p.s;
  StepState step = p.step;
  const auto k = upload(p.k), v = upload(p.v);
  const auto pos = upload(p.pos), slot = upload(p.slot), pages = upload(p.page_table);
  const auto q = upload(p.q);
  const auto counters = upload(std::vector(kCounterBytes, std::byte{0}));
  const auto a = poisoned<float>(static_cast<int64_t>(p.q.size())),
             b = poisoned<float>(static_cast<int64_t>(p.q.size()));
  s.kv.k = k.get();
  s.kv.v = v.get();
  step.pos = pos.get();
  step.slot = slot.get();
  step.page_table = pages.get();
  ctx().counters = {counters.get(), kCounterBytes};
  use_workspace(cuda::workspace_bytes_attn_seed(s));
  cuda::attn_seed({}, ctx(), {s, &step, q.get(), a.get()});
  attn_cuda(ctx(), {s, &step, q.get(), b.get()});
  EXPECT_TRUE(same_bits(download(a), download(b)));
}

}  // namespace
}  // namespace fathom
