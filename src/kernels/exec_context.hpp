// SPDX-License-Identifier: Apache-2.0
// What every op gets beside its arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.hpp"
#include "base/op_scope.hpp"
#include "base/thread_pool.hpp"

namespace fathom {

// An opaque stream of a backend's device; null on the CPU.
struct StreamHandle {
  void* handle = nullptr;
};

// Scratch memory of a step, sized when the engine opens; an op takes it from the start.
struct Workspace {
  std::byte* data = nullptr;
  int64_t bytes = 0;

  // Carves n values of T, 64-byte aligned. Throws Error{internal} when the plan was too small.
  template <class T>
  T* take(int64_t n) {
    const int64_t need = (n * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    FATHOM_CHECK(need <= bytes, "workspace is smaller than the op's plan");
    T* out = reinterpret_cast<T*>(data);
    data += need;
    bytes -= need;
    return out;
  }
};

struct CpuKernels;  // the functions of one instruction set (kernels/common/cpu_kernels.hpp)

// Zeroed when the engine opens; blocks of a kernel find their last one by counters there.
inline constexpr int64_t kCounterBytes = int64_t{1} << 20;

struct ExecContext {
  StreamHandle stream;
  ThreadPool* pool = nullptr;
  const CpuKernels* cpu = nullptr;  // set by the CPU backend only
  Workspace workspace;              // by value: each op carves from the same start
  Workspace counters;               // of a device: kCounterBytes of zeros, which ops leave zero
  OpScopeSink* sink = nullptr;
};

}  // namespace fathom
