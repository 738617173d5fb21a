// SPDX-License-Identifier: Apache-2.0
// For tests (slow_producer_fixture.cu): a kernel that lets the next one start at once and writes
// what that reads late, one that looks at results and spoils them, and readers that do and do not
// wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fathom::cuda {

inline constexpr int kMaxProducerParts = 8;

// Bytes, a multiple of 4, to write. from: null writes 0xff.
struct ProducerPart {
  std::byte* to;
  const std::byte* from;
  int64_t bytes;
};
// Results, and what they should be.
struct ResultPart {
  const std::byte* got;
  const std::byte* expected;
  int64_t bytes;
};

// Starts when all before it have ended; the kernel after it may start at once. Writes the parts
// after so many clocks.
void launch_slow_producer(std::span<const ProducerPart> parts, int clocks, void* stream);

// When all before it have ended: adds the words of the results that differ to *n_wrong, then writes
// the parts.
void launch_check_and_spoil(std::span<const ResultPart> results,
                            std::span<const ProducerPart> parts, unsigned* n_wrong, void* stream);

// out[i] = 2 in[i], read after the wait for the kernel before, or (is_early) before it, as a
// mistake would have it. n: a multiple of 256.
void launch_reader(bool is_early, const float* in, float* out, int n, void* stream);

}  // namespace fathom::cuda
