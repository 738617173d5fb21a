// SPDX-License-Identifier: Apache-2.0
// Reads device memory once, as fast as it can be read: the ceiling that kernels are set against.
//   sum = sum over the words of data, modulo 2^64
#pragma once

#include <cstdint>

namespace fathom::cuda {

struct ReadStreamArgs {
  const void* data;  // [bytes] on the device, 16-byte aligned
  int64_t bytes;     // a multiple of 16
  uint64_t* sum;     // [1] on the device; the result is added to it
};

// REQUIRES: alignment and size as above, each checked. `stream` is a cudaStream_t.
void read_stream(const ReadStreamArgs& args, void* stream);
// The same `passes` times in one launch, from the last-level cache where the bytes fit there: the
// sum grows by as many. REQUIRES: passes > 0.
void read_cached(const ReadStreamArgs& args, int passes, void* stream);

}  // namespace fathom::cuda
