// SPDX-License-Identifier: Apache-2.0
// The DeviceApi of the emulator, launches and captured graphs.
#include "emulator/device.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <utility>

#include "backends/cuda/device_api.hpp"
#include "base/error.hpp"

namespace fathom::emulator {
namespace {

int shared_bytes_of_block = kMaxSharedBytes;
bool bulk_copies = true;

constexpr int kDefaultSharedBytes = 48 << 10;
constexpr size_t kAlignment = 256;  // of cudaMalloc
using Graph = std::vector<std::function<void()>>;
using Clock = std::chrono::steady_clock;

std::unique_ptr<Graph> captured;  // while a stream is captured
int a_stream;                     // streams are its address: they differ in nothing

std::map<const void*, int>& shared_limits() {
  static std::map<const void*, int> limits;
  return limits;
}

void* alloc(int64_t bytes) {
  const size_t rounded = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
  void* out = std::aligned_alloc(kAlignment, rounded);
  if (!out) throw std::bad_alloc();
  return out;
}

void copy(void* to, const void* from, int64_t bytes, void*) {
  if (captured) fail(ErrorCode::device_fault, "the emulator captures kernels only");
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void* end_capture(void*) { return captured.release(); }

const DeviceApi kApi = {
    .shares_host_memory = false,  // as a GPU's, so that tests copy as they do there
    .info = [] { return DeviceInfo{"emulator of CUDA kernels", "host", kSms, 0, 0, 0}; },
    .alloc = alloc,
    .free = [](void* data, int64_t) { std::free(data); },
    .alloc_host = alloc,
    .free_host = [](void* data, int64_t) { std::free(data); },
    .copy_to_device = copy,
    .copy_to_host = copy,
    .stream_create = []() -> void* { return &a_stream; },
    .stream_destroy = [](void*) {},
    .stream_synchronize = [](void*) {},
    .event_create = []() -> void* { return new Clock::time_point; },
    .event_destroy = [](void* event) { delete static_cast<Clock::time_point*>(event); },
    .event_record = [](void* event,
                       void*) { *static_cast<Clock::time_point*>(event) = Clock::now(); },
    .event_synchronize = [](void*) {},
    .event_elapsed_us =
        [](void* start, void* stop) {
          return std::chrono::duration<double, std::micro>(*static_cast<Clock::time_point*>(stop) -
                                                           *static_cast<Clock::time_point*>(start))
              .count();
        },
    .capture_begin = [](void*) { captured = std::make_unique<Graph>(); },
    .capture_end = end_capture,
    .graph_launch =
        [](void* graph, void*) {
          for (const auto& run : *static_cast<Graph*>(graph)) run();
        },
    .graph_destroy = [](void* graph) { delete static_cast<Graph*>(graph); },
};

}  // namespace

int max_shared_bytes() { return shared_bytes_of_block; }
bool has_bulk_copies() { return bulk_copies; }
SmallerGpu::SmallerGpu(int shared_bytes, bool has_copies) {
  shared_bytes_of_block = shared_bytes;
  bulk_copies = has_copies;
}
SmallerGpu::~SmallerGpu() {
  shared_bytes_of_block = kMaxSharedBytes;
  bulk_copies = true;
}

void allow_shared(const void* kernel, int bytes) {
  if (bytes > shared_bytes_of_block) {
    fail(ErrorCode::device_fault, "a block cannot have {} bytes of shared memory", bytes);
  }
  shared_limits()[kernel] = bytes;
}

void submit(void* stream, const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
            std::function<void()> body) {
  if (stream != &a_stream) fail(ErrorCode::device_fault, "a kernel is not on the test's stream");
  const auto allowed = shared_limits().try_emplace(kernel, kDefaultSharedBytes).first->second;
  if (shared_bytes > static_cast<size_t>(allowed)) {
    fail(ErrorCode::device_fault, "a launch with {} bytes of shared memory, but {} are allowed",
         shared_bytes, allowed);
  }
  auto run = [=, body = std::move(body)] { run_grid(grid, block, shared_bytes, body); };
  if (captured) {
    captured->push_back(std::move(run));
  } else {
    run();
  }
}

}  // namespace fathom::emulator

namespace fathom::cuda {

const DeviceApi& device_api() { return emulator::kApi; }

}  // namespace fathom::cuda
