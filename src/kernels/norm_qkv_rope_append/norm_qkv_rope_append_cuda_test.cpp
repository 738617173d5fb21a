// SPDX-License-Identifier: Apache-2.0
// The front of an attention block on the GPU against the CPU's, with many rows against the exact
// one: q, and K and V as they are read back from the cache; equal bits at every number of rows, of
// few and of many; padded rows write nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kernels/common/kv_ref.hpp"
#include "kernels/norm_qkv_rope_append/norm_qkv_rope_append.hpp"
#include "kernels/quant/mma_pack.hpp"
#include "tests/support/cuda_fixture.hpp"
#include "tests/support/emulated.hpp"
#include "tests/support/op_cases.hpp"

namespace fathom {
namespace {

using namespace test;
using Static = NormQkvRopeAppendArgs::Static;

constexpr float kEps = 1e-5f;
constexpr int kSlots = 2, kContext = 128, kHeads = kIsEmulated ? 3 : 6,
              kKvHeads = kIsEmulated ? 1 : 2, kRows = kIsEmulated ? 35 : 70;
constexpr int kFewRows = 32;  // Hopper has other kernels for more, with activations of 16 bits
constexpr int kRowsOfSlot0 = kIsEmulated ? 18 : 37;
constexpr int64_t kModel = 768;

struct Case {
  const char* name;
  DType q, k, v;
  int head_dim, rope_dim;
  RopePairs pairs;
  bool biases, head_norms;
  KvFormat kv;
  int page_tokens;
};
constexpr auto kInterleaved = RopePairs::interleaved, kHalves = RopePairs::half_split;
constexpr DType F16 = DType::f16, BF16 = DType::bf16, Q4_1 = DType::q4_1, Q8_0 = DType::q8_0,
                Q4_K = DType::q4_k, Q6_K = DType::q6_k;
constexpr Case kCases[] = {
    {"llama", Q4_1, Q4_1, Q4_1, 64, 64, kInterleaved, false, false, KvFormat::f16, 64},
    {"qwen2", Q4_K, Q4_K, Q6_K, 128, 128, kHalves, true, false, KvFormat::f16, 16},
    {"qwen3", Q4_K, Q4_K, Q6_K, 128, 128, kHalves, false, true, KvFormat::bf16, 64},
    {"exact_cache", Q8_0, Q8_0, Q8_0, 96, 48, kHalves, true, true, KvFormat::f32, 128},
    {"q8_0_cache", Q6_K, Q4_K, Q8_0, 256, 256, kInterleaved, true, true, KvFormat::q8_0, 16},
    {"fp8_cache", Q4_K, Q4_K, Q6_K, 80, 80, kHalves, true, false, KvFormat::fp8_e4m3, 64},
    // One row of these goes in pairs of row groups that share scales of the cache with others.
    {"q8_0_pairs", Q4_K, Q4_K, Q6_K, 128, 128, kHalves, true, false, KvFormat::q8_0, 16},
    {"q8_0_pair_of_units", Q8_0, Q4_K, Q6_K, 64, 64, kHalves, false, false, KvFormat::q8_0, 64},
    {"fp8_pairs", Q4_K, Q4_K, Q6_K, 256, 256, kHalves, true, false, KvFormat::fp8_e4m3, 64},
    {"fp8_three_units", Q4_K, Q4_K, Q6_K, 96, 96, kHalves, true, false, KvFormat::fp8_e4m3, 16},
    {"mixed_forms", F16, Q8_0, BF16, 80, 40, kHalves, true, false, KvFormat::f32, 16},
};

struct Matrix {
  Matrix(DType type, int64_t rows, uint64_t seed)
      : cpu(type, rows, kModel, Activations::int8, seed),
        tiles(quant::plan_mma_matrix(type, rows, kModel)),
        packed(static_cast<size_t>(tiles.packed_bytes)) {
    quant::pack_mma_groups(op_pool(1), tiles, cpu.file.data(), 0, (rows + 15) / 16, packed.data());
  }
  OpMatrix cpu;
  PackedMatrix tiles;
  std::vector<std::byte> packed;
};

class CudaNormQkvRopeAppend : public CudaTestWithParam<Case> {
 protected:
  struct Result {
    std::vector<float> q;
    std::vector<std::byte> k, v;
  };

  CudaNormQkvRopeAppend()
      : q_(GetParam().q, kHeads * GetParam().head_dim, 41),
        k_(GetParam().k, kKvHeads * GetParam().head_dim, 42),
        v_(GetParam().v, kKvHeads * GetParam().head_dim, 43),
        norm_(uniform_values(kModel, 0.1f, 0.3f, 44)),
        biases_(uniform_values(kHeads * GetParam().head_dim + 8, -2, 2, 45)),
        head_norm_(uniform_values(GetParam().head_dim, 0.5f, 1.5f, 46)),
        x_(quant::random_activations(kRows * kModel, 47)),
        geometry_{GetParam().kv, kKvHeads, GetParam().head_dim, GetParam().page_tokens} {
    for (int i = 0; i < kRows; ++i) {
      slot_.push_back(i < kRowsOfSlot0 ? 0 : 1);
      pos_.push_back(i < kRowsOfSlot0 ? 5 + i : i - kRowsOfSlot0);
      for (int pair = 0; pair < GetParam().rope_dim / 2; ++pair) {
        const double angle = 0.1 + i * std::pow(0.7, pair);
        rope_.push_back(static_cast<float>(std::cos(angle)));
        rope_.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    const int pages = kSlots * kContext / geometry_.page_tokens;
    for (int i = 0; i < pages; ++i) page_table_.push_back(pages - 1 - i);
    cache_bytes_ = static_cast<size_t>(pages * geometry_.page_bytes());
  }

  Static statics(const float* norm, const float* biases, const float* head_norm) const {
    const Case& c = GetParam();
    const float* bias = c.biases ? biases : nullptr;
    return {.d_model = kModel,
            .n_heads = kHeads,
            .n_kv_heads = kKvHeads,
            .head_dim = c.head_dim,
            .rope_dim = c.rope_dim,
            .pairs = c.pairs,
            .rms_eps = kEps,
            .norm = norm,
            .q = {},
            .k = {},
            .v = {},
            .q_bias = bias,
            .k_bias = bias ? bias + 3 : nullptr,
            .v_bias = bias ? bias + 5 : nullptr,
            .q_norm = c.head_norms ? head_norm : nullptr,
            .k_norm = c.head_norms ? head_norm : nullptr,
            .kv = {},
            .max_rows = kRows};
  }
  StepState step(int n_rows) const {
    StepState out{};
    out.n_rows = n_rows;
    out.max_pages = kContext / geometry_.page_tokens;
    return out;
  }

  Result on_cpu() {
    const auto run = [&](const NormQkvRopeAppendArgs& args) {
      run_cpu_op(norm_qkv_rope_append_cpu, args, select_cpu_kernels("scalar"), 1,
                 workspace_bytes_cpu(args.s));
    };
    return on_host({&q_.cpu.cpu, &k_.cpu.cpu, &v_.cpu.cpu}, run);
  }
  // Exact but for the cache's format.
  Result on_reference() {
    const auto run = [](const NormQkvRopeAppendArgs& args) {
      ExecContext ctx;
      norm_qkv_rope_append_ref(ctx, args);
    };
    return on_host({&q_.cpu.reference, &k_.cpu.reference, &v_.cpu.reference}, run);
  }
  template <class Run>
  Result on_host(std::array<const PackedMatrix*, 3> qkv, const Run& run) {
    Result out{poisoned_values(kRows), std::vector(cache_bytes_, std::byte{0xff}),
               std::vector(cache_bytes_, std::byte{0xff})};
    Static s = statics(norm_.data(), biases_.data(), head_norm_.data());
    s.q = *qkv[0];
    s.k = *qkv[1];
    s.v = *qkv[2];
    s.kv = {geometry_, out.k.data(), out.v.data()};
    StepState state = step(kRows);
    state.pos = pos_.data();
    state.slot = slot_.data();
    state.page_table = page_table_.data();
    run(NormQkvRopeAppendArgs{s, &state, x_.data(), rope_.data(), out.q.data()});
    return out;
  }

  // first_page: of the cache; where the pages before it would be there is nothing.
  Result on_gpu(int n_rows, const std::vector<int32_t>& positions, int32_t first_page = 0) {
    const DeviceArray<float> norm = upload(norm_), biases = upload(biases_),
                             head_norm = upload(head_norm_), x = upload(x_), rope = upload(rope_);
    const DeviceArray<std::byte> q = upload(q_.packed), k = upload(k_.packed),
                                 v = upload(v_.packed);
    const DeviceArray<std::byte> keys = poisoned<std::byte>(cache_bytes_),
                                 values = poisoned<std::byte>(cache_bytes_);
    std::vector<int32_t> page_table = page_table_;
    for (int32_t& page : page_table) page += first_page;
    const DeviceArray<int32_t> pos = upload(positions), slot = upload(slot_),
                               pages = upload(page_table);
    const DeviceArray<float> out = poisoned<float>(n_rows * kHeads * GetParam().head_dim);
    Static s = statics(norm.get(), biases.get(), head_norm.get());
    s.q = q_.tiles;
    s.q.data = q.get();
    s.k = k_.tiles;
    s.k.data = k.get();
    s.v = v_.tiles;
    s.v.data = v.get();
    const auto base = [&](std::byte* at) {
      return reinterpret_cast<std::byte*>(
          reinterpret_cast<uintptr_t>(at) -
          static_cast<uintptr_t>(int64_t{first_page} * geometry_.page_bytes()));
    };
    s.kv = {geometry_, base(keys.get()), base(values.get())};
    StepState state = step(n_rows);
    state.pos = pos.get();
    state.slot = slot.get();
    state.page_table = pages.get();
    const DeviceArray<std::byte> counters = upload(std::vector(kCounterBytes, std::byte{0}));
    ctx().counters = {counters.get(), kCounterBytes};
    use_workspace(workspace_bytes_cuda(s));
    norm_qkv_rope_append_cuda(ctx(), {s, &state, x.get(), rope.get(), out.get()});
    const Result result{download(out), download(keys), download(values)};
    const std::vector<std::byte> left = download(counters);
    EXPECT_EQ(std::count(left.begin(), left.end(), std::byte{0}), kCounterBytes)
        << "counters were left behind";
    return result;
  }

  std::vector<float> poisoned_values(int n_rows) const {
    return test::poisoned(n_rows * kHeads * GetParam().head_dim);
  }
  // K, then V, of a row as the cache gives them back.
  std::vector<float> cached(Result& r, int row) const {
    const KvLayerView view{geometry_, r.k.data(), r.v.data()};
    std::vector<double> head(geometry_.head_dim);
    std::vector<float> out;
    for (const KvPart part : {KvPart::key, KvPart::value}) {
      for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
        kv_load_ref(view, part, page_table_.data() + slot_[row] * kContext / geometry_.page_tokens,
                    kv_head, pos_[row], head.data());
        out.insert(out.end(), head.begin(), head.end());
      }
    }
    return out;
  }

  std::vector<float> cached_rows(Result& r, int n_rows) const {
    std::vector<float> out;
    for (int row = 0; row < n_rows; ++row) {
      for (const float x : cached(r, row)) out.push_back(x);
    }
    return out;
  }
  // One value in a hundred of fp8_e4m3 rounds the other way, by a tenth of itself.
  static double cache_tolerance() {
    return GetParam().kv == KvFormat::fp8_e4m3 ? 3e-2
           : GetParam().kv == KvFormat::q8_0   ? 1e-2
                                               : 4e-3;
  }

  Matrix q_, k_, v_;
  std::vector<float> norm_, biases_, head_norm_, x_, rope_;
  std::vector<int32_t> slot_, pos_, page_table_;
  KvGeometry geometry_;
  size_t cache_bytes_;
};

TEST_P(CudaNormQkvRopeAppend, FewRowsEqualTheCpu) {
  Result expected = on_cpu(), got = on_gpu(kFewRows, pos_);
  expected.q.resize(got.q.size());
  // The norm's sum has another order than the CPU's: now and then a code differs by one; and a
  // cached value may round the other way.
  EXPECT_TRUE(close(got.q, expected.q, 2e-3));
  EXPECT_TRUE(
      close(cached_rows(got, kFewRows), cached_rows(expected, kFewRows), cache_tolerance()));
}

// Where the kernels of few rows answer for them, the difference is that of int8 activations.
TEST_P(CudaNormQkvRopeAppend, ManyRowsEqualTheReference) {
  Result expected = on_reference(), got = on_gpu(kRows, pos_);
  const bool exact = info().isa == "sm_90";
  EXPECT_TRUE(close(got.q, expected.q, exact ? 2e-3 : 2e-2));
  EXPECT_TRUE(close(cached_rows(got, kRows), cached_rows(expected, kRows),
                    exact ? cache_tolerance() : std::max(3e-2, 2 * cache_tolerance())));
  // What no row stored is untouched on both.
  for (const auto& [mine, other] : {std::pair{&got.k, &expected.k}, {&got.v, &expected.v}}) {
    size_t differ = 0;
    for (size_t i = 0; i < mine->size(); ++i) {
      differ += ((*mine)[i] == std::byte{0xff}) != ((*other)[i] == std::byte{0xff});
    }
    // A stored byte is 0xff now and then.
    EXPECT_LE(differ, mine->size() / 64);
  }
}

TEST_P(CudaNormQkvRopeAppend, BitsDoNotDependOnTheNumberOfRows) {
  const size_t width = static_cast<size_t>(kHeads * GetParam().head_dim);
  const auto expect_first_rows = [&](Result all, std::initializer_list<int> numbers) {
    for (const int n_rows : numbers) {
      Result some = on_gpu(n_rows, pos_);
      EXPECT_TRUE(same_bits(some.q, std::span(all.q).first(width * n_rows))) << n_rows << " rows";
      for (int row = 0; row < n_rows; ++row) {
        ASSERT_TRUE(same_bits(cached(some, row), cached(all, row))) << n_rows << " rows, " << row;
      }
    }
  };
  expect_first_rows(on_gpu(kFewRows, pos_), {1, 3, 8, 9, 16, 17, 31});
  expect_first_rows(on_gpu(kRows, pos_), {33, std::min(48, kRows), std::min(65, kRows)});
}

// Pages far more than 4 GiB behind the first one.
TEST_P(CudaNormQkvRopeAppend, PagesBeyondFourGiBOfACache) {
  for (const int n_rows : {1, 3, 9, kRows}) {
    const Result near = on_gpu(n_rows, pos_), far = on_gpu(n_rows, pos_, 2'000'000'000);
    EXPECT_TRUE(same_bits(far.q, near.q)) << n_rows << " rows";
    EXPECT_EQ(far.k, near.k) << n_rows << " rows";
    EXPECT_EQ(far.v, near.v) << n_rows << " rows";
  }
}

TEST_P(CudaNormQkvRopeAppend, PaddedRowsStoreNothing) {
  const std::vector<int32_t> padded(kRows, -1);
  const Result got = on_gpu(4, padded);
  const auto poison = [](std::byte b) { return b == std::byte{0xff}; };
  EXPECT_TRUE(std::all_of(got.k.begin(), got.k.end(), poison));
  EXPECT_TRUE(std::all_of(got.v.begin(), got.v.end(), poison));
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaNormQkvRopeAppend, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace fathom
