// SPDX-License-Identifier: Apache-2.0
// The GPU's fill against the reference's, byte for byte over the whole cache: what it writes, and
// that it writes nothing else. Every format, paged and contiguous, ragged ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>

#include "kernels/common/cxx20.cuh"
#include "kernels/kv_fill/kv_fill.hpp"
#include "tests/support/cuda_fixture.hpp"
#include "tests/support/emulated.hpp"
#include "tests/support/kv_formats.hpp"

namespace fathom {
namespace {

constexpr int kHeads = 3, kTokens = 700;

// A cache on the host whose tokens before `begin` are normal, with a mean and deviation of their
// own for every dim; the rest is filled with one byte.
struct Problem {
  KvGeometry geometry;
  std::vector<int32_t> pages;
  std::vector<std::byte> k, v;

  Problem(KvFormat format, int head_dim, int page_tokens, int64_t begin)
      : geometry{format, kHeads, head_dim, page_tokens} {
    const int n_pages = (kTokens + page_tokens - 1) / page_tokens + 1;
    for (int i = 0; i < n_pages; ++i) pages.push_back(n_pages - 1 - i);
    k.assign(static_cast<size_t>(n_pages * geometry.page_bytes()), std::byte{0xa5});
    v = k;
    std::mt19937_64 random(3);
    std::normal_distribution<double> normal;
    std::vector<double> x(static_cast<size_t>(head_dim));
    for (int64_t token = 0; token < begin; ++token) {
      for (int head = 0; head < kHeads; ++head) {
        for (const KvPart part : {KvPart::key, KvPart::value}) {
          for (int dim = 0; dim < head_dim; ++dim) {
            const double sigma = part == KvPart::key ? 2.0 + dim % 3 : 0.25;
            x[static_cast<size_t>(dim)] = 0.1 * dim - head + sigma * normal(random);
          }
          if (head == 2 && part == KvPart::value) std::fill(x.begin(), x.end(), 0.0);
          kv_store_ref(view(), part, pages.data(), head, token, x.data());
        }
      }
    }
  }
  KvLayerView view() { return {geometry, k.data(), v.data()}; }
};

class KvFillCuda : public test::CudaTestWithParam<std::tuple<KvFormat, int, int>> {};

TEST_P(KvFillCuda, WritesTheReferencesBytes) {
  const auto [format, head_dim, page_tokens] = GetParam();
  struct Range {
    int64_t begin, end;
  };
  for (const auto [begin, end] : {Range{1, 2}, Range{1, 40}, Range{15, 16}, Range{16, 33},
                                  Range{17, 700}, Range{100, 612}, Range{300, 657}}) {
    Problem problem(format, head_dim, page_tokens, begin);
    const auto k = upload(problem.k), v = upload(problem.v);
    const auto pages = upload(problem.pages);
    const KvFillArgs args{
        {{problem.geometry, k.get(), v.get()}, 5}, pages.get(), begin, end, 0x123456789abcull};
    kv_fill_cuda(ctx(), args);
    const std::vector<std::byte> got_k = download(k), got_v = download(v);

    KvFillArgs host_args = args;
    host_args.s.kv = problem.view();
    host_args.pages = problem.pages.data();
    ExecContext host;
    kv_fill_ref(host, host_args);
    const auto expect_equal = [&](const char* name, const std::vector<std::byte>& got,
                                  const std::vector<std::byte>& expected) {
      int64_t n_off = 0, first = -1;
      for (size_t i = 0; i < got.size(); ++i) {
        if (got[i] == expected[i]) continue;
        if (n_off++ == 0) first = static_cast<int64_t>(i);
      }
      EXPECT_EQ(n_off, 0) << name << ", tokens " << begin << ".." << end << ": byte " << first
                          << " of " << got.size() << " is the first that differs (tile "
                          << first / problem.geometry.tile_bytes() << ", byte "
                          << first % problem.geometry.tile_bytes() << " of it)";
    };
    expect_equal("K", got_k, problem.k);
    expect_equal("V", got_v, problem.v);
  }
}

// Pages far more than 4 GiB behind the first one: the same bytes.
TEST_P(KvFillCuda, PagesBeyondFourGiBOfACache) {
  constexpr int32_t kFar = 2'000'000'000;
  constexpr int64_t kBegin = 17, kEnd = 100;
  const auto fill = [&](int32_t first_page) {
    const auto [format, head_dim, page_tokens] = GetParam();
    Problem problem(format, head_dim, page_tokens, kBegin);
    const auto k = upload(problem.k), v = upload(problem.v);
    for (int32_t& page : problem.pages) page += first_page;
    const auto pages = upload(problem.pages);
    const auto base = [&](std::byte* at) {
      return reinterpret_cast<std::byte*>(
          reinterpret_cast<uintptr_t>(at) -
          static_cast<uintptr_t>(first_page * problem.geometry.page_bytes()));
    };
    kv_fill_cuda(ctx(), {{{problem.geometry, base(k.get()), base(v.get())}, 5},
                         pages.get(),
                         kBegin,
                         kEnd,
                         0x123456789abcull});
    std::vector<std::byte> both = download(k);
    const std::vector<std::byte> values = download(v);
    both.insert(both.end(), values.begin(), values.end());
    return both;
  };
  EXPECT_TRUE(fill(kFar) == fill(0));
}

INSTANTIATE_TEST_SUITE_P(Formats, KvFillCuda,
                         testing::Combine(testing::ValuesIn(test::all_kv_formats()),
                                          testing::Values(64, 128, 256), testing::Values(16, 1024)),
                         [](const auto& test) {
                           return test::kv_test_name(std::get<0>(test.param)) + "_dim" +
                                  std::to_string(std::get<1>(test.param)) + "_page" +
                                  std::to_string(std::get<2>(test.param));
                         });
INSTANTIATE_TEST_SUITE_P(OddDims, KvFillCuda,
                         testing::Combine(testing::Values(KvFormat::f16, KvFormat::fp8_e4m3),
                                          testing::Values(80, 96, 6), testing::Values(64)));
INSTANTIATE_TEST_SUITE_P(Sanitized, KvFillCuda,
                         testing::Combine(testing::Values(KvFormat::f16, KvFormat::q8_0,
                                                          KvFormat::fp8_e4m3),
                                          testing::Values(64), testing::Values(16)));

class KvFillCudaDepth : public test::CudaTest {};

// A layer of 131,072 tokens takes milliseconds: a bench at that depth fills 28 of them.
TEST_F(KvFillCudaDepth, FillsALongCacheFast) {
  constexpr int64_t kDepth = test::kIsEmulated ? 2048 : 131072, kBegin = 256;
  const KvGeometry geometry{KvFormat::f16, 4, 128, kDepth};
  const Buffer k = make_buffer(api(), geometry.page_bytes());
  const Buffer v = make_buffer(api(), geometry.page_bytes());
  const auto page = upload(std::vector<int32_t>{0});
  const std::vector<std::byte> zeros(1 << 20);
  api().copy_to_device(k.get().data, zeros.data(), 1 << 20, stream().get());
  api().copy_to_device(v.get().data, zeros.data(), 1 << 20, stream().get());
  const KvFillArgs args{{{geometry, k.get().data, v.get().data}, 0}, page.get(), kBegin, kDepth, 1};
  kv_fill_cuda(ctx(), args);
  const Event start = make_event(api()), stop = make_event(api());
  api().event_record(start.get(), stream().get());
  kv_fill_cuda(ctx(), args);
  api().event_record(stop.get(), stream().get());
  const double elapsed_us = api().event_elapsed_us(start.get(), stop.get());
  if (!test::kIsEmulated) {
    EXPECT_LT(elapsed_us, 100e3);
  }
  RecordProperty("us_per_layer_of_131072_tokens", std::to_string(elapsed_us));
}

}  // namespace
}  // namespace fathom
