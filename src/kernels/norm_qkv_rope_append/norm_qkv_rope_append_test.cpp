// SPDX-License-Identifier: Apache-2.0
// The front of an attention block on every instruction set, thread count and number of rows
// against the reference; K and V as they are read back from the cache. With int8 activations the
// reference gets the rows that the product saw.
#include "kernels/norm_qkv_rope_append/norm_qkv_rope_append.hpp"

#include <gtest/gtest.h>

#include "kernels/common/kv_ref.hpp"
#include "tests/support/op_cases.hpp"

namespace fathom {
namespace {

using namespace test;
using Static = NormQkvRopeAppendArgs::Static;

constexpr float kEps = 1e-5f;
constexpr int kSlots = 2, kContext = 128;
constexpr int kRowsOfSlot0 = 37;

struct Case {
  const char* name;
  DType q, k, v;
  Activations mode;
  int head_dim, rope_dim;
  RopePairs pairs;
  bool biases, head_norms;
  KvFormat kv;
  int page_tokens;
};
constexpr auto kF32 = Activations::f32, kInt8 = Activations::int8;
constexpr auto kInterleaved = RopePairs::interleaved, kHalves = RopePairs::half_split;
constexpr DType F32 = DType::f32, F16 = DType::f16, Q4_1 = DType::q4_1, Q8_0 = DType::q8_0,
                Q4_K = DType::q4_k, Q6_K = DType::q6_k;
constexpr Case kCases[] = {
    {"f32", F32, F32, F32, kF32, 64, 64, kInterleaved, false, false, KvFormat::f32, 64},
    {"f32_odd", F32, F32, F32, kInt8, 22, 10, kHalves, true, true, KvFormat::f32, 16},
    {"f16", F16, F16, F16, kInt8, 64, 32, kHalves, true, false, KvFormat::f16, 16},
    {"q4_1", Q4_1, Q4_1, Q4_1, kInt8, 64, 64, kInterleaved, false, false, KvFormat::f32, 16},
    {"q4_1_exact", Q4_1, Q4_1, Q4_1, kF32, 64, 64, kInterleaved, true, false, KvFormat::q8_0, 64},
    {"q8_0", Q8_0, Q8_0, Q8_0, kInt8, 32, 32, kHalves, false, true, KvFormat::q8_0, 16},
    {"q8_0_exact", Q8_0, Q8_0, Q8_0, kF32, 32, 16, kHalves, true, true, KvFormat::f32, 64},
    {"q4_k", Q4_K, Q4_K, Q4_K, kInt8, 64, 48, kInterleaved, true, true, KvFormat::bf16, 64},
    {"q4_k_exact", Q4_K, Q4_K, Q4_K, kF32, 64, 48, kInterleaved, false, true, KvFormat::f16, 16},
    {"q6_k", Q6_K, Q6_K, Q6_K, kInt8, 40, 40, kInterleaved, false, false, KvFormat::f16, 64},
    {"q6_k_exact", Q6_K, Q6_K, Q6_K, kF32, 40, 24, kHalves, false, false, KvFormat::bf16, 16},
    {"k_mix", Q4_K, Q4_K, Q6_K, kInt8, 64, 64, kHalves, true, false, KvFormat::f32, 64},
    {"k_mix_exact", Q4_K, Q4_K, Q6_K, kF32, 64, 64, kHalves, true, false, KvFormat::f32, 64},
    {"fp8_cache", Q8_0, Q8_0, Q8_0, kInt8, 40, 40, kHalves, true, false, KvFormat::fp8_e4m3, 16},
    {"fp8_cache_exact", F16, F16, Q8_0, kF32, 64, 64, kInterleaved, false, true, KvFormat::fp8_e4m3,
     64},
    {"float_mix", F16, Q8_0, Q4_1, kInt8, 64, 20, kInterleaved, true, true, KvFormat::f32, 16},
    {"float_mix_exact", F16, Q8_0, Q4_1, kF32, 64, 20, kInterleaved, false, true, KvFormat::q8_0,
     64},
};

// A cache of NaN whose pages lie in reverse, and the rows' places in it.
struct Cache {
  explicit Cache(const KvGeometry& geometry) {
    const int pages = kSlots * kContext / geometry.page_tokens;
    for (int i = 0; i < pages; ++i) page_table.push_back(pages - 1 - i);
    k.assign(pages * geometry.page_bytes(), std::byte{0xff});
    v = k;
    view = {geometry, k.data(), v.data()};
  }
  void append_head(std::vector<float>& out, KvPart part, int slot, int kv_head, int pos) const {
    std::vector<double> head(view.geometry.head_dim);
    kv_load_ref(view, part, page_table.data() + slot * kContext / view.geometry.page_tokens,
                kv_head, pos, head.data());
    out.insert(out.end(), head.begin(), head.end());
  }

  std::vector<int32_t> page_table;
  std::vector<std::byte> k, v;
  KvLayerView view;
};

class NormQkvRopeAppend : public testing::TestWithParam<Case> {
 protected:
  static constexpr int kHeads = 3, kKvHeads = 2;

  NormQkvRopeAppend()
      : d_model_(GetParam().q == F32 ? 33 : 256),
        q_(GetParam().q, kHeads * GetParam().head_dim, d_model_, GetParam().mode, 41),
        k_(GetParam().k, kKvHeads * GetParam().head_dim, d_model_, GetParam().mode, 42),
        v_(GetParam().v, kKvHeads * GetParam().head_dim, d_model_, GetParam().mode, 43),
        norm_(uniform_values(d_model_, 0.1f, 0.3f, 44)),
        biases_(uniform_values(kHeads * GetParam().head_dim, -2, 2, 45)),
        head_norm_(uniform_values(GetParam().head_dim, 0.5f, 1.5f, 46)),
        x_(quant::random_activations(kMaxOpRows * d_model_, 47)) {
    const Case& c = GetParam();
    const float* bias = c.biases ? biases_.data() : nullptr;
    const float* head_norm = c.head_norms ? head_norm_.data() : nullptr;
    s_ = {.d_model = d_model_,
          .n_heads = kHeads,
          .n_kv_heads = kKvHeads,
          .head_dim = c.head_dim,
          .rope_dim = c.rope_dim,
          .pairs = c.pairs,
          .rms_eps = kEps,
          .norm = norm_.data(),
          .q = q_.cpu,
          .k = k_.cpu,
          .v = v_.cpu,
          .q_bias = bias,
          .k_bias = bias ? bias + 3 : nullptr,
          .v_bias = bias ? bias + 5 : nullptr,
          .q_norm = head_norm,
          .k_norm = head_norm,
          .kv = {},
          .max_rows = kMaxOpRows};
    for (int i = 0; i < kMaxOpRows; ++i) {
      slot_.push_back(i < kRowsOfSlot0 ? 0 : 1);
      pos_.push_back(i < kRowsOfSlot0 ? 5 + i : i - kRowsOfSlot0);
      for (int pair = 0; pair < c.rope_dim / 2; ++pair) {
        const double angle = 0.1 + i * std::pow(0.7, pair);
        rope_.push_back(static_cast<float>(std::cos(angle)));
        rope_.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }

  StepState step(const Cache& cache, int first, int n_rows) const {
    StepState out{};
    out.n_rows = n_rows;
    out.max_pages = kContext / cache.view.geometry.page_tokens;
    out.pos = pos_.data() + first;
    out.slot = slot_.data() + first;
    out.page_table = cache.page_table.data();
    return out;
  }
  // Of each row q, then K and V as the cache gives them back.
  std::vector<float> rows_of(const std::vector<float>& q, const Cache& cache, int n_rows) const {
    std::vector<float> out;
    const int q_dim = s_.n_heads * s_.head_dim;
    for (int row = 0; row < n_rows; ++row) {
      out.insert(out.end(), q.begin() + row * q_dim, q.begin() + (row + 1) * q_dim);
      for (const KvPart part : {KvPart::key, KvPart::value}) {
        for (int head = 0; head < kKvHeads; ++head) {
          cache.append_head(out, part, slot_[row], head, pos_[row]);
        }
      }
    }
    return out;
  }
  KvGeometry geometry(KvFormat format) const {
    return {format, kKvHeads, s_.head_dim, GetParam().page_tokens};
  }
  size_t width() const { return (kHeads + 2 * kKvHeads) * s_.head_dim; }

  std::vector<float> run(const CpuKernels& isa, int threads, int n_rows) const {
    Cache cache(geometry(GetParam().kv));
    Static s = s_;
    s.kv = cache.view;
    const StepState state = step(cache, 0, n_rows);
    std::vector<float> q = poisoned(n_rows * s.n_heads * s.head_dim);
    run_cpu_op(norm_qkv_rope_append_cpu,
               NormQkvRopeAppendArgs{s, &state, x_.data(), rope_.data(), q.data()}, isa, threads,
               workspace_bytes_cpu(s));
    EXPECT_EQ(cache.k[cache.view.tile_offset(cache.page_table.data(), 0, 4)], std::byte{0xff})
        << "wrote before the first position";
    return rows_of(q, cache, n_rows);
  }

  // The reference on one row at a time; `seen` is the normalised row as a product reads it, and
  // the norm gives it back unchanged: seen / rms(seen) * rms(seen).
  std::vector<float> reference_on(const std::vector<float>& seen) const {
    Cache cache(geometry(KvFormat::f32));
    Static s = reference_static(cache);
    const int64_t q_dim = s.n_heads * s.head_dim;
    std::vector<float> q = poisoned(kMaxOpRows * q_dim);
    for (int row = 0; row < kMaxOpRows; ++row) {
      const float* x = seen.data() + row * d_model_;
      double squares = 0;
      for (int64_t i = 0; i < d_model_; ++i) squares += static_cast<double>(x[i]) * x[i];
      const double mean_square = squares / static_cast<double>(d_model_);
      const std::vector<float> rms(d_model_, static_cast<float>(std::sqrt(mean_square + kEps)));
      s.norm = rms.data();
      const StepState state = step(cache, row, 1);
      ExecContext ctx;
      norm_qkv_rope_append_ref(
          ctx, {s, &state, x, rope_.data() + row * s.rope_dim, q.data() + row * q_dim});
    }
    return rows_of(q, cache, kMaxOpRows);
  }
  std::vector<float> reference() const {
    if (GetParam().mode == Activations::f32) {
      Cache cache(geometry(KvFormat::f32));
      const Static s = reference_static(cache);
      const StepState state = step(cache, 0, kMaxOpRows);
      std::vector<float> q = poisoned(kMaxOpRows * s.n_heads * s.head_dim);
      ExecContext ctx;
      norm_qkv_rope_append_ref(ctx, {s, &state, x_.data(), rope_.data(), q.data()});
      return rows_of(q, cache, kMaxOpRows);
    }
    const std::vector<float> normed = rms_norm_rows(x_, norm_, kEps);
    std::vector<float> out = reference_on(seen_by(s_.q, normed));
    const std::vector<float> for_k = reference_on(seen_by(s_.k, normed));
    const std::vector<float> for_v = reference_on(seen_by(s_.v, normed));
    for (size_t i = 0; i < out.size(); ++i) {
      const int head = static_cast<int>(i % width()) / s_.head_dim;
      if (head >= kHeads) out[i] = head < kHeads + kKvHeads ? for_k[i] : for_v[i];
    }
    return out;
  }

 private:
  Static reference_static(const Cache& cache) const {
    Static s = s_;
    s.q = q_.reference;
    s.k = k_.reference;
    s.v = v_.reference;
    s.kv = cache.view;
    return s;
  }

  int64_t d_model_;
  OpMatrix q_, k_, v_;
  std::vector<float> norm_, biases_, head_norm_, x_, rope_;
  std::vector<int32_t> slot_, pos_;
  Static s_;
};

// What storing in the cache may lose, relative to a vector: half a unit in the last place, or half
// a step of max|x|/127 a value, here with max|x| below five times the RMS of a block.
double stored_tolerance(KvFormat format) {
  switch (format) {
    case KvFormat::f32:
      return 0;
    case KvFormat::f16:
      return 0x1p-11;
    case KvFormat::bf16:
      return 0x1p-8;
    case KvFormat::q8_0:
      return 0.5 * 5 / 127;
    case KvFormat::fp8_e4m3:
      return 0x1p-4;
  }
  return 0;
}

TEST_P(NormQkvRopeAppend, EqualsTheReference) {
  const std::vector<float> expected = reference();
  const double exact = 2 * dot_tolerance(256);
  expect_one_result(
      expected, width(), exact + stored_tolerance(GetParam().kv),
      [&](const CpuKernels& isa, int threads, int n_rows) { return run(isa, threads, n_rows); });
  // q never goes through the cache.
  const std::vector<float> got = run(select_cpu_kernels("scalar"), 1, kMaxOpRows);
  std::vector<float> q, q_expected;
  for (size_t i = 0; i < got.size(); ++i) {
    if (static_cast<int>(i % width()) >= kHeads * GetParam().head_dim) continue;
    q.push_back(got[i]);
    q_expected.push_back(expected[i]);
  }
  EXPECT_TRUE(close(q, q_expected, exact));
}

INSTANTIATE_TEST_SUITE_P(Cases, NormQkvRopeAppend, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace fathom
