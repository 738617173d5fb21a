// SPDX-License-Identifier: Apache-2.0
// Copies are asynchronous on their stream; a caller that reads the target synchronises first. Graph
// capture is thread-local, so that another thread's allocation does not break it.
#include "backends/cuda/device_api.hpp"

#include <cuda_runtime.h>

#include "backends/cuda/arithmetic_stream.hpp"
#include "backends/cuda/graph_kernels.hpp"
#include "backends/cuda/launch_count.hpp"
#include "backends/cuda/read_stream.hpp"
#include "base/error.hpp"
#include "kernels/common/cuda_check.cuh"

namespace fathom::cuda {
namespace {

constexpr int kDevice = 0;

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }
cudaGraphExec_t graph_of(void* graph) { return static_cast<cudaGraphExec_t>(graph); }

void require_gpu() {
  int n_devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&n_devices);
  if (status == cudaSuccess && n_devices > 0) return;
  static_cast<void>(cudaGetLastError());
  fail(ErrorCode::unavailable,
       "no GPU can be used: {}; check the driver with nvidia-smi, or use --backend cpu",
       status == cudaSuccess ? "none was found" : cudaGetErrorString(status));
}

DeviceInfo info() {
  require_gpu();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, kDevice));
  size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes));
  return {.name = properties.name,
          .isa = fmt::format("sm_{}{}", properties.major, properties.minor),
          .compute_units = properties.multiProcessorCount,
          .total_bytes = static_cast<int64_t>(total_bytes),
          .free_bytes = static_cast<int64_t>(free_bytes),
          .l2_bytes = properties.l2CacheSize};
}

void* alloc(int64_t bytes) {
  require_gpu();
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    size_t free_bytes = 0, total_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &total_bytes));
    fail(ErrorCode::out_of_memory,
         "the GPU has {} of {} bytes free, {} are needed; use a shorter context or a smaller model",
         free_bytes, total_bytes, bytes);
  }
  check(status);
  return data;
}

void* alloc_host(int64_t bytes) {
  require_gpu();
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    fail(ErrorCode::out_of_memory,
         "{} bytes of host memory cannot be page-locked; ulimit -l and the free memory bound them",
         bytes);
  }
  check(status);
  return data;
}

void copy_to_device(void* device, const void* host, int64_t bytes, void* stream) {
  check(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                        stream_of(stream)));
}

void copy_to_host(void* host, const void* device, int64_t bytes, void* stream) {
  check(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                        stream_of(stream)));
}

void* stream_create() {
  require_gpu();
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

void* event_create() {
  require_gpu();
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event));
  return event;
}

double event_elapsed_us(void* start, void* stop) {
  check(cudaEventSynchronize(event_of(stop)));
  float elapsed_ms = 0;
  check(cudaEventElapsedTime(&elapsed_ms, event_of(start), event_of(stop)));
  return 1000.0 * elapsed_ms;
}

void capture_begin(void* stream) {
  check(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal));
  count_launches(false);
}

void* capture_end(void* stream) {
  count_launches(true);
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream_of(stream), &graph));
  note_captured(graph);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  ignore(cudaGraphDestroy(graph));
  check(status);
  return executable;
}

}  // namespace

const DeviceApi& device_api() {
  static constexpr DeviceApi kApi = {
      .shares_host_memory = false,
      .info = info,
      .alloc = alloc,
      .free = [](void* data, int64_t) { ignore(cudaFree(data)); },
      .alloc_host = alloc_host,
      .free_host = [](void* data, int64_t) { ignore(cudaFreeHost(data)); },
      .copy_to_device = copy_to_device,
      .copy_to_host = copy_to_host,
      .stream_create = stream_create,
      .stream_destroy = [](void* stream) { ignore(cudaStreamDestroy(stream_of(stream))); },
      .stream_synchronize = [](void* stream) { check(cudaStreamSynchronize(stream_of(stream))); },
      .event_create = event_create,
      .event_destroy = [](void* event) { ignore(cudaEventDestroy(event_of(event))); },
      .event_record =
          [](void* event, void* stream) {
            check(cudaEventRecord(event_of(event), stream_of(stream)));
          },
      .event_synchronize = [](void* event) { check(cudaEventSynchronize(event_of(event))); },
      .event_elapsed_us = event_elapsed_us,
      .capture_begin = capture_begin,
      .capture_end = capture_end,
      .graph_launch =
          [](void* graph, void* stream) {
            check(cudaGraphLaunch(graph_of(graph), stream_of(stream)));
          },
      .graph_destroy = [](void* graph) { ignore(cudaGraphExecDestroy(graph_of(graph))); },
      .read_stream =
          [](const void* data, int64_t bytes, uint64_t* sum, void* stream) {
            read_stream({data, bytes, sum}, stream);
          },
      .kernel_launches = kernel_launches,
      .watch_launches = watch_launches,
      .read_cached =
          [](const void* data, int64_t bytes, int passes, uint64_t* sum, void* stream) {
            read_cached({data, bytes, sum}, passes, stream);
          },
      .watch_captures = watch_captures,
      .captured_kernels = captured_kernels,
      .arithmetic_stream =
          [](Arithmetic kind, int64_t passes, uint64_t* right, void* stream) {
            return arithmetic_stream({kind, passes, right}, stream);
          },
  };
  return kApi;
}

}  // namespace fathom::cuda
