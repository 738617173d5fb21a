// SPDX-License-Identifier: Apache-2.0
// What a warp stores of a head against the reference's bytes: every format, sizes from subnormal to
// the largest, zeros, ties of rounding, infinities and NaN.
#include "kernels/common/kv_store.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/common/cuda_check.cuh"
#include "kernels/common/kv_ref.hpp"
#include "tests/support/cuda_fixture.hpp"
#include "tests/support/kv_formats.hpp"

namespace fathom {
namespace {

// A block is a warp and stores token blockIdx.x of one head.
__global__ void store_kernel(KvLayerView kv, const float* x) {
  const int token = static_cast<int>(blockIdx.x), n = kv.geometry.head_dim;
  const int32_t page = 0;
  const int64_t offset = kv.tile_offset(&page, 0, token);
  for (const bool is_key : {true, false}) {
    cuda::warp_store_kv(kv.geometry, x + token * n, token % kKvTileTokens, is_key,
                        (is_key ? kv.k : kv.v) + offset);
  }
}

std::vector<float> heads(int n_tokens, int head_dim) {
  std::mt19937 random(17);
  std::normal_distribution<float> normal;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kOdd[] = {
      0.0f, -0.0f, 1e-45f, 3e38f, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
  std::vector<float> out;
  for (int token = 0; token < n_tokens; ++token) {
    const float size = std::ldexp(1.0f, 5 * token - 120);
    for (int dim = 0; dim < head_dim; ++dim) out.push_back(normal(random) * size);
    float* head = &out[static_cast<size_t>(token) * head_dim];
    if (token % 5 == 1) head[token % head_dim] = kOdd[token / 5 % std::size(kOdd)];
    if (token % 5 == 2) std::fill_n(head, head_dim, kOdd[token / 5 % 4]);
    if (token % 5 == 3) {  // a scale of one: halfway between codes of fp8_e4m3 and of q8_0
      for (int dim = 0; dim < head_dim; ++dim) head[dim] = static_cast<float>(dim % 29 - 14) / 32;
      for (int dim = 0; dim < head_dim; dim += 32) head[dim] = token % 2 == 0 ? 127 : 448;
    }
  }
  return out;
}

class KvStoreCuda : public test::CudaTestWithParam<KvFormat> {};

TEST_P(KvStoreCuda, WritesTheReferencesBytes) {
  constexpr int kTokens = 48;
  for (const int head_dim : {32, 64, 80, 128, 256}) {
    if (GetParam() == KvFormat::q8_0 && head_dim % 32 != 0) continue;
    const KvGeometry geometry{GetParam(), 1, head_dim, kTokens};
    const std::vector<float> x = heads(kTokens, head_dim);
    std::vector<std::byte> k(static_cast<size_t>(geometry.page_bytes()), std::byte{0xa5}), v = k;
    const auto on_device = upload(x);
    const auto device_k = upload(k), device_v = upload(v);
    const KvLayerView view{geometry, device_k.get(), device_v.get()};
    cuda::launch(store_kernel, dim3(kTokens), dim3(32), 0, ctx().stream.handle, view,
                 static_cast<const float*>(on_device.get()));
    const int32_t page = 0;
    for (int token = 0; token < kTokens; ++token) {
      const auto begin = x.begin() + token * head_dim;
      const std::vector<double> head(begin, begin + head_dim);
      const KvLayerView host{geometry, k.data(), v.data()};
      kv_store_ref(host, KvPart::key, &page, 0, token, head.data());
      kv_store_ref(host, KvPart::value, &page, 0, token, head.data());
    }
    // NaNs of floats may differ in sign and payload: those are read back.
    const auto expect_equal = [&](std::vector<std::byte> got, std::vector<std::byte>& expected,
                                  KvPart part) {
      for (int token = 0; token < kTokens; ++token) {
        std::vector<double> a(head_dim), b(head_dim);
        kv_load_ref({geometry, got.data(), got.data()}, part, &page, 0, token, a.data());
        kv_load_ref({geometry, expected.data(), expected.data()}, part, &page, 0, token, b.data());
        for (int dim = 0; dim < head_dim; ++dim) {
          if (std::isnan(a[dim]) && std::isnan(b[dim])) continue;
          ASSERT_EQ(a[dim], b[dim]) << "token " << token << ", dim " << dim << " of " << head_dim;
          ASSERT_EQ(std::signbit(a[dim]), std::signbit(b[dim])) << token << ", dim " << dim;
        }
      }
      if (kv_has_scales(GetParam())) {
        EXPECT_EQ(got, expected) << "head dim " << head_dim;
      }
    };
    expect_equal(download(device_k), k, KvPart::key);
    expect_equal(download(device_v), v, KvPart::value);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, KvStoreCuda, testing::ValuesIn(test::all_kv_formats()),
                         [](const auto& param) { return test::kv_test_name(param.param); });

}  // namespace
}  // namespace fathom
