// SPDX-License-Identifier: Apache-2.0
// A backend: the ops of a step for one kind of device, its memory, and the layout it wants weights
// in. The CPU and reference backends are linked in; others are libraries (backend_loader.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/device_api.hpp"
#include "tensor/packed_matrix.hpp"

namespace fathom {

class ThreadPool;
struct CpuKernels;
struct OpTable;
class TraceSource;
class CounterSource;
class StallSource;
struct OpVariant;

inline constexpr uint32_t kBackendAbi = 5;

struct Backend {
  uint32_t abi;
  const char* name;      // "cpu", "reference", "cuda"
  const char* build_id;  // what it was built from and for
  const OpTable* ops;
  const DeviceApi* device;

  // The packed form of a file type, or throws Error{unsupported} naming the type and the supported
  // ones. `rows` x `cols` must be whole blocks.
  PackedMatrix (*plan_matrix)(DType file_type, int64_t rows, int64_t cols, Activations activations);
  // Fills plan.packed_bytes at `packed`, memory of the device, from the tensor's bytes in the file,
  // which are host memory; a backend whose device does not share it packs on the host and copies.
  // Everything is in place when it returns: the file's pages are dropped then.
  void (*pack_matrix)(ThreadPool& pool, const PackedMatrix& plan, const std::byte* file,
                      std::byte* packed);
  bool keeps_file_layout = false;  // pack_matrix is the identity: data may point into the file
  // Decode steps may be captured and replayed as graphs: the ops neither allocate nor synchronise,
  // read the host's StepState while they are submitted only, and bear rows with pos = -1.
  bool has_graphs = false;
  int default_ubatch = 512;  // rows of a prefill step, where the user does not say
  // What can watch the device; null where nothing can. One of them in a process: what it does to
  // the process stays, so that no time is a headline's afterwards. A trace names what is captured
  // after it was called; the others are to be called before the device is touched. They throw
  // Error{unavailable} that says in a sentence what is in the way.
  TraceSource& (*trace_source)() = nullptr;
  CounterSource& (*counter_source)() = nullptr;
  StallSource& (*stall_source)() = nullptr;
  // Other kernels for its ops (kernels/op_variant.hpp); null = none.
  std::span<const OpVariant> (*variants)() = nullptr;
};

}  // namespace fathom
