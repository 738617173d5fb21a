// SPDX-License-Identifier: Apache-2.0
// The compute peak of this machine as a small kernel reaches it: independent chains of f32
// multiply-adds in registers, on every thread at once. Nothing that computes in f32 is faster.
#pragma once

#include <cstdint>
#include <memory>

namespace fathom {
class ThreadPool;
}

namespace fathom::measure {

class FlopPeak {
 public:
  explicit FlopPeak(int threads);
  ~FlopPeak();

  // GFLOP/s (a multiply-add counts as two) over at least `seconds`.
  double sample_gflops(double seconds = 0.02);
  const char* isa() const;

 private:
  std::unique_ptr<ThreadPool> pool_;
  float sum_ = 0;  // keeps the chains alive
};

}  // namespace fathom::measure
