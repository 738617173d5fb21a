// SPDX-License-Identifier: Apache-2.0
// The emulated device: its DeviceApi is cuda::device_api(), so that the fixture of GPU tests
// (tests/support/cuda_fixture.hpp) needs nothing else. Memory is the host's; streams do their work
// at once; a captured graph is a list of launches.
#pragma once

#include <functional>

#include "emulator/block.hpp"

namespace fathom::emulator {

inline constexpr int kSms = 3;  // few, so that blocks take more than one piece of work

// What a block may have at most, and whether there are bulk copies: those of sm_90, or of another
// GPU while a SmallerGpu lives.
int max_shared_bytes();
bool has_bulk_copies();
class SmallerGpu {
 public:
  SmallerGpu(int shared_bytes, bool bulk_copies);
  ~SmallerGpu();
  SmallerGpu(const SmallerGpu&) = delete;
  SmallerGpu& operator=(const SmallerGpu&) = delete;
};

// A kernel may be launched with that much dynamic shared memory from now on.
void allow_shared(const void* kernel, int bytes);
// Runs `body` as a grid, or appends that to the graph being captured.
void submit(void* stream, const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
            std::function<void()> body);

}  // namespace fathom::emulator
