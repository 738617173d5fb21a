// SPDX-License-Identifier: Apache-2.0
// Attention on the GPU: as near to the exact result over the cache as stored as a plain f32
// implementation, whatever lies past the lengths; and the bits of a row depend on its query and
// tokens alone: not on batch, chunk, pages, capacity or scratch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "kernels/attn/attn.hpp"
#include "kernels/attn/attn_plan.hpp"
#include "kernels/common/kv_ref.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/cuda_fixture.hpp"

namespace fathom {
namespace {

using namespace test;

struct Shape {
  int group, n_kv_heads, head_dim;
  int n_heads() const { return group * n_kv_heads; }
  int width() const { return n_heads() * head_dim; }
};

// A row of the step: a position (-1: padding) of a sequence.
struct Row {
  int32_t pos, slot;
};
std::vector<Row> rows_of(int slot, int first, int end) {
  std::vector<Row> out;
  for (int pos = first; pos < end; ++pos) out.push_back({pos, slot});
  return out;
}
std::vector<Row> joined(std::vector<Row> a, const std::vector<Row>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

constexpr int kContiguous = 0;

struct Options {
  int page_tokens = 64;  // kContiguous: all of n_ctx
  int n_ctx = 1024;
  double sigma = 2;  // of the queries
  int max_rows =
      100;  // that the scratch is planned for: a step with more splits fewer among blocks
};

// Caches whose content depends on slot and position only; NaN past each sequence's length, pages
// that do not exist in the table there.
struct Problem {
  AttnArgs::Static s{};
  StepState step{};
  std::vector<std::byte> k, v;
  std::vector<int32_t> pos, slot, page_table;
  std::vector<float> q;

  Problem(Shape shape, KvFormat format, const std::vector<Row>& rows, const Options& options) {
    const int page_tokens =
        options.page_tokens == kContiguous ? (options.n_ctx + 15) / 16 * 16 : options.page_tokens;
    int n_slots = 1;
    for (const Row& row : rows) n_slots = std::max(n_slots, row.slot + 1);
    s.n_heads = shape.n_heads();
    s.n_kv_heads = shape.n_kv_heads;
    s.head_dim = shape.head_dim;
    s.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    s.max_rows = options.max_rows;
    s.n_ctx = options.n_ctx;
    s.kv.geometry = {format, shape.n_kv_heads, shape.head_dim, page_tokens};
    std::vector<int> length(n_slots, 0);
    for (const Row& row : rows) {
      pos.push_back(row.pos);
      slot.push_back(row.slot);
      length[row.slot] = std::max(length[row.slot], row.pos + 1);
    }
    const int slot_pages = (options.n_ctx + page_tokens - 1) / page_tokens;
    int n_pages = 0;
    for (const int n : length) n_pages += (n + page_tokens - 1) / page_tokens;
    page_table.assign(static_cast<size_t>(n_slots) * slot_pages, 2147480000);
    int next_page = n_pages;  // in reverse, so that logical and physical order differ
    for (int sl = 0; sl < n_slots; ++sl) {
      for (int page = 0; page * page_tokens < length[sl]; ++page) {
        page_table[static_cast<size_t>(sl) * slot_pages + page] = --next_page;
      }
    }
    // 0xff bytes: NaN in f32, f16 and bf16, and a NaN scale in q8_0.
    k.assign(static_cast<size_t>(n_pages) * s.kv.geometry.page_bytes(), std::byte{0xff});
    v = k;
    s.kv.k = k.data();
    s.kv.v = v.data();
    step.n_rows = static_cast<int32_t>(pos.size());
    step.max_pages = slot_pages;
    step.pos = pos.data();
    step.slot = slot.data();
    step.page_table = page_table.data();
    for (int sl = 0; sl < n_slots; ++sl) fill_slot(sl, length[sl]);
    for (const Row& row : rows) add_query(row, shape.width(), options.sigma);
  }

  int32_t rows() const { return step.n_rows; }
  int64_t width() const { return int64_t{s.n_heads} * s.head_dim; }

 private:
  // Nearly normal, and much faster than the standard library's.
  static double draw(std::mt19937& random) {
    const uint32_t bits = random();
    const auto part = [&](int shift) { return static_cast<int>(bits >> shift & 255) - 127.5; };
    return (part(0) + part(8) + part(16) + part(24)) / 147.8;
  }
  void fill_slot(int sl, int n_tokens) {
    std::mt19937 random(1000 + sl);
    std::vector<double> head(s.head_dim);
    const int32_t* pages = page_table.data() + int64_t{sl} * step.max_pages;
    for (int t = 0; t < n_tokens; ++t) {
      for (int kv_head = 0; kv_head < s.n_kv_heads; ++kv_head) {
        for (const KvPart part : {KvPart::key, KvPart::value}) {
          for (double& x : head) x = draw(random);
          kv_store_ref(s.kv, part, pages, kv_head, t, head.data());
        }
      }
    }
  }
  void add_query(const Row& row, int width, double sigma) {
    std::mt19937 random(77 + 7919u * static_cast<uint32_t>(row.pos) + row.slot);
    for (int i = 0; i < width; ++i) q.push_back(static_cast<float>(sigma * draw(random)));
  }
};

// Rows with a position, in double.
std::vector<float> exact(const Problem& p) {
  std::vector<float> out(p.q.size(), std::nanf(""));
  ExecContext host;
  attn_ref(host, {p.s, &p.step, p.q.data(), out.data()});
  return out;
}

// The formula in f32, K and V as stored.
std::vector<float> naive(const Problem& p) {
  std::vector<float> out(p.q.size());
  const AttnArgs::Static& s = p.s;
  const int dims = s.head_dim, group = s.n_heads / s.n_kv_heads;
  std::vector<double> stored(dims);
  for (int kv_head = 0; kv_head < s.n_kv_heads; ++kv_head) {
    std::vector<float> keys, values;
    int loaded = 0;
    for (int row = 0; row < p.rows(); ++row) {
      if (row > 0 && p.slot[row] != p.slot[row - 1]) loaded = 0;
      const int n = p.pos[row] + 1;
      keys.resize(std::max(keys.size(), static_cast<size_t>(n) * dims));
      values.resize(keys.size());
      for (; loaded < n; ++loaded) {
        const int32_t* pages = p.step.pages_of(row);
        kv_load_ref(s.kv, KvPart::key, pages, kv_head, loaded, stored.data());
        for (int d = 0; d < dims; ++d) keys[loaded * dims + d] = static_cast<float>(stored[d]);
        kv_load_ref(s.kv, KvPart::value, pages, kv_head, loaded, stored.data());
        for (int d = 0; d < dims; ++d) values[loaded * dims + d] = static_cast<float>(stored[d]);
      }
      std::vector<float> scores(n);
      for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const size_t at = (static_cast<size_t>(row) * s.n_heads + head) * dims;
        float largest = -INFINITY, sum = 0;
        for (int t = 0; t < n; ++t) {
          float dot = 0;
          for (int d = 0; d < dims; ++d) dot += p.q[at + d] * keys[t * dims + d];
          scores[t] = dot * s.scale;
          largest = std::max(largest, scores[t]);
        }
        for (int t = 0; t < n; ++t) {
          const float weight = std::exp(scores[t] - largest);
          sum += weight;
          for (int d = 0; d < dims; ++d) out[at + d] += weight * values[t * dims + d];
        }
        for (int d = 0; d < dims; ++d) out[at + d] /= sum;
      }
    }
  }
  return out;
}

struct Errors {
  double max = 0, mean = 0, cosine_distance = 0, scale = 0;
};
Errors errors(const std::vector<float>& got, const std::vector<float>& expected) {
  Errors out;
  double dot = 0, a = 0, b = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double g = got[i], e = expected[i], error = std::fabs(g - e);
    if (!(error <= out.max)) out.max = error;  // a NaN stays
    out.mean += error / static_cast<double>(got.size());
    out.scale = std::max(out.scale, std::fabs(e));
    dot += g * e;
    a += g * g;
    b += e * e;
  }
  out.cosine_distance = 1 - dot / std::sqrt(a * b);
  return out;
}

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
    out.s.kv.k = out.k.get();
    out.s.kv.v = out.v.get();
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
    EXPECT_TRUE(as_good_as(run(p), naive(p), expected, factor));
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
  for (const int n_rows : {3, 8, 70}) {
    std::vector<Row> padded = rows;
    padded.resize(n_rows, Row{-1, 0});
    const std::vector<float> got = run(Problem(shape, GetParam(), padded, options));
    EXPECT_TRUE(same_bits(std::span(got).first(alone.size()), alone)) << n_rows << " rows";
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
    const std::vector<float> base = run(Problem(shape, GetParam(), rows_of(0, 0, n), {}));
    // Rows of slot 0 against the whole prompt's.
    const auto expect_rows = [&](const std::vector<Row>& rows, const Options& options,
                                 const char* what) {
      const std::vector<float> got = run(Problem(shape, GetParam(), rows, options));
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
    expect_rows({{40, 1}, {599, 0}, {900, 2}}, {}, "in a batch");
    expect_rows(joined(joined(rows_of(1, 0, 45), rows_of(0, 500, 523)), {{900, 2}}), {},
                "in a mixed batch");
    expect_rows(joined(joined(rows_of(1, 0, 45), rows_of(0, 500, 523)), {{900, 2}}),
                {.max_rows = 1}, "in a mixed batch with little scratch");
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

// More rows than a launch takes.
TEST_P(CudaAttn, ManyRows) {
  const Shape shape{2, 1, 32};
  const int n = cuda::kAttnMaxLaunchRows + 90;
  const std::vector<float> all =
      run(Problem(shape, GetParam(), rows_of(0, 0, n), {.n_ctx = 2048, .max_rows = n}));
  const std::vector<float> last = run(Problem(shape, GetParam(), {{n - 1, 0}}, {.n_ctx = 2048}));
  EXPECT_TRUE(same_bits(std::span(all).last(last.size()), last));
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaAttn,
                         testing::Values(KvFormat::f32, KvFormat::f16, KvFormat::bf16,
                                         KvFormat::q8_0),
                         [](const auto& test) { return kv_format_name(test.param); });

}  // namespace
}  // namespace fathom
