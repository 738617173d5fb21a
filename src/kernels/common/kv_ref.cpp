// SPDX-License-Identifier: Apache-2.0
// The place of a token's values by the formula of tensor/kv_view.hpp, and the KV formats in double.
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

// The nearest multiple of the unit in which E4M3 counts at this size, ties to even.
uint8_t to_e4m3(double value) {
  const double magnitude = std::min(std::fabs(value), 448.0);
  const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), -6) : -6;
  const double units = std::nearbyint(std::ldexp(magnitude, 3 - exponent));  // 16: the next size
  const double code = units + 8 * (exponent + 6);
  return static_cast<uint8_t>((std::signbit(value) ? 0x80 : 0) + static_cast<int>(code));
}
double from_e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15, units = code & 7;
  if (exponent == 15 && units == 7) return NAN;
  const double magnitude =
      exponent == 0 ? std::ldexp(units, -9) : std::ldexp(8 + units, exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

void store_fp8_e4m3(const Place& p, int head_dim, const double* values) {
  float largest = 0;
  bool finite = true;
  for (int dim = 0; dim < head_dim; ++dim) {
    const float magnitude = std::fabs(static_cast<float>(values[dim]));
    finite = finite && std::isfinite(magnitude);
    largest = std::max(largest, magnitude);
  }
  const float scale = finite ? largest / 448.0f : NAN;
  store<float>(p.tile + int64_t{kKvTileTokens} * head_dim, p.lane, scale);
  for (int dim = 0; dim < head_dim; ++dim) {
    const float ratio = scale > 0 ? static_cast<float>(values[dim]) / scale : 0.0f;
    store<uint8_t>(p.tile, p.element(dim), to_e4m3(ratio));
  }
}

}  // namespace

void kv_store_ref(const KvLayerView& kv, KvPart part, const int32_t* pages, int kv_head,
                  int64_t token, const double* values) {
  const Place p = place(kv, part, pages, kv_head, token);
  const int head_dim = kv.geometry.head_dim;
  if (kv.geometry.format == KvFormat::q8_0) return store_q8_0(p, head_dim, values);
  if (kv.geometry.format == KvFormat::fp8_e4m3) return store_fp8_e4m3(p, head_dim, values);
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
      case KvFormat::fp8_e4m3:
        values[dim] =
            from_e4m3(load<uint8_t>(p.tile, at)) * static_cast<double>(load<float>(scales, p.lane));
        break;
    }
  }
}

}  // namespace fathom
