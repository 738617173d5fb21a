// SPDX-License-Identifier: Apache-2.0
// Attention on the GPU: as near to the exact result over the cache as stored as a plain
// implementation in f32, or in halves where warpgroups take steps of many rows, whatever lies past
// the lengths; and the bits of a row depend on its query, its tokens and which of the two it is:
// not on batch, chunk, pages, capacity or scratch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/attn/attn_cases.hpp"
#include "kernels/attn/attn_flash_launch.hpp"
#include "kernels/attn/attn_plan.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/cuda_fixture.hpp"
#include "tests/support/kv_formats.hpp"

namespace fathom {
namespace {

using namespace test;
using namespace attn_cases;

// max error <= factor * the naive one's, mean <= 3/4 of that; beside roundings of the result.
testing::AssertionResult as_good_as(const std::vector<float>& got, const std::vector<float>& naive,
                                    const std::vector<float>& expected, double factor) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) {
      return testing::AssertionFailure()
             << fmt::format("[{}] = {}, expected {}", i, got[i], expected[i]);
    }
  }
  const Errors ours = errors(got, expected), theirs = errors(naive, expected);
  const bool good = ours.max <= factor * theirs.max + 1e-6 * ours.scale &&
                    ours.mean <= 0.75 * factor * theirs.mean + 2e-7 * ours.scale &&
                    ours.cosine_distance < 5e-6;
  if (good) return testing::AssertionSuccess();
  return testing::AssertionFailure() << fmt::format(
             "max error {:.3g}, naive {:.3g}; mean {:.3g}, naive {:.3g}; cosine distance {:.3g}; "
             "largest value {:.3g}",
             ours.max, theirs.max, ours.mean, theirs.mean, ours.cosine_distance, ours.scale);
}

class CudaAttn : public CudaTestWithParam<KvFormat> {
 protected:
  struct OnDevice {
    DeviceArray<std::byte> k, v, counters;
    DeviceArray<int32_t> pos, slot, pages;
    DeviceArray<float> q;
    AttnArgs::Static s;
    StepState step;
  };
  OnDevice on_device(const Problem& p) {
    OnDevice out{upload(p.k),
                 upload(p.v),
                 upload(std::vector(kCounterBytes, std::byte{0})),
                 upload(p.pos),
                 upload(p.slot),
                 upload(p.page_table),
                 upload(p.q),
                 p.s,
                 p.step};
    out.s.kv.k = p.base(out.k.get());
    out.s.kv.v = p.base(out.v.get());
    out.step.pos = out.pos.get();
    out.step.slot = out.slot.get();
    out.step.page_table = out.pages.get();
    ctx().counters = {out.counters.get(), kCounterBytes};
    return out;
  }

  // Twice, to equal bits; nothing is left in the counters.
  std::vector<float> run(const Problem& p) {
    const OnDevice on = on_device(p);
    std::vector<float> first;
    for (int i = 0; i < 2; ++i) {
      use_workspace(workspace_bytes_cuda(on.s));
      const DeviceArray<float> out = poisoned<float>(static_cast<int64_t>(p.q.size()));
      attn_cuda(ctx(), {on.s, &on.step, on.q.get(), out.get()});
      const std::vector<float> got = download(out);
      if (i == 0) first = got;
      EXPECT_TRUE(same_bits(got, first)) << "another run has other bits";
    }
    const std::vector<std::byte> left = download(on.counters);
    EXPECT_TRUE(std::ranges::all_of(left, [](std::byte b) { return b == std::byte{0}; }))
        << "counters were left behind";
    return first;
  }

  void expect_good(Shape shape, const std::vector<Row>& rows, const Options& options,
                   double factor = 2) {
    SCOPED_TRACE(fmt::format("group {}, head dim {}, {} rows, pages of {}, sigma {}", shape.group,
                             shape.head_dim, rows.size(), options.page_tokens, options.sigma));
    const Problem p(shape, GetParam(), rows, options);
    const std::vector<float> expected = exact(p);
    ASSERT_TRUE(meaningful(expected, static_cast<size_t>(p.width())));
    const bool many = is_of_many(shape, p.rows());
    const Precision arithmetic = many ? Precision::halves : Precision::f32;
    EXPECT_TRUE(as_good_as(run(p), naive(p, arithmetic), expected, factor));
  }
  // Whether a step of n rows goes to the kernel of many.
  bool is_of_many(Shape shape, int n_rows) const {
    AttnArgs::Static s{};
    s.head_dim = shape.head_dim;
    s.kv.geometry.format = GetParam();
    return cuda::takes_attn_flash(s, n_rows);
  }
  // Of slot 0, tokens 0 to n - 1 as rows, at most `chunk` a step.
  std::vector<float> run_in_chunks(Shape shape, int n, int chunk, const Options& options = {}) {
    std::vector<float> out;
    for (int first = 0; first < n; first += chunk) {
      const std::vector<float> part =
          run(Problem(shape, GetParam(), rows_of(0, first, std::min(first + chunk, n)), options));
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

  bool has(int head_dim) const { return GetParam() != KvFormat::q8_0 || head_dim % 32 == 0; }
};

// One sequence each, in one batch.
std::vector<Row> decode_rows(const std::vector<int>& lengths) {
  std::vector<Row> out;
  for (const int n : lengths) out.push_back({n - 1, static_cast<int32_t>(out.size())});
  return out;
}
const std::vector<int> kLengths{1641, 1,  15, 512, 16,  17,  29,  257, 52,  255, 256,
                                31,   32, 33, 127, 128, 129, 511, 513, 640, 641, 1640};

TEST_P(CudaAttn, EveryGroupDecodesEveryLength) {
  const int pages[] = {16, 64, kContiguous};
  int i = 0;
  for (int group = 1; group <= cuda::kAttnMaxCudaGroup; ++group) {
    expect_good({group, 2, 64}, decode_rows(kLengths),
                {.page_tokens = pages[i++ % 3], .n_ctx = 2048});
  }
}

TEST_P(CudaAttn, EveryHeadDim) {
  for (const int head_dim : {16, 32, 80, 96, 128, 256}) {
    if (!has(head_dim)) continue;
    expect_good({7, 2, head_dim}, decode_rows({1641, 1, 15, 512, 16, 17, 29, 257, 52, 255, 256}),
                {.page_tokens = 16, .n_ctx = 1641});
    expect_good({3, 2, head_dim}, rows_of(0, 230, 290), {.page_tokens = 64});
    expect_good({12, 1, head_dim}, rows_of(0, 500, 515), {.page_tokens = kContiguous});
  }
}

TEST_P(CudaAttn, Deep) {
  expect_good({7, 4, 128}, decode_rows({4096}), {.page_tokens = 64, .n_ctx = 32768, .max_rows = 1});
  expect_good({3, 3, 64}, decode_rows({4096, 4095}), {.page_tokens = 16, .n_ctx = 4096});
  for (const int n : {2047, 2048, 2049, 4097, 8191, 8192, 8193, 16385}) {
    expect_good({2, 2, 64}, decode_rows({n}), {.page_tokens = 32, .n_ctx = n, .max_rows = 1});
  }
  for (const int n : {131071, 131072, 131073}) {
    expect_good({1, 1, 64}, decode_rows({n}), {.n_ctx = n, .max_rows = 1});
  }
  // More states of a head than the shared memory of a block over codes has room for.
  expect_good({2, 2, 64}, decode_rows({125000}), {.n_ctx = 125000, .max_rows = 1});
}

// The more work there is beside, the larger the part of a sequence that a block takes.
TEST_P(CudaAttn, BitsDoNotDependOnWhatABlockTakes) {
  const Shape shape{7, 4, 64};
  const size_t width = static_cast<size_t>(shape.width());
  const std::vector<int> lengths{1641, 700, 2049, 100, 3500};
  std::vector<std::vector<float>> alone;
  for (size_t i = 0; i < lengths.size(); ++i) {
    alone.push_back(run(
        Problem(shape, GetParam(), {{lengths[i] - 1, static_cast<int32_t>(i)}}, {.n_ctx = 4096})));
  }
  for (const int n_others : {0, 5, 27}) {
    for (const int max_rows : {100, 1}) {  // with room for all states, or for few
      std::vector<int> all = lengths;
      for (int i = 0; i < n_others; ++i) all.push_back(2048 - 3 * i);
      const std::vector<float> got =
          run(Problem(shape, GetParam(), decode_rows(all), {.n_ctx = 4096, .max_rows = max_rows}));
      for (size_t i = 0; i < lengths.size(); ++i) {
        EXPECT_TRUE(same_bits(std::span(got).subspan(i * width, width), alone[i]))
            << lengths[i] << " tokens, beside " << n_others << " others";
      }
    }
  }
}

TEST_P(CudaAttn, BitsDoNotDependOnClusters) {
  const int most = cuda::most_cluster_blocks;
  for (const auto& [n_ctx, rows] : {std::pair{4096, decode_rows({1641, 700, 2049, 100, 3500})},
                                    std::pair{60000, decode_rows({60000})}}) {
    const Problem p({7, 2, 64}, GetParam(), rows, {.n_ctx = n_ctx});
    const std::vector<float> expected = run(p);
    cuda::most_cluster_blocks = 1;
    EXPECT_TRUE(same_bits(run(p), expected)) << n_ctx;
    cuda::most_cluster_blocks = most;
  }
}

TEST_P(CudaAttn, PromptsAndChunks) {
  for (const int head_dim : {64, 128}) {
    expect_good({3, 2, head_dim}, rows_of(0, 0, 100), {});
    expect_good({7, 2, head_dim}, rows_of(0, 250, 300), {.page_tokens = 16});
    // Two prompts and some tokens of others, not at the borders of entries.
    expect_good({4, 2, head_dim},
                joined(joined(rows_of(0, 300, 337), rows_of(1, 0, 21)),
                       {{700, 2}, {3, 3}, {255, 4}, {256, 5}}),
                {});
  }
  expect_good({1, 2, 64}, rows_of(0, 0, 70), {});
  expect_good({16, 1, 64}, rows_of(0, 240, 275), {});
}

// Far scores: a mistake in the handling of maxima shows. Ties decide the largest errors, hence the
// wider factor.
TEST_P(CudaAttn, LargeQueries) {
  for (const int head_dim : {64, 128}) {
    expect_good({7, 2, head_dim}, decode_rows(kLengths), {.n_ctx = 2048, .sigma = 100}, 4);
    expect_good({3, 2, head_dim}, rows_of(0, 200, 300), {.sigma = 100}, 4);
  }
  expect_good({7, 2, 64}, decode_rows({1641, 300}), {.n_ctx = 2048, .sigma = 1e-3});
}

TEST_P(CudaAttn, PaddedRowsAreZero) {
  const Shape shape{3, 2, 64};
  const std::vector<Row> rows{{300, 0}, {20, 1}};
  const Options options;
  const std::vector<float> alone = run(Problem(shape, GetParam(), rows, options));
  std::vector<float> of_many;
  for (const int n_rows : {3, 8, 33, 70, 300}) {
    std::vector<Row> padded = rows;
    padded.resize(n_rows, Row{-1, 0});
    const std::vector<float> got = run(Problem(shape, GetParam(), padded, options));
    const std::span<const float> live = std::span(got).first(alone.size());
    const bool many = is_of_many(shape, n_rows);
    if (many && of_many.empty()) of_many.assign(live.begin(), live.end());
    EXPECT_TRUE(same_bits(live, many ? of_many : alone)) << n_rows << " rows";
    for (size_t i = alone.size(); i < got.size(); ++i) ASSERT_EQ(got[i], 0.0f) << i;
  }
  const std::vector<float> none = run(Problem(shape, GetParam(), {{-1, 0}}, options));
  for (const float x : none) ASSERT_EQ(x, 0.0f);
}

TEST_P(CudaAttn, BitsDependOnQueryAndTokensOnly) {
  for (const Shape shape :
       {Shape{3, 2, 64}, Shape{7, 1, 128}, Shape{12, 1, 64}, Shape{2, 1, 256}}) {
    SCOPED_TRACE(fmt::format("group {}, head dim {}", shape.group, shape.head_dim));
    const int n = 600;
    const size_t width = static_cast<size_t>(shape.width());
    const std::vector<float> of_many = run(Problem(shape, GetParam(), rows_of(0, 0, n), {}));
    const std::vector<float> of_few =
        is_of_many(shape, n) ? run_in_chunks(shape, n, cuda::kAttnFlashRows - 1) : of_many;
    // Rows of slot 0 against the whole prompt's.
    const auto expect_rows = [&](const std::vector<Row>& rows, const Options& options,
                                 const char* what) {
      const std::vector<float> got = run(Problem(shape, GetParam(), rows, options));
      const auto& base = is_of_many(shape, static_cast<int>(rows.size())) ? of_many : of_few;
      for (size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].slot != 0) continue;
        ASSERT_TRUE(
            same_bits(std::span(got).subspan(i * width, width),
                      std::span(base).subspan(static_cast<size_t>(rows[i].pos) * width, width)))
            << what << ", row " << i << ", position " << rows[i].pos;
      }
    };
    for (const int page : {16, kContiguous}) {
      expect_rows(rows_of(0, 0, n), {.page_tokens = page}, "pages");
    }
    expect_rows(rows_of(0, 0, n), {.n_ctx = 8192}, "capacity");
    expect_rows(rows_of(0, 0, n), {.max_rows = 1}, "little scratch");
    for (const int pos : {0, 15, 16, 127, 128, 254, 255, 256, 511, 512, 599}) {
      expect_rows({{pos, 0}}, {}, "alone");
    }
    expect_rows({{599, 0}}, {.page_tokens = 16, .n_ctx = 600, .max_rows = 1}, "no spare capacity");
    expect_rows(rows_of(0, 250, 260), {}, "few rows");
    expect_rows(rows_of(0, 251, 332), {}, "many rows");
    expect_rows(rows_of(0, 567, 600), {.page_tokens = 16, .n_ctx = 600}, "many rows at the end");
    expect_rows({{40, 1}, {599, 0}, {900, 2}}, {}, "in a batch");
    expect_rows(joined(joined(rows_of(1, 0, 45), rows_of(0, 500, 523)), {{900, 2}}), {},
                "in a mixed batch");
    expect_rows(joined(joined(rows_of(1, 0, 45), rows_of(0, 500, 523)), {{900, 2}}),
                {.max_rows = 1}, "in a mixed batch with little scratch");
  }
}

// Pages 4 GiB and more behind the first one.
TEST_P(CudaAttn, PagesBeyondFourGiBOfACache) {
  const Shape shape{3, 2, 64};
  for (const std::vector<Row>& rows :
       {std::vector<Row>{{700, 0}, {20, 1}}, joined(rows_of(0, 300, 337), rows_of(1, 0, 21))}) {
    const std::vector<float> near = run(Problem(shape, GetParam(), rows, {.page_tokens = 16}));
    for (const int32_t first_page : {600'000, 2'000'000'000}) {
      EXPECT_TRUE(same_bits(
          run(Problem(shape, GetParam(), rows, {.page_tokens = 16, .first_page = first_page})),
          near))
          << "from page " << first_page;
    }
  }
}

// Captured once, replayed while the sequence grows: the geometry knows no length.
TEST_P(CudaAttn, AGraphServesEveryDepth) {
  const Problem p({7, 2, 64}, GetParam(), {{1900, 0}}, {.n_ctx = 2048});
  const OnDevice on = on_device(p);
  use_workspace(workspace_bytes_cuda(on.s));
  const DeviceArray<float> out = poisoned<float>(p.width()), eager = poisoned<float>(p.width());
  const auto launch_to = [&](const DeviceArray<float>& to) {
    attn_cuda(ctx(), {on.s, &on.step, on.q.get(), to.get()});
  };
  const auto move_to = [&](int32_t pos) {
    api().copy_to_device(on.pos.get(), &pos, sizeof pos, stream().get());
    synchronize();
  };
  move_to(0);
  launch_to(eager);  // a first launch loads the kernel, which a capture may not
  const Graph graph = capture_graph(api(), stream(), [&] { launch_to(out); });
  for (const int32_t pos : {0, 1900, 15, 300, 255, 1640}) {
    move_to(pos);
    api().graph_launch(graph.get(), stream().get());
    launch_to(eager);
    EXPECT_TRUE(same_bits(download(out), download(eager))) << "position " << pos;
  }
}

// The same of a step of many rows, which moves on by its own length and more.
TEST_P(CudaAttn, AGraphOfManyRowsServesEveryDepth) {
  std::vector<Row> rows = joined(rows_of(0, 1860, 1900), rows_of(1, 500, 513));
  rows.resize(64, Row{-1, 0});
  const Problem p({7, 2, 64}, GetParam(), rows, {.n_ctx = 2048});
  const OnDevice on = on_device(p);
  use_workspace(workspace_bytes_cuda(on.s));
  const int64_t n = int64_t{p.rows()} * p.width();
  const DeviceArray<float> out = poisoned<float>(n), eager = poisoned<float>(n);
  const auto launch_to = [&](const DeviceArray<float>& to) {
    attn_cuda(ctx(), {on.s, &on.step, on.q.get(), to.get()});
  };
  launch_to(eager);
  const Graph graph = capture_graph(api(), stream(), [&] { launch_to(out); });
  for (const int first : {1860, 0, 100, 1000}) {
    std::vector<int32_t> pos = p.pos;
    for (int i = 0; i < 40; ++i) pos[i] = first + i;
    api().copy_to_device(on.pos.get(), pos.data(), on.pos.size_bytes(), stream().get());
    synchronize();
    api().graph_launch(graph.get(), stream().get());
    launch_to(eager);
    EXPECT_TRUE(same_bits(download(out), download(eager))) << "from position " << first;
  }
}

// Rows around the borders of tiles (128 queries) and of steps (128 tokens, or 64).
TEST_P(CudaAttn, ManyRowsAroundBorders) {
  const std::pair<int, int> ranges[] = {{0, 33},    {0, 64},    {0, 127},   {0, 128},   {0, 129},
                                        {95, 128},  {96, 129},  {127, 160}, {128, 161}, {223, 256},
                                        {224, 257}, {255, 290}, {500, 640}};
  const int pages[] = {16, 64, kContiguous};
  int i = 0;
  for (const auto& [first, end] : ranges) {
    for (const int group : {1 + i % 8, 8 + i % 9}) {
      expect_good({group, 1 + i % 2, 64}, rows_of(0, first, end), {.page_tokens = pages[i % 3]});
      ++i;
    }
  }
  for (const int head_dim : {80, 96, 128, 256}) {
    if (!has(head_dim)) continue;
    expect_good({7, 1, head_dim}, rows_of(0, 0, 75), {.page_tokens = 16});
    expect_good({4, 2, head_dim}, rows_of(0, 100, 165), {.page_tokens = 48});
    expect_good({16, 1, head_dim}, rows_of(0, 480, 520), {.page_tokens = kContiguous});
  }
}

TEST_P(CudaAttn, ManyRowsOfSeveralSequences) {
  for (const int head_dim : {64, 128}) {
    expect_good({7, 2, head_dim}, decode_rows(kLengths), {.n_ctx = 2048});
    std::vector<Row> rows = joined(joined(rows_of(0, 300, 337), rows_of(1, 0, 21)),
                                   {{700, 2}, {3, 3}, {255, 4}, {256, 5}});
    rows = joined(joined(rows, rows_of(6, 127, 150)), rows_of(7, 0, 1));
    expect_good({5, 2, head_dim}, rows, {.page_tokens = 16});
    std::vector<Row> batch;  // more sequences than a word has bits
    for (int slot = 0; slot < 70; ++slot) batch.push_back({slot * 7 % 300, slot});
    expect_good({3, 1, head_dim}, batch, {});
  }
}

// A prompt of many rows has the same bits whatever the chunks, as long as they are of many rows.
TEST_P(CudaAttn, ChunksOfManyRowsHaveTheSameBits) {
  for (const Shape shape : {Shape{7, 2, 128}, Shape{4, 1, 256}}) {
    const int n = 520;
    const std::vector<float> whole = run(Problem(shape, GetParam(), rows_of(0, 0, n), {}));
    for (const int chunk : {40, 65, 130, 260}) {
      EXPECT_TRUE(same_bits(run_in_chunks(shape, n, chunk), whole)) << "chunks of " << chunk;
    }
  }
}

// More rows than a launch takes.
TEST_P(CudaAttn, ManyRows) {
  const Shape shape{2, 1, 32};
  const int n = cuda::kAttnMaxLaunchRows + 90;
  const std::vector<float> all =
      run(Problem(shape, GetParam(), rows_of(0, 0, n), {.n_ctx = 2048, .max_rows = n}));
  const std::vector<float> last = run(Problem(shape, GetParam(), {{n - 1, 0}}, {.n_ctx = 2048}));
  EXPECT_TRUE(same_bits(std::span(all).last(last.size()), last));
}

TEST_P(CudaAttn, MoreRowsThanALaunchOfManyTakes) {
  const Shape shape{2, 1, 64};
  const int n = cuda::kAttnFlashLaunchRows + 90;
  const Options options{.n_ctx = 4096, .max_rows = n};
  const std::vector<float> all = run(Problem(shape, GetParam(), rows_of(0, 0, n), options));
  const std::vector<float> last = run(Problem(shape, GetParam(), rows_of(0, n - 130, n), options));
  EXPECT_TRUE(same_bits(std::span(all).last(last.size()), last));
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaAttn, testing::ValuesIn(all_kv_formats()),
                         [](const auto& param) { return kv_test_name(param.param); });

}  // namespace
}  // namespace fathom
