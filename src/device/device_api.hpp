// SPDX-License-Identifier: Apache-2.0
// What a device can do, as a table of plain functions that a backend library fills. Errors are
// thrown as fathom::Error across the library boundary. Handles are opaque; RAII owners stand in
// device/owned.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fathom {

struct DeviceInfo {
  std::string name;       // "AMD EPYC 7763" or "NVIDIA H200"
  std::string isa;        // "avx2", "sm_90"
  int compute_units = 0;  // cores or SMs
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  int64_t l2_bytes = 0;  // last-level cache
};

// Eight bytes or fewer of a kernel's parameter.
struct KernelWord {
  int parameter = 0;
  int offset = 0;  // in it, bytes
  int bytes = 8;
  uint64_t value = 0;
  bool is_address = false;  // of memory that the device can reach
  bool operator==(const KernelWord&) const = default;
};

// What units of a device compute with: multiply-adds of f32, tensor cores on f16 or int8 codes.
enum class Arithmetic { f32, f16_tensor, int8_tensor };

// What an arithmetic stream does, a multiply-add counting as two.
struct ArithmeticWork {
  int64_t ops = 0;
  int64_t threads = 0;
};

// A kernel that an op launched, and what of it fits on the device at a time.
struct KernelLaunch {
  std::string kernel;  // its symbol
  std::array<int, 3> grid{}, block{};
  int64_t shared_bytes = 0;           // static and dynamic, a block
  int64_t local_bytes = 0;            // spilled, a thread
  int registers = 0;                  // a thread
  int blocks_per_sm = 0;              // that can be resident
  double occupancy = 0;               // resident threads over those that an SM can hold
  double waves = 0;                   // blocks over those that the device can hold
  uint64_t code_hash = 0;             // of the binaries with this symbol; 0 = not known
  std::vector<KernelWord> arguments;  // of a node of a graph alone
};

// Work of a stream runs in the order in which it was submitted, while the host goes on. What the
// host reads or overwrites is its own again after stream_synchronize.
struct DeviceApi {
  // Device memory is host memory: the host may read and write it, nothing is worth copying, streams
  // are null and work is done when a call returns.
  bool shares_host_memory;
  DeviceInfo (*info)();           // throws Error{unavailable} that says what the machine lacks
  void* (*alloc)(int64_t bytes);  // 64-byte aligned at least; throws out_of_memory with figures
  void (*free)(void* data, int64_t bytes);       // never throws
  void* (*alloc_host)(int64_t bytes);            // page-locked host memory, aligned alike
  void (*free_host)(void* data, int64_t bytes);  // never throws
  // Asynchronous; host memory that is not page-locked has been read when copy_to_device returns.
  void (*copy_to_device)(void* device, const void* host, int64_t bytes, void* stream);
  void (*copy_to_host)(void* host, const void* device, int64_t bytes, void* stream);
  void* (*stream_create)();
  void (*stream_destroy)(void* stream);
  void (*stream_synchronize)(void* stream);
  void* (*event_create)();
  void (*event_destroy)(void* event);
  void (*event_record)(void* event, void* stream);
  void (*event_synchronize)(void* event);  // until all before its record is done; at once without
  double (*event_elapsed_us)(void* start, void* stop);
  void (*capture_begin)(void* stream);
  void* (*capture_end)(void* stream);  // an instantiated graph
  void (*graph_launch)(void* graph, void* stream);
  void (*graph_destroy)(void* graph);
  // Reads `bytes`, whole 16-byte vectors, once and as fast as the memory gives them, and adds the
  // sum of their 8-byte words to *sum: the ceiling that rates are set against. Null where the
  // memory is the host's.
  void (*read_stream)(const void* data, int64_t bytes, uint64_t* sum, void* stream) = nullptr;
  // Kernels that this process has launched one by one: neither those that a capture recorded nor
  // those of graphs. Null on a device that launches nothing.
  int64_t (*kernel_launches)() = nullptr;
  // The kernels that this thread launches one by one while fn runs. Null on a device that launches
  // nothing.
  std::vector<KernelLaunch> (*watch_launches)(const std::function<void()>& fn) = nullptr;
  // As read_stream, but `passes` times in one go and past the first-level caches: the ceiling of
  // what stays in the last-level cache, for bytes that fit there. Null where read_stream is.
  void (*read_cached)(const void* data, int64_t bytes, int passes, uint64_t* sum,
                      void* stream) = nullptr;
  // The kernel nodes of each graph that this thread captures while fn runs, in the order of their
  // launches. Null on a device whose graphs have none.
  std::vector<std::vector<KernelLaunch>> (*watch_captures)(const std::function<void()>& fn) =
      nullptr;
  // Kernels that this thread's capture under way has recorded. Null where watch_captures is.
  int64_t (*captured_kernels)() = nullptr;
  // `passes` (64 to 16384) steps of chains of products in registers on all units at once, as fast
  // as they finish them, and adds to *right the number of threads whose results are right: the
  // ceiling that arithmetic is set against. Null where the memory is the host's.
  ArithmeticWork (*arithmetic_stream)(Arithmetic kind, int64_t passes, uint64_t* right,
                                      void* stream) = nullptr;
};

}  // namespace fathom
