// SPDX-License-Identifier: Apache-2.0
// Random weights generated directly as blocks of a GGUF type. Block i depends on (key, i) alone,
// so the bytes do not depend on how the work is cut or on threads. Scales are finite and chosen
// so that the weights have mean 0 and the wanted standard deviation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tensor/dtype.hpp"

namespace fathom::convert {

// A bijective mix of 64 bits (the finaliser of SplitMix64).
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The random words of one tensor: word i is a function of (key, i).
struct WordStream {
  uint64_t key;
  uint64_t operator()(uint64_t index) const { return mix64(key + index * 0x9e3779b97f4a7c15u); }
  // Uniform in (-1, 1), a multiple of 2^-23 plus 2^-24: never zero.
  float symmetric(uint64_t index) const {
    return static_cast<float>(static_cast<int32_t>((*this)(index) >> 40) - (1 << 23)) * 0x1p-23f +
           0x1p-24f;
  }
};

uint64_t tensor_key(uint64_t seed, std::string_view tensor_name);

class BlockGenerator {
 public:
  BlockGenerator(DType type, uint64_t key, double sigma);

  // Writes blocks [first, first + n_blocks). Block counts of F32, F16 and BF16 are elements.
  void fill(int64_t first, int64_t n_blocks, std::byte* out) const;

  // What a format needs beside random bytes. A block picks one of 64 entries by random bits.
  struct Scales {
    uint16_t d[64];    // f16: 32 sizes within +-25 %, then the same negated where d has a sign
    uint16_t min[64];  // f16: centres the codes of the affine formats
    uint8_t e8m0[64];  // MXFP4: two neighbouring powers of two in the right proportion
    std::vector<uint16_t> halves;  // F16, BF16: the value of each 16-bit random number
    float step;                    // F32: the value of one unit of a 24-bit random number
  };

 private:
  WordStream words_;
  Scales scales_;
  void (*fill_)(const WordStream&, const Scales&, int64_t, int64_t, std::byte*);
};

}  // namespace fathom::convert
