// SPDX-License-Identifier: Apache-2.0
// A step is captured from one stream, so its graph is a chain: nodes are taken from its root on.
#include "backends/cuda/graph_kernels.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "backends/cuda/launch_count.hpp"
#include "base/check.hpp"
#include "kernels/common/cuda_check.cuh"

namespace fathom::cuda {
namespace {

thread_local std::vector<std::vector<KernelLaunch>>* captures = nullptr;

bool is_address(uint64_t value) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, reinterpret_cast<void*>(value)) == cudaSuccess) {
    return attributes.type != cudaMemoryTypeUnregistered;
  }
  static_cast<void>(cudaGetLastError());
  return false;
}

std::vector<KernelWord> words_of(const cudaKernelNodeParams& node) {
  std::vector<KernelWord> out;
  size_t offset = 0, bytes = 0;
  for (int i = 0;
       cudaFuncGetParamInfo(node.func, static_cast<size_t>(i), &offset, &bytes) == cudaSuccess;
       ++i) {
    const auto* const from = static_cast<const std::byte*>(node.kernelParams[i]);
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
      const size_t n = std::min(sizeof(uint64_t), bytes - at);
      KernelWord word{.parameter = i,
                      .offset = static_cast<int>(at),
                      .bytes = static_cast<int>(n),
                      .value = 0,
                      .is_address = false};
      std::memcpy(&word.value, from + at, n);
      word.is_address = n == sizeof word.value && is_address(word.value);
      out.push_back(word);
    }
  }
  static_cast<void>(cudaGetLastError());  // of the parameter behind the last
  return out;
}

cudaGraphNode_t root_of(cudaGraph_t graph) {
  size_t n = 1;
  cudaGraphNode_t root = nullptr;
  check(cudaGraphGetRootNodes(graph, &root, &n));
  return n == 0 ? nullptr : root;
}

cudaGraphNode_t next_of(cudaGraphNode_t node) {
  size_t n = 0;
  check(cudaGraphNodeGetDependentNodes(node, nullptr, nullptr, &n));
  FATHOM_CHECK(n <= 1, "a step's graph is a chain");
  if (n == 0) return nullptr;
  cudaGraphNode_t next = nullptr;
  cudaGraphEdgeData edge{};
  check(cudaGraphNodeGetDependentNodes(node, &next, &edge, &n));
  return next;
}

std::vector<KernelLaunch> kernels_of(cudaGraph_t graph) {
  std::vector<KernelLaunch> out;
  for (cudaGraphNode_t node = root_of(graph); node; node = next_of(node)) {
    cudaGraphNodeType type{};
    check(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams params{};
    check(cudaGraphKernelNodeGetParams(node, &params));
    out.push_back(
        describe_launch({params.func, params.gridDim, params.blockDim, params.sharedMemBytes}));
    out.back().arguments = words_of(params);
  }
  return out;
}

}  // namespace

std::vector<std::vector<KernelLaunch>> watch_captures(const std::function<void()>& fn) {
  std::vector<std::vector<KernelLaunch>> out;
  captures = &out;
  try {
    fn();
  } catch (...) {
    captures = nullptr;
    throw;
  }
  captures = nullptr;
  return out;
}

void note_captured(cudaGraph_t graph) {
  if (captures) captures->push_back(kernels_of(graph));
}

}  // namespace fathom::cuda
