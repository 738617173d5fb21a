// SPDX-License-Identifier: Apache-2.0
// The place of a token's values by the formula of tensor/kv_view.hpp, and the three KV formats in
// double.
#include "kernels/common/kv_ref.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "tensor/half.hpp"

namespace fathom {
namespace {

constexpr int kScaleDims = 32;

struct Place {
  std::byte* tile;
  int64_t lane;        // of the token in its tile
  int64_t dim_stride;  // elements between two dims of the token
  int64_t token_stride;

  int64_t element(int dim) const { return dim * dim_stride + lane * token_stride; }
  int64_t scale(int block) const { return int64_t{block} * kKvTileTokens + lane; }
};

Place place(const KvLayerView& kv, KvPart part, const int32_t* pages, int kv_head, int64_t token) {
  const int head_dim = kv.geometry.head_dim;
  std::byte* base = part == KvPart::key ? kv.k : kv.v;
  Place p{base + kv.tile_offset(pages, kv_head, token), token % kKvTileTokens, 1, head_dim};
  if (part == KvPart::key) {
    p.dim_stride = kKvTileTokens;
    p.token_stride = 1;
  }
  return p;
}

template <class T>
T load(const std::byte* base, int64_t index) {
  T value;
  std::memcpy(&value, base + index * static_cast<int64_t>(sizeof(T)), sizeof value);
  return value;
}
template <class T>
void store(std::byte* base, int64_t index, T value) {
  std::memcpy(base + index * static_cast<int64_t>(sizeof(T)), &value, sizeof value);
}

void store_q8_0(const Place& p, int head_dim, const double* values) {
  std::byte* scales = p.tile + int64_t{kKvTileTokens} * head_dim;
  for (int block = 0; block < head_dim / kScaleDims; ++block) {
    const double* in = values + block * kScaleDims;
    float largest = 0;
    for (int i = 0; i < kScaleDims; ++i) {
      const float magnitude = std::fabs(static_cast<float>(in[i]));
      if (!(magnitude <= largest)) largest = magnitude;  // NaN too, and it stays
      if (std::isnan(largest)) break;
    }
    uint16_t scale = f32_to_f16(largest / 127.0f);
    if (!std::isfinite(f16_to_f32(scale))) scale = 0x7e00;
    store<uint16_t>(scales, p.scale(block), scale);
    const float d = f16_to_f32(scale);
    for (int i = 0; i < kScaleDims; ++i) {
      float code = 0;
      if (d > 0) {
        code = std::nearbyint(static_cast<float>(in[i]) * (1.0f / d));
        code = std::min(std::max(code, -127.0f), 127.0f);
      }
      store<int8_t>(p.tile, p.element(block * kScaleDims + i), static_cast<int8_t>(code));
    }
  }
}

}  // namespace

void kv_store_ref(const KvLayerView& kv, KvPart part, const int32_t* pages, int kv_head,
                  int64_t token, const double* values) {
  const Place p = place(kv, part, pages, kv_head, token);
  const int head_dim = kv.geometry.head_dim;
  if (kv.geometry.format == KvFormat::q8_0) return store_q8_0(p, head_dim, values);
  for (int dim = 0; dim < head_dim; ++dim) {
    const float value = static_cast<float>(values[dim]);
    if (kv.geometry.format == KvFormat::f32) {
      store<float>(p.tile, p.element(dim), value);
    } else {
      const bool half = kv.geometry.format == KvFormat::f16;
      store<uint16_t>(p.tile, p.element(dim), half ? f32_to_f16(value) : f32_to_bf16(value));
    }
  }
}

void kv_load_ref(const KvLayerView& kv, KvPart part, const int32_t* pages, int kv_head,
                 int64_t token, double* values) {
  const Place p = place(kv, part, pages, kv_head, token);
  const int head_dim = kv.geometry.head_dim;
  const std::byte* scales = p.tile + int64_t{kKvTileTokens} * head_dim;
  for (int dim = 0; dim < head_dim; ++dim) {
    const int64_t at = p.element(dim);
    switch (kv.geometry.format) {
      case KvFormat::f32:
        values[dim] = load<float>(p.tile, at);
        break;
      case KvFormat::f16:
        values[dim] = f16_to_f32(load<uint16_t>(p.tile, at));
        break;
      case KvFormat::bf16:
        values[dim] = bf16_to_f32(load<uint16_t>(p.tile, at));
        break;
      case KvFormat::q8_0:
        values[dim] = static_cast<double>(load<int8_t>(p.tile, at)) *
                      f16_to_f32(load<uint16_t>(scales, p.scale(dim / kScaleDims)));
        break;
    }
  }
}

}  // namespace fathom
