// SPDX-License-Identifier: Apache-2.0
// Records of the kernels of graph replays. CUPTI writes them into buffers of ours, which are made
// beforehand and zeroed, as it is told: nothing is allocated or cleared on the way of a launch.
// Times are brought to the host's monotonic clock by a callback that is registered once, since a
// second registration spoils the records in between.
#include <algorithm>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>

#include "backends/cuda/cupti_library.hpp"
#include "backends/cuda/watch.hpp"
#include "base/error.hpp"
#include "device/graph_trace.hpp"

namespace fathom::cuda {
namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;
constexpr size_t kBuffers = 4;
// CUPTI's own pool of timestamps on the device is finite, and beyond it times are wrong.
constexpr size_t kMaxRecords = 100'000;
constexpr CUpti_ActivityKind kKernels = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;

uint64_t CUPTIAPI host_time() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

struct FreeBuffer {
  void operator()(uint8_t* data) const { std::free(data); }
};
using ActivityBuffer = std::unique_ptr<uint8_t, FreeBuffer>;

// Zeroed buffers in waiting. CUPTI takes and gives them in threads of its own.
class BufferPool {
 public:
  void fill() {
    const std::lock_guard lock(mutex_);
    while (free_.size() < kBuffers) free_.push_back(make());
  }
  uint8_t* take() {
    const std::lock_guard lock(mutex_);
    ActivityBuffer out = free_.empty() ? make() : std::move(free_.back());
    if (!free_.empty()) free_.pop_back();
    return out.release();
  }
  void give(ActivityBuffer buffer, size_t used) {
    std::memset(buffer.get(), 0, used);
    const std::lock_guard lock(mutex_);
    if (free_.size() < kBuffers) free_.push_back(std::move(buffer));
  }

 private:
  static ActivityBuffer make() {
    void* const data = std::aligned_alloc(64, kBufferBytes);
    if (!data) return nullptr;
    std::memset(data, 0, kBufferBytes);
    return ActivityBuffer(static_cast<uint8_t*>(data));
  }
  std::mutex mutex_;
  std::vector<ActivityBuffer> free_;
};

KernelRecord record_of(const CUpti_ActivityKernel10& from) {
  return {.launch = from.correlationId,
          .node = from.graphNodeId,
          .executable = from.graphId,
          .start_ns = static_cast<int64_t>(from.start),
          .end_ns = static_cast<int64_t>(from.end),
          .kernel = from.name ? from.name : "",
          .grid = {from.gridX, from.gridY, from.gridZ},
          .block = {from.blockX, from.blockY, from.blockZ},
          .shared_bytes = int64_t{from.staticSharedMemory} + from.dynamicSharedMemory,
          .registers = from.registersPerThread};
}

class CuptiTrace final : public TraceSource, CuptiListener {
 public:
  CuptiTrace();
  OpScopeSink& scopes() override { return names_; }
  void start() override;
  TraceWindow stop(int n_steps) override;
  const RawTrace* raw() const override { return &raw_; }

  void keep(const uint8_t* buffer, size_t bytes);
  BufferPool pool;

 private:
  void on_node_created(CUgraphNode node) override;
  void on_instantiated(CUgraph graph, CUgraphExec executable) override;
  void count_dropped();
  void note(CUptiResult result);

  const Cupti& api_;
  NodeNames names_;
  std::mutex mutex_;  // of what CUPTI's threads bring
  bool recording_ = false;
  bool overflowed_ = false;
  RawTrace raw_;
  CuptiSubscription subscription_;  // the last: it calls what stands above
};

CuptiTrace* the_trace = nullptr;

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *buffer = the_trace->pool.take();
  *bytes = *buffer ? kBufferBytes : 0;
  *max_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  ActivityBuffer owned(buffer);
  the_trace->keep(buffer, valid_bytes);
  the_trace->pool.give(std::move(owned), valid_bytes);
}

// Recording is on from here to the end: steps that are compared with watched ones ran before. So
// every step of the process is watched from here on, whether anybody reads the records or not. With
// a context there or without one; kernels of graphs that were instantiated before have records too,
// but no names.
CuptiTrace::CuptiTrace() : api_(cupti()), subscription_(api_, *this) {
  the_trace = this;
  pool.fill();
  check_cupti(api_, api_.activity_register_timestamp_callback(host_time));
  uint8_t zeroed = 1;
  size_t bytes = sizeof zeroed;
  check_cupti(api_, api_.activity_set_attribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER,
                                                &bytes, &zeroed));
  check_cupti(api_, api_.activity_register_callbacks(give_buffer, take_buffer));
  check_cupti(api_, api_.activity_enable(kKernels));
}

void CuptiTrace::on_node_created(CUgraphNode node) {
  uint64_t id = 0;
  if (api_.get_graph_node_id(node, &id) == CUPTI_SUCCESS) names_.created(id);
}

void CuptiTrace::on_instantiated(CUgraph graph, CUgraphExec executable) {
  uint32_t graph_id = 0, executable_id = 0;
  if (graph && executable && api_.get_graph_id(graph, &graph_id) == CUPTI_SUCCESS &&
      api_.get_graph_exec_id(executable, &executable_id) == CUPTI_SUCCESS) {
    names_.instantiated(graph_id, executable_id);
  }
}

void CuptiTrace::keep(const uint8_t* buffer, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!recording_) return;
  CUpti_Activity* record = nullptr;
  while (api_.activity_get_next_record(const_cast<uint8_t*>(buffer), bytes, &record) ==
         CUPTI_SUCCESS) {
    if (record->kind != kKernels) continue;
    if (raw_.records.size() == kMaxRecords) {
      overflowed_ = true;
      return;
    }
    raw_.records.push_back(record_of(*reinterpret_cast<const CUpti_ActivityKernel10*>(record)));
  }
}

void CuptiTrace::note(CUptiResult result) {
  if (result != CUPTI_SUCCESS && raw_.problem.empty()) raw_.problem = cupti_problem(api_, result);
}

void CuptiTrace::count_dropped() {
  size_t n = 0;
  note(api_.activity_get_num_dropped_records(nullptr, 0, &n));
  raw_.n_dropped = static_cast<int64_t>(n);
}

// CUPTI brings the device's times to the host's clock with an error of some microseconds: a last
// kernel was seen to end 2.5 us after the host had waited for it. A window's ends are therefore
// read outside its flushes, which take far longer.
void CuptiTrace::start() {
  const auto begin_ns = static_cast<int64_t>(host_time());
  check_cupti(api_, api_.activity_flush_all(0));  // what came before is nobody's
  size_t dropped_before = 0;
  api_.activity_get_num_dropped_records(nullptr, 0, &dropped_before);
  const std::lock_guard lock(mutex_);
  raw_ = {};
  raw_.records.reserve(kMaxRecords);
  overflowed_ = false;
  recording_ = true;
  raw_.begin_ns = begin_ns;
}

TraceWindow CuptiTrace::stop(int n_steps) {
  note(api_.activity_flush_all(0));
  raw_.end_ns = static_cast<int64_t>(host_time());
  count_dropped();
  const std::lock_guard lock(mutex_);
  recording_ = false;
  raw_.n_steps = n_steps;
  raw_.executables = names_.executables();
  if (overflowed_ && raw_.problem.empty()) {
    raw_.problem = fmt::format(
        "a window holds at most {} records, since CUPTI's times go wrong beyond: trace fewer steps",
        kMaxRecords);
  }
  return judge(raw_);
}

}  // namespace

TraceSource& trace_source() {
  static CuptiTrace* const kTrace = new CuptiTrace;  // CUPTI's threads outlive main()
  return *kTrace;
}

}  // namespace fathom::cuda
