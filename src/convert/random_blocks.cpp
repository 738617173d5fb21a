// SPDX-License-Identifier: Apache-2.0
// A block is random bytes, then its scale fields are set. For each format the mean square of its
// codes under uniform random bits is known exactly, which gives the scale for a wanted deviation.
#include "convert/random_blocks.hpp"

#include <array>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "base/fnv1a.hpp"
#include "tensor/half.hpp"
#include "tensor/quant_blocks.hpp"

namespace fathom::convert {
namespace {

using Scales = BlockGenerator::Scales;

uint64_t load64(const uint8_t* p) {
  uint64_t value;
  std::memcpy(&value, p, 8);
  return value;
}
void store64(uint8_t* p, uint64_t value) { std::memcpy(p, &value, 8); }
void store32(uint8_t* p, uint64_t value) {
  const uint32_t low = static_cast<uint32_t>(value);
  std::memcpy(p, &low, 4);
}

// Each finish() gets a block of random bytes and one more random word: bits 2-7 pick the scale.
size_t pick(uint64_t extra) { return (extra >> 2) & 63; }

template <class Block>
requires requires(Block b) { b.d; }
void set_d(Block& b, const Scales& s, uint64_t extra) { b.d = s.d[pick(extra)]; }

void finish(BlockQ4_0& b, const Scales& s, uint64_t extra) { set_d(b, s, extra); }
void finish(BlockQ5_0& b, const Scales& s, uint64_t extra) { set_d(b, s, extra); }
void finish(BlockIQ4_NL& b, const Scales& s, uint64_t extra) { set_d(b, s, extra); }

// Sub-scales are kept in the upper half of their range, like a quantiser's: rows of one matrix
// then differ little in norm.
void finish(BlockQ6_K& b, const Scales& s, uint64_t extra) {
  for (int half = 0; half < 2; ++half) {  // a magnitude 64-127 and a sign, eight at a time
    const uint64_t random = load64(reinterpret_cast<const uint8_t*>(b.scales) + 8 * half);
    const uint64_t magnitude = (random & 0x3f3f3f3f3f3f3f3fu) | 0x4040404040404040u;
    const uint64_t negative = (random >> 7) & 0x0101010101010101u;
    const uint64_t mask = negative * 255;
    store64(reinterpret_cast<uint8_t*>(b.scales) + 8 * half, (magnitude ^ mask) + negative);
  }
  set_d(b, s, extra);
}

// The top two bits of each 6-bit sub-scale equal: -32..-17 or 16..31 once 32 is subtracted.
void finish(BlockQ3_K& b, const Scales& s, uint64_t extra) {
  for (int i = 8; i < 12; ++i) b.scales[i] = static_cast<uint8_t>((b.scales[i] & 0x55) * 3);
  set_d(b, s, extra);
}
void finish(BlockIQ4_XS& b, const Scales& s, uint64_t extra) {
  b.scales_h = static_cast<uint16_t>((b.scales_h & 0x5555) * 3);
  set_d(b, s, extra);
}

void finish(BlockQ4_1& b, const Scales& s, uint64_t extra) {
  set_d(b, s, extra);
  b.m = s.min[pick(extra)];
}
void finish(BlockQ5_1& b, const Scales& s, uint64_t extra) {
  set_d(b, s, extra);
  b.m = s.min[pick(extra)];
}

void finish(BlockQ8_0& b, const Scales& s, uint64_t extra) {
  set_d(b, s, extra);
  for (int8_t& q : b.qs) q = q == -128 ? 127 : q;  // no quantiser writes -128
}

// Sub-scales 8-15 in the low nibbles; the min beside each differs from it by at most one.
void finish(BlockQ2_K& b, const Scales& s, uint64_t extra) {
  for (int half = 0; half < 2; ++half) {
    const uint64_t random = load64(b.scales + 8 * half);
    const uint64_t scale = (random & 0x0707070707070707u) | 0x0808080808080808u;
    const uint64_t min = scale ^ ((random >> 3) & 0x0101010101010101u);
    store64(b.scales + 8 * half, scale | (min << 4));
  }
  set_d(b, s, extra);
  b.dmin = s.min[pick(extra)];
}

// Eight scales 32-63 and eight mins that share their upper four bits, four to a 32-bit word.
void set_scales_k4(uint8_t* scales, uint64_t extra) {
  const uint64_t random = load64(scales);
  const uint64_t scale = (random & 0x1f1f1f1f1f1f1f1fu) | 0x2020202020202020u;
  const uint64_t min = (scale & 0x3c3c3c3c3c3c3c3cu) | (extra & 0x0303030303030303u);
  const uint64_t scale_high = scale >> 32;
  const uint64_t min_high = min >> 32;
  store32(scales, scale | ((scale_high & 0x30303030u) << 2));
  store32(scales + 4, min | ((min_high & 0x30303030u) << 2));
  store32(scales + 8, (scale_high & 0x0f0f0f0fu) | ((min_high & 0x0f0f0f0fu) << 4));
}

void finish(BlockQ4_K& b, const Scales& s, uint64_t extra) {
  set_scales_k4(b.scales, extra);
  set_d(b, s, extra);
  b.dmin = s.min[pick(extra)];
}
void finish(BlockQ5_K& b, const Scales& s, uint64_t extra) {
  set_scales_k4(b.scales, extra);
  set_d(b, s, extra);
  b.dmin = s.min[pick(extra)];
}

void finish(BlockMXFP4& b, const Scales& s, uint64_t extra) { b.e = s.e8m0[pick(extra)]; }

template <class Block>
void fill_blocks(const WordStream& words, const Scales& scales, int64_t first, int64_t n_blocks,
                 std::byte* out) {
  constexpr size_t kWords = (sizeof(Block) + 7) / 8;
  for (int64_t i = first; i < first + n_blocks; ++i) {
    const uint64_t base = static_cast<uint64_t>(i) * (kWords + 1);
    uint64_t random[kWords];
    for (size_t w = 0; w < kWords; ++w) random[w] = words(base + w);
    Block block;
    std::memcpy(&block, random, sizeof block);
    finish(block, scales, words(base + kWords));
    std::memcpy(out, &block, sizeof block);
    out += sizeof block;
  }
}

void fill_f32(const WordStream& words, const Scales& scales, int64_t first, int64_t n,
              std::byte* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float value = scales.step * words.symmetric(static_cast<uint64_t>(first + i));
    std::memcpy(out + 4 * i, &value, 4);
  }
}

void fill_halves(const WordStream& words, const Scales& scales, int64_t first, int64_t n,
                 std::byte* out) {
  for (int64_t i = first; i < first + n;) {  // a word serves four elements
    uint64_t word = words(static_cast<uint64_t>(i / 4)) >> (16 * (i % 4));
    do {
      const uint16_t half = scales.halves[word & 0xffff];
      std::memcpy(out + 2 * (i - first), &half, 2);
      word >>= 16;
    } while (++i % 4 != 0 && i < first + n);
  }
}

// Mean of (k - centre)^2 over the integers low..high.
constexpr double mean_square(int low, int high, double centre = 0) {
  double sum = 0;
  for (int k = low; k <= high; ++k) sum += (k - centre) * (k - centre);
  return sum / (high - low + 1);
}
constexpr double mean_square(const int8_t (&values)[16]) {
  double sum = 0;
  for (int v : values) sum += v * v;
  return sum / 16;
}

// Uniform bits, with -128 replaced by 127.
constexpr double kQ8Square = mean_square(-128, 127) - (128 * 128 - 127 * 127) / 256.0;
// Affine sub-blocks: the scale times the centred code, plus what scale and min differ by.
constexpr double kSubScaleSquare = mean_square(32, 63);
constexpr double kTwoBitDifference = 2 * mean_square(0, 3, 1.5);
constexpr double kQ2Square =
    mean_square(8, 15) * mean_square(0, 3, 1.5) + 1.5 * 1.5 * 0.5;  // they differ half the time
constexpr double kQ4Square =
    kSubScaleSquare * mean_square(0, 15, 7.5) + 7.5 * 7.5 * kTwoBitDifference;
constexpr double kQ5Square =
    kSubScaleSquare * mean_square(0, 31, 15.5) + 15.5 * 15.5 * kTwoBitDifference;
constexpr double kSigned6Square = (mean_square(-32, -17) + mean_square(16, 31)) / 2;

using Fill = void (*)(const WordStream&, const Scales&, int64_t, int64_t, std::byte*);
struct Row {
  DType type;
  Fill fill;
  double square;      // mean square of a weight at scale 1; 0: not a block with an f16 scale
  double min_factor;  // min = min_factor * d; 0: the format has no min, and d takes both signs
};
constexpr std::array kTable = {
    Row{DType::f32, fill_f32, 0, 0},
    Row{DType::f16, fill_halves, 0, 0},
    Row{DType::bf16, fill_halves, 0, 0},
    Row{DType::q4_0, fill_blocks<BlockQ4_0>, mean_square(-8, 7), 0},
    Row{DType::q4_1, fill_blocks<BlockQ4_1>, mean_square(0, 15, 7.5), -7.5},
    Row{DType::q5_0, fill_blocks<BlockQ5_0>, mean_square(-16, 15), 0},
    Row{DType::q5_1, fill_blocks<BlockQ5_1>, mean_square(0, 31, 15.5), -15.5},
    Row{DType::q8_0, fill_blocks<BlockQ8_0>, kQ8Square, 0},
    Row{DType::q2_k, fill_blocks<BlockQ2_K>, kQ2Square, 1.5},
    Row{DType::q3_k, fill_blocks<BlockQ3_K>, kSigned6Square* mean_square(-4, 3), 0},
    Row{DType::q4_k, fill_blocks<BlockQ4_K>, kQ4Square, 7.5},
    Row{DType::q5_k, fill_blocks<BlockQ5_K>, kQ5Square, 15.5},
    Row{DType::q6_k, fill_blocks<BlockQ6_K>, mean_square(64, 127) * mean_square(-32, 31), 0},
    Row{DType::iq4_nl, fill_blocks<BlockIQ4_NL>, mean_square(kIq4Values), 0},
    Row{DType::iq4_xs, fill_blocks<BlockIQ4_XS>, kSigned6Square* mean_square(kIq4Values), 0},
    Row{DType::mxfp4, fill_blocks<BlockMXFP4>, 0, 0},
};

const Row& row_of(DType type) {
  for (const Row& row : kTable) {
    if (row.type == type) return row;
  }
  fail(ErrorCode::internal, "no block generator for type {}", dtype_info(type).name);
}

// 32 sizes evenly spread over 0.75-1.25 of the mean; their mean square is 1.0221...
double spread(int i) { return 0.75 + 0.5 * i / 31; }

void set_f16_scales(const Row& row, double sigma, Scales& scales) {
  double spread_square = 0;
  for (int i = 0; i < 32; ++i) spread_square += spread(i) * spread(i) / 32;
  const double d0 = sigma / std::sqrt(row.square * spread_square);
  for (int i = 0; i < 64; ++i) {
    // A code range is lopsided (-8..7): equally many negative scales make the mean exactly zero.
    const double sign = row.min_factor == 0 && i >= 32 ? -1 : 1;
    scales.d[i] = f32_to_f16(static_cast<float>(sign * d0 * spread(i % 32)));
    scales.min[i] = f32_to_f16(static_cast<float>(row.min_factor) * f16_to_f32(scales.d[i]));
  }
}

void set_e8m0_scales(double sigma, Scales& scales) {
  // Scale s or 2s of codes whose mean square is known: share p of 2s with (1 - p) + 4p = ratio.
  const double unit = sigma / std::sqrt(mean_square(kMxfp4Values));
  const int exponent = static_cast<int>(std::floor(std::log2(unit)));
  const double ratio = std::pow(unit / std::ldexp(1.0, exponent), 2);  // 1..4
  const int n_double = static_cast<int>(std::lround((ratio - 1) / 3 * 64));
  for (int i = 0; i < 64; ++i) {
    scales.e8m0[i] = static_cast<uint8_t>(exponent + 128 + (i < n_double ? 1 : 0));
  }
}

void set_halves(DType type, double sigma, Scales& scales) {
  const double step = sigma * std::sqrt(3.0) / 32768;  // uniform over +-sqrt(3) sigma
  scales.halves.resize(65536);
  for (int i = 0; i < 65536; ++i) {
    const float value = static_cast<float>((i - 32767.5) * step);
    scales.halves[static_cast<size_t>(i)] =
        type == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
  }
}

}  // namespace

uint64_t tensor_key(uint64_t seed, std::string_view tensor_name) {
  Fnv1a name;
  for (const char c : tensor_name) name.add(static_cast<uint8_t>(c));
  return mix64(mix64(seed + 0x9e3779b97f4a7c15u) ^ name.value());
}

BlockGenerator::BlockGenerator(DType type, uint64_t key, double sigma)
    : words_{key}, scales_{}, fill_(row_of(type).fill) {
  if (const Row& row = row_of(type); row.square != 0) {
    set_f16_scales(row, sigma, scales_);
  } else if (type == DType::mxfp4) {
    set_e8m0_scales(sigma, scales_);
  } else if (type == DType::f32) {
    scales_.step = static_cast<float>(sigma * std::sqrt(3.0));
  } else {
    set_halves(type, sigma, scales_);
  }
}

void BlockGenerator::fill(int64_t first, int64_t n_blocks, std::byte* out) const {
  fill_(words_, scales_, first, n_blocks, out);
}

}  // namespace fathom::convert
