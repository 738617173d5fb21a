// SPDX-License-Identifier: Apache-2.0
// From an offset into a kernel to what stands there and what it waits for.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backends/cuda/cupti_library.hpp"
#include "backends/cuda/sass.hpp"
#include "device/stalls.hpp"

namespace fathom::cuda {

// One kernel of one cubin. The cubin's bytes must outlive it.
class KernelCode {
 public:
  KernelCode(const Cupti& api, std::span<const std::byte> cubin, std::string function);
  // File and line need code compiled with -lineinfo.
  CodePlace place(int64_t offset) const;
  // Fills producers, or problem where the code cannot be read.
  void find_producers_of(StalledPlace& at) const;

 private:
  const Cupti& api_;
  std::span<const std::byte> cubin_;
  std::string function_;
  std::vector<SassInstruction> code_;
  std::string problem_;
};

}  // namespace fathom::cuda
