// SPDX-License-Identifier: Apache-2.0
// attn_kernel without clusters: its three blocks leave the states of nodes of 512 tokens in memory,
// or each takes all of a sequence; to the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/attn/attn_cases.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/cuda_fixture.hpp"

namespace fathom {
namespace {

using namespace test;
using namespace attn_cases;

class EmulatedAttn : public CudaTest {
 protected:
  std::vector<float> run(const Problem& p) {
    const DeviceArray<std::byte> k = upload(p.k), v = upload(p.v),
                                 counters = upload(std::vector(kCounterBytes, std::byte{0}));
    const DeviceArray<int32_t> pos = upload(p.pos), slot = upload(p.slot),
                               pages = upload(p.page_table);
    const DeviceArray<float> q = upload(p.q),
                             out = poisoned<float>(static_cast<int64_t>(p.q.size()));
    AttnArgs::Static s = p.s;
    s.kv.k = k.get();
    s.kv.v = v.get();
    StepState step = p.step;
    step.pos = pos.get();
    step.slot = slot.get();
    step.page_table = pages.get();
    ctx().counters = {counters.get(), kCounterBytes};
    use_workspace(workspace_bytes_cuda(s));
    attn_cuda(ctx(), {s, &step, q.get(), out.get()});
    const std::vector<std::byte> left = download(counters);
    EXPECT_TRUE(std::ranges::all_of(left, [](std::byte b) { return b == std::byte{0}; }));
    return download(out);
  }
  std::vector<float> expect_good(Shape shape, KvFormat format, const std::vector<Row>& rows,
                                 const Options& options) {
    const Problem p(shape, format, rows, options);
    const std::vector<float> got = run(p), expected = exact(p);
    const Errors e = errors(got, expected);
    EXPECT_LT(e.max, 2e-5 * e.scale) << rows.size() << " rows, the first at " << rows[0].pos;
    EXPECT_LT(e.cosine_distance, 1e-9);
    return got;
  }
};

TEST_F(EmulatedAttn, SequencesOfAllLengthsAloneAndTogether) {
  for (const KvFormat format : {KvFormat::f16, KvFormat::q8_0}) {
    const Shape shape{3, 2, 64};
    const std::vector<int> lengths{1, 33, 129, 512, 640, 1641, 2049, 100, 5000};
    std::vector<Row> rows;
    for (const int n : lengths) rows.push_back({n - 1, static_cast<int32_t>(rows.size())});
    const Options options{.page_tokens = 16, .n_ctx = 8192};
    const std::vector<float> together = expect_good(shape, format, rows, options);
    const std::vector<float> whole =
        run(Problem(shape, format, rows, {.page_tokens = 64, .n_ctx = 8192, .max_rows = 1}));
    EXPECT_TRUE(same_bits(whole, together)) << "with little scratch";
    const size_t width = static_cast<size_t>(shape.width());
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::vector<float> alone = expect_good(shape, format, {rows[i]}, options);
      EXPECT_TRUE(same_bits(alone, std::span(together).subspan(i * width, width)))
          << lengths[i] << " tokens alone";
    }
  }
}

TEST_F(EmulatedAttn, RowsThatShareAPass) {
  const Shape shape{3, 2, 64};
  const std::vector<Row> rows = joined(rows_of(0, 900, 905), rows_of(1, 126, 130));
  const std::vector<float> together = expect_good(shape, KvFormat::f16, rows, {});
  const size_t width = static_cast<size_t>(shape.width());
  for (const size_t i : {size_t{2}, size_t{4}, size_t{7}}) {
    const std::vector<float> alone = run(Problem(shape, KvFormat::f16, {rows[i]}, {}));
    EXPECT_TRUE(same_bits(alone, std::span(together).subspan(i * width, width))) << i;
  }
  expect_good(shape, KvFormat::f16, rows_of(0, 560, 600), {});  // four tiles of queries
}

TEST_F(EmulatedAttn, NodesOfAllLevels) {
  expect_good({1, 1, 16}, KvFormat::f16, {{41000, 0}}, {.n_ctx = 41984, .max_rows = 1});
}

TEST_F(EmulatedAttn, Codes) {
  expect_good({7, 1, 128}, KvFormat::q8_0, {{1000, 0}, {300, 1}}, {});
  expect_good({7, 2, 80}, KvFormat::fp8_e4m3, {{1000, 0}, {300, 1}}, {});
}

}  // namespace
}  // namespace fathom
