// SPDX-License-Identifier: Apache-2.0
// The inner loop of the read ceiling: loads every byte of a range in `Streams` equal parts side by
// side with vectors of VectorBytes, and folds them into a sum so that no load can be dropped. One
// instantiation per instruction set, each in its own object.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fathom::measure {

// REQUIRES: data 64-byte aligned, bytes a multiple of 8 * 256.
using ReadStream = uint64_t (*)(const std::byte* data, int64_t bytes);

// How many parts of a range are read side by side; the best is found on the machine.
inline constexpr int kStreamCounts[] = {1, 2, 4, 8};
inline constexpr int kStreamVariants = 4;

struct ReadStreamTable {
  const char* isa;
  ReadStream variants[kStreamVariants];
};
extern const ReadStreamTable kReadStreamScalar;
extern const ReadStreamTable kReadStreamAvx2;
extern const ReadStreamTable kReadStreamAvx512;

template <int VectorBytes, int Streams>
uint64_t read_stream(const std::byte* data, int64_t bytes) {
  using Vector [[gnu::vector_size(VectorBytes)]] = uint64_t;
  constexpr int64_t kStep = 256;
  constexpr int kVectors = kStep / VectorBytes;
  Vector sum[Streams] = {};
  const int64_t part = bytes / Streams;
  for (int64_t offset = 0; offset < part; offset += kStep) {
    for (int stream = 0; stream < Streams; ++stream) {
      const Vector* line = reinterpret_cast<const Vector*>(data + stream * part + offset);
      Vector folded = line[0];
      for (int v = 1; v < kVectors; ++v) folded ^= line[v];
      sum[stream] += folded;
    }
  }
  uint64_t total = 0;
  for (int stream = 0; stream < Streams; ++stream) {
    for (unsigned lane = 0; lane < VectorBytes / sizeof(uint64_t); ++lane) {
      total += sum[stream][lane];
    }
  }
  return total;
}

template <int VectorBytes>
constexpr ReadStreamTable read_stream_table(const char* isa) {
  return {isa,
          {read_stream<VectorBytes, 1>, read_stream<VectorBytes, 2>, read_stream<VectorBytes, 4>,
           read_stream<VectorBytes, 8>}};
}

}  // namespace fathom::measure
