// SPDX-License-Identifier: Apache-2.0
// Attention of every instruction set against the reference, and the invariances of its bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "base/error.hpp"
#include "kernels/attn/attn.hpp"
#include "kernels/common/cpu_kernels.hpp"
#include "kernels/common/kv_ref.hpp"
#include "tests/support/kv_formats.hpp"

namespace fathom {
namespace {

struct Shape {
  int n_heads, n_kv_heads, head_dim;
};

// A cache of two sequences filled with random keys and values; everything past a sequence's length
// is poisoned with NaN.
struct Problem {
  AttnArgs args{};
  StepState step{};
  std::vector<std::byte> k, v;
  std::vector<int32_t> page_table, token, pos, slot;
  std::vector<float> q, out;

  Problem(Shape shape, KvFormat format, int page_tokens, int n_ctx, std::vector<int32_t> positions,
          std::vector<int32_t> slots, uint64_t seed) {
    AttnArgs::Static& s = args.s;
    s.n_heads = shape.n_heads;
    s.n_kv_heads = shape.n_kv_heads;
    s.head_dim = shape.head_dim;
    s.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    s.max_rows = 512;
    s.n_ctx = n_ctx;
    s.kv.geometry = {format, shape.n_kv_heads, shape.head_dim, page_tokens};
    const int pages_a_slot = (n_ctx + page_tokens - 1) / page_tokens;
    const int n_slots = 2;
    // Pages in reverse, so that logical and physical order differ.
    for (int i = 0; i < n_slots * pages_a_slot; ++i) {
      page_table.push_back(n_slots * pages_a_slot - 1 - i);
    }
    const size_t bytes = n_slots * pages_a_slot * s.kv.geometry.page_bytes();
    // 0xff bytes: NaN in f32, f16 and bf16, codes and scales of NaN elsewhere.
    k.assign(bytes, std::byte{0xff});
    v.assign(bytes, std::byte{0xff});
    s.kv.k = k.data();
    s.kv.v = v.data();
    std::vector<int> length(n_slots, 0);
    for (size_t i = 0; i < positions.size(); ++i) {
      length[slots[i]] = std::max(length[slots[i]], positions[i] + 1);
    }
    for (int sl = 0; sl < n_slots; ++sl) {
      std::mt19937_64 random(1000 + sl);  // the content does not depend on the rows asked for
      std::normal_distribution<double> normal;
      std::vector<double> head(shape.head_dim);
      for (int t = 0; t < length[sl]; ++t) {
        for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
          for (KvPart part : {KvPart::key, KvPart::value}) {
            for (double& x : head) x = normal(random);
            kv_store_ref(s.kv, part, page_table.data() + sl * pages_a_slot, kv_head, t,
                         head.data());
          }
        }
      }
    }
    pos = positions;
    slot = slots;
    token.assign(pos.size(), 0);
    step.n_rows = static_cast<int32_t>(pos.size());
    step.max_pages = pages_a_slot;
    step.pos = pos.data();
    step.slot = slot.data();
    step.token = token.data();
    step.page_table = page_table.data();
    args.step = &step;
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (size_t row = 0; row < pos.size(); ++row) {
      random.seed(seed + 7919u * pos[row] + slot[row]);  // a row's query depends on its place only
      normal.reset();
      for (int i = 0; i < shape.n_heads * shape.head_dim; ++i) q.push_back(2 * normal(random));
    }
    out.assign(q.size(), std::nanf(""));
    args.q = q.data();
    args.out = out.data();
  }

  const std::vector<float>& run(const CpuKernels& isa, int threads) {
    ThreadPool pool(threads, false);
    const int64_t bytes = workspace_bytes_cpu(args.s);
    auto memory = std::make_unique<std::byte[]>(bytes);
    ExecContext ctx;
    ctx.pool = &pool;
    ctx.cpu = &isa;
    ctx.workspace = {memory.get(), bytes};
    std::fill(out.begin(), out.end(), std::nanf(""));
    attn_cpu(ctx, args);
    return out;
  }
  std::vector<float> reference() {
    ExecContext ctx;
    attn_ref(ctx, args);
    return out;
  }
};

std::vector<int32_t> range(int first, int end) {
  std::vector<int32_t> out;
  for (int i = first; i < end; ++i) out.push_back(i);
  return out;
}
std::vector<int32_t> zeros(size_t n) { return std::vector<int32_t>(n, 0); }

class Attn : public testing::TestWithParam<KvFormat> {};

struct Case {
  Shape shape;
  std::vector<int32_t> positions;
};

void expect_the_reference(const Case& c, KvFormat format, int threads) {
  Problem problem(c.shape, format, 64, 1024, c.positions, zeros(c.positions.size()), 3);
  const std::vector<float> exact = problem.reference();
  for (const CpuKernels* isa : available_cpu_kernels()) {
    const std::vector<float>& got = problem.run(*isa, threads);
    double worst = 0, norm = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(std::isfinite(got[i])) << isa->isa << " value " << i;
      worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - exact[i]));
      norm = std::max(norm, std::fabs(static_cast<double>(exact[i])));
    }
    ASSERT_GT(norm, 0.01) << "degenerate inputs";
    EXPECT_LT(worst, 4e-6 * std::max(norm, 1.0)) << isa->isa << " heads " << c.shape.n_heads;
  }
}

TEST_P(Attn, EqualsTheReferenceAndIgnoresPoison) {
  const Case cases[] = {
      {{9, 3, 64}, {0}},           {{9, 3, 64}, {15}},           {{9, 3, 64}, {16}},
      {{9, 3, 64}, {63}},          {{9, 3, 64}, {64}},           {{9, 3, 64}, {700}},
      {{14, 2, 64}, {300}},        {{4, 4, 96}, {255}},          {{8, 1, 128}, {256}},
      {{2, 2, 256}, {100}},        {{9, 3, 64}, range(0, 77)},   {{14, 2, 64}, range(250, 262)},
      {{16, 1, 128}, range(0, 5)}, {{3, 3, 32}, range(40, 140)},
  };
  for (const Case& c : cases) expect_the_reference(c, GetParam(), 2);
}

// As many query heads a KV head as a block has room for, one row, as many as splits are dealt for,
// and more.
TEST_P(Attn, GroupsOfEverySize) {
  for (const int group : {1, 7, 47, 48, 49, 64}) {
    SCOPED_TRACE("group " + std::to_string(group));
    for (const int n_rows : {1, 8, 9, 26}) {
      SCOPED_TRACE(std::to_string(n_rows) + " rows");
      expect_the_reference({{group, 1, 32}, range(270, 270 + n_rows)}, GetParam(), 2);
    }
  }
}

TEST(AttnLimits, RefusesGroupsWithoutRoom) {
  for (const int n_rows : {1, 8, 26}) {
    Problem problem({65, 1, 32}, KvFormat::f16, 64, 64, range(0, n_rows), zeros(n_rows), 3);
    EXPECT_THROW(problem.run(select_cpu_kernels("scalar"), 1), Error) << n_rows << " rows";
  }
}

// More threads than have memory for states of their own: the others rest.
TEST(AttnLimits, MoreThreadsThanRoom) {
  expect_the_reference({{2, 2, 32}, range(0, 70)}, KvFormat::f16, 70);
  expect_the_reference({{2, 2, 32}, {300}}, KvFormat::f16, 70);
}

TEST_P(Attn, BitsDependOnTheTokenIndexOnly) {
  const Shape shape{6, 2, 64};
  const int n = 330;
  // All rows of slot 0 at once, one instruction set, one thread, one page size: the base.
  Problem all(shape, GetParam(), 512, 512, range(0, n), zeros(n), 11);
  const std::vector<float> base = all.run(select_cpu_kernels("scalar"), 1);
  const int width = shape.n_heads * shape.head_dim;
  auto expect_rows = [&](const std::vector<float>& got, const std::vector<int32_t>& rows,
                         const char* what) {
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(std::memcmp(&got[i * width], &base[static_cast<size_t>(rows[i]) * width],
                            sizeof(float) * width),
                0)
          << what << ", position " << rows[i];
    }
  };
  for (const CpuKernels* isa : available_cpu_kernels()) {
    expect_rows(all.run(*isa, 1), range(0, n), isa->isa);
    expect_rows(all.run(*isa, 3), range(0, n), "three threads");
    for (int page : {16, 64, 256}) {
      Problem paged(shape, GetParam(), page, 512, range(0, n), zeros(n), 11);
      expect_rows(paged.run(*isa, 2), range(0, n), "paged");
    }
    for (const std::vector<int32_t>& rows : {std::vector<int32_t>{329}, std::vector<int32_t>{0},
                                             range(320, 328), range(64, 67), range(100, 117)}) {
      Problem part(shape, GetParam(), 64, 640, rows, zeros(rows.size()), 11);
      expect_rows(part.run(*isa, 2), rows, "chunk");
    }
    // A batch of two sequences: the row of slot 0 does not change.
    Problem batch(shape, GetParam(), 64, 640, {329, 17}, {0, 1}, 11);
    expect_rows(batch.run(*isa, 2), {329}, "batch");
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Attn, testing::ValuesIn(test::all_kv_formats()),
                         [](const auto& param) { return test::kv_test_name(param.param); });

// Worked by hand: a query far along one key sees that key's value alone.
TEST(AttnByHand, OneHotSoftmaxReturnsTheValue) {
  Problem problem({1, 1, 16}, KvFormat::f32, 16, 16, {2}, {0}, 1);
  const AttnArgs::Static& s = problem.args.s;
  std::vector<double> head(16, 0.0);
  for (int t = 0; t < 3; ++t) {
    std::fill(head.begin(), head.end(), 0.0);
    head[t] = 100.0;
    kv_store_ref(s.kv, KvPart::key, problem.page_table.data(), 0, t, head.data());
    std::fill(head.begin(), head.end(), t + 0.5);
    kv_store_ref(s.kv, KvPart::value, problem.page_table.data(), 0, t, head.data());
  }
  std::fill(problem.q.begin(), problem.q.end(), 0.0f);
  problem.q[1] = 100.0f;
  for (const CpuKernels* isa : available_cpu_kernels()) {
    for (float x : problem.run(*isa, 1)) EXPECT_EQ(x, 1.5f);
  }
}

}  // namespace
}  // namespace fathom
