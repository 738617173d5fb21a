// SPDX-License-Identifier: Apache-2.0
// The glue to CUPTI: one subscriber with the driver's domain, and activity records of whole graphs,
// which cost less than those of their kernels and leave programmatic dependence as it is.
#include "backends/cuda/driver_calls.hpp"

#include "base/error.hpp"

#ifdef FATHOM_HAS_CUPTI

#include <cupti.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom::cuda {
namespace {

void check_cupti(CUptiResult result) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = "";
  cuptiGetResultString(result, &text);
  fail(ErrorCode::device_fault, "CUPTI: {}", text);
}

std::atomic<int64_t> n_graph_launches, n_kernel_launches, n_copies, n_captures;
CUpti_SubscriberHandle subscriber;

void CUPTIAPI on_call(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  if (call.callbackSite != CUPTI_API_ENTER) return;
  const std::string_view name = call.functionName;
  if (name.starts_with("cuGraphLaunch")) ++n_graph_launches;
  if (name.starts_with("cuLaunch")) ++n_kernel_launches;
  if (name.starts_with("cuMemcpy") || name.starts_with("cuMemset")) ++n_copies;
  if (name.starts_with("cuStreamBeginCapture") || name.starts_with("cuGraphInstantiate")) {
    ++n_captures;
  }
}

std::mutex spans_mutex;
std::vector<std::pair<uint64_t, uint64_t>> spans;  // of graphs

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  constexpr size_t kBytes = size_t{1} << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBytes));
  *bytes = kBytes;
  *max_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  const std::lock_guard lock(spans_mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_GRAPH_TRACE) continue;
    const auto& graph = *reinterpret_cast<const CUpti_ActivityGraphTrace2*>(record);
    spans.emplace_back(graph.start, graph.end);
  }
  std::free(buffer);
}

}  // namespace

bool DriverCallCounter::available() { return true; }

DriverCallCounter::DriverCallCounter() {
  check_cupti(cuptiSubscribe(&subscriber, on_call, nullptr));
  check_cupti(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API));
  take();
}

DriverCallCounter::~DriverCallCounter() { cuptiUnsubscribe(subscriber); }

DriverCalls DriverCallCounter::take() {
  return {n_graph_launches.exchange(0), n_kernel_launches.exchange(0), n_copies.exchange(0),
          n_captures.exchange(0)};
}

GraphTrace::GraphTrace() {
  spans.clear();
  check_cupti(cuptiActivityRegisterCallbacks(give_buffer, take_buffer));
  check_cupti(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE));
}

GraphTrace::~GraphTrace() { cuptiActivityDisable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE); }

GraphTimes GraphTrace::take() {
  check_cupti(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
  const std::lock_guard lock(spans_mutex);
  GraphTimes out;
  if (spans.empty()) return out;
  std::sort(spans.begin(), spans.end());
  for (const auto& [begin, end] : spans) out.busy_ns += static_cast<double>(end - begin);
  out.n_graphs = static_cast<int64_t>(spans.size());
  out.span_ns = static_cast<double>(spans.back().second - spans.front().first);
  spans.clear();
  return out;
}

}  // namespace fathom::cuda

#else

namespace fathom::cuda {

bool DriverCallCounter::available() { return false; }
DriverCallCounter::DriverCallCounter() { fail(ErrorCode::unavailable, "built without CUPTI"); }
DriverCallCounter::~DriverCallCounter() = default;
DriverCalls DriverCallCounter::take() { return {}; }
GraphTrace::GraphTrace() { fail(ErrorCode::unavailable, "built without CUPTI"); }
GraphTrace::~GraphTrace() = default;
GraphTimes GraphTrace::take() { return {}; }

}  // namespace fathom::cuda

#endif
