// SPDX-License-Identifier: Apache-2.0
// A backend library as strict as a GPU, to test the engine without one. Its ops are the
// reference's, but its memory faults when the host touches it, and its stream is as lazy as a
// stream may be: ops and copies run when somebody synchronises. A graph replays the calls that were
// captured, with their counts and pointers. Built three times: GUARDED_NAME "guarded" has graphs
// and streams for its ceilings, "guardedeager" has neither, "cuda" can be watched too.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "backends/reference/reference_backend.hpp"
#include "base/error.hpp"
#include "device/backend.hpp"
#include "kernels/op_table.hpp"
#include "tests/support/dummy_backend/fake_watch.hpp"

namespace fathom {
namespace {

constexpr int64_t kMemoryBytes = int64_t{64} << 20;

// Blocks of memory, by address.
class Blocks {
 public:
  void add(void* data, int64_t bytes) {
    bytes_of_[static_cast<std::byte*>(data)] = bytes;
    used_ += bytes;
  }
  void remove(void* data) {
    const auto block = bytes_of_.find(static_cast<std::byte*>(data));
    used_ -= block->second;
    bytes_of_.erase(block);
  }
  bool hold(const void* data, int64_t bytes) const {
    const auto* at = static_cast<const std::byte*>(data);
    return std::any_of(bytes_of_.begin(), bytes_of_.end(), [&](const auto& block) {
      return at >= block.first && at + bytes <= block.first + block.second;
    });
  }
  void protect(int protection) const {
    for (const auto& [data, bytes] : bytes_of_) {
      mprotect(data, static_cast<size_t>(bytes), protection);
    }
  }
  int64_t used() const { return used_; }

 private:
  std::map<std::byte*, int64_t> bytes_of_;
  int64_t used_ = 0;
};

Blocks& device_memory() {
  static Blocks blocks;
  return blocks;
}
Blocks& page_locked() {
  static Blocks blocks;
  return blocks;
}

// The device's memory can be touched while this lives.
struct Opened {
  Opened() { device_memory().protect(PROT_READ | PROT_WRITE); }
  ~Opened() { device_memory().protect(PROT_NONE); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
};

// 0xff: NaN as f32, page -1 as a page, so that nothing counts on zeros.
void* map_poisoned(int64_t bytes) {
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FATHOM_CHECK(data != MAP_FAILED, "mmap failed");
  std::memset(data, 0xff, static_cast<size_t>(bytes));
  return data;
}

void* alloc(int64_t bytes) {
  const int64_t left = kMemoryBytes - device_memory().used();
  if (bytes > left) {
    fail(ErrorCode::out_of_memory, "the guarded device has {} bytes left, {} were asked for", left,
         bytes);
  }
  void* data = map_poisoned(bytes);
  device_memory().add(data, bytes);
  device_memory().protect(PROT_NONE);
  return data;
}

void* alloc_host(int64_t bytes) {
  void* data = map_poisoned(bytes);
  page_locked().add(data, bytes);
  return data;
}

template <Blocks& (*kBlocks)()>
void release(void* data, int64_t bytes) {
  kBlocks().remove(data);
  munmap(data, static_cast<size_t>(bytes));
}

using Work = std::vector<std::function<void()>>;

struct LazyStream {
  std::deque<std::function<void()>> queue;
  int64_t n_submitted = 0, n_done = 0;
  Work captured;
  bool capturing = false;
};

using Clock = std::chrono::steady_clock;

struct LazyEvent {
  LazyStream* stream = nullptr;
  int64_t n_work = 0;  // submitted up to it
  std::shared_ptr<Clock::time_point> at = std::make_shared<Clock::time_point>();
};

LazyStream& stream_of(void* stream) {
  FATHOM_CHECK(stream, "work on the null stream is not ordered with an engine's own");
  return *static_cast<LazyStream*>(stream);
}

void submit(void* stream, std::function<void()> work) {
  LazyStream& s = stream_of(stream);
  if (s.capturing) {
    s.captured.push_back(fake::trace().named(std::move(work)));
    return;
  }
  s.queue.push_back(std::move(work));
  ++s.n_submitted;
}

void run_until(LazyStream& s, int64_t n_done) {
  FATHOM_CHECK(!s.capturing, "a stream that captures cannot be waited for");
  const Opened opened;
  while (s.n_done < n_done) {
    const std::function<void()> work = std::move(s.queue.front());
    s.queue.pop_front();
    ++s.n_done;
    work();
  }
}

void synchronize(void* stream) {
  LazyStream& s = stream_of(stream);
  run_until(s, s.n_submitted);
}

LazyEvent& event_of(void* event) { return *static_cast<LazyEvent*>(event); }

void event_record(void* event, void* stream) {
  LazyStream& s = stream_of(stream);
  LazyEvent& e = event_of(event);
  submit(stream, [at = e.at] { *at = Clock::now(); });
  e.stream = &s;
  e.n_work = s.n_submitted;
}

void event_synchronize(void* event) {
  const LazyEvent& e = event_of(event);
  if (e.stream) run_until(*e.stream, e.n_work);
}

void copy_to_device(void* device, const void* host, int64_t bytes, void* stream) {
  FATHOM_CHECK(device_memory().hold(device, bytes), "the target is no memory of the device");
  if (page_locked().hold(host, bytes)) {
    submit(stream, [=] { std::memcpy(device, host, static_cast<size_t>(bytes)); });
    return;
  }
  FATHOM_CHECK(!stream_of(stream).capturing, "what is copied into a graph must be page-locked");
  const auto* begin = static_cast<const std::byte*>(host);
  submit(stream, [device, data = std::vector<std::byte>(begin, begin + bytes)] {
    std::memcpy(device, data.data(), data.size());
  });
}

void copy_to_host(void* host, const void* device, int64_t bytes, void* stream) {
  FATHOM_CHECK(device_memory().hold(device, bytes), "the source is no memory of the device");
  FATHOM_CHECK(page_locked().hold(host, bytes), "the engine reads through page-locked memory");
  submit(stream, [=] { std::memcpy(host, device, static_cast<size_t>(bytes)); });
}

void read_stream(const void* data, int64_t bytes, uint64_t* sum, void* stream) {
  FATHOM_CHECK(device_memory().hold(data, bytes) && device_memory().hold(sum, sizeof *sum),
               "the read stream reads and writes memory of the device");
  submit(stream, [=] {
    const auto* words = static_cast<const uint64_t*>(data);
    for (int64_t i = 0; i < bytes / 8; ++i) *sum += words[i];
  });
}

ArithmeticWork arithmetic_stream(Arithmetic, int64_t passes, uint64_t* right, void* stream) {
  constexpr int64_t kThreads = 64;
  submit(stream, [=] {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    *right += kThreads;
  });
  return {.ops = passes * kThreads, .threads = kThreads};
}

DeviceInfo info() {
  return {.name = "guarded device",
          .isa = "none",
          .compute_units = 1,
          .total_bytes = kMemoryBytes,
          .free_bytes = kMemoryBytes - device_memory().used(),
          .l2_bytes = 0};
}

constexpr DeviceApi kDevice = {
    .shares_host_memory = false,
    .info = info,
    .alloc = alloc,
    .free = release<device_memory>,
    .alloc_host = alloc_host,
    .free_host = release<page_locked>,
    .copy_to_device = copy_to_device,
    .copy_to_host = copy_to_host,
    .stream_create = []() -> void* { return new LazyStream; },
    .stream_destroy = [](void* stream) { delete static_cast<LazyStream*>(stream); },
    .stream_synchronize = synchronize,
    .event_create = []() -> void* { return new LazyEvent; },
    .event_destroy = [](void* event) { delete static_cast<LazyEvent*>(event); },
    .event_record = event_record,
    .event_synchronize = event_synchronize,
    .event_elapsed_us =
        [](void* start, void* stop) {
          using Us = std::chrono::duration<double, std::micro>;
          return Us(*event_of(stop).at - *event_of(start).at).count();
        },
    .capture_begin = [](void* stream) { stream_of(stream).capturing = true; },
    .capture_end = [](void* stream) -> void* {
      LazyStream& s = stream_of(stream);
      s.capturing = false;
      return new Work(std::exchange(s.captured, {}));
    },
    .graph_launch =
        [](void* graph, void* stream) {
          for (const auto& work : *static_cast<Work*>(graph)) submit(stream, work);
        },
    .graph_destroy = [](void* graph) { delete static_cast<Work*>(graph); },
    .read_stream = GUARDED_GRAPHS ? read_stream : nullptr,
    .arithmetic_stream = GUARDED_GRAPHS ? arithmetic_stream : nullptr,
};

// The step without its padding, which the reference's ops do not know. On the device.
StepState without_padding(StepState step) {
  const int32_t n_all = step.n_rows;
  while (step.n_rows > 0 && step.pos[step.n_rows - 1] == -1) --step.n_rows;
  FATHOM_CHECK(step.n_rows > 0, "a step of padding only");
  for (int32_t row = 0; row < n_all; ++row) {
    FATHOM_CHECK((step.pos[row] >= 0) == (row < step.n_rows), "padding before a row");
    const bool padding = row >= step.n_rows;
    FATHOM_CHECK(!padding || (step.token[row] == 0 && step.slot[row] == 0), "padding of a slot");
  }
  return step;
}

template <class Args>
using OpFunction = void (*)(ExecContext&, const Args&);

// The op as a kernel: what stands in its arguments is taken when it is submitted, what they point
// at on the device when it runs.
template <class Args, OpFunction<Args> kOp>
void submit_op(ExecContext& ctx, const Args& args) {
  submit(ctx.stream.handle, [ctx, taken = args, step = *args.step]() mutable {
    const StepState rows = without_padding(step);
    taken.step = &rows;
    kOp(ctx, taken);
  });
}

// NaN in the padding: it must not reach any row. The step finds its counters zero.
void embed(ExecContext& ctx, const EmbedArgs& args) {
  submit_op<EmbedArgs, embed_ref>(ctx, args);
  submit(ctx.stream.handle, [args, step = *args.step, counters = ctx.counters] {
    FATHOM_CHECK(counters.bytes == kCounterBytes &&
                     std::all_of(counters.data, counters.data + counters.bytes,
                                 [](std::byte value) { return value == std::byte{0}; }),
                 "the counters are not zero");
    const int64_t n_rows = without_padding(step).n_rows;
    std::fill(args.x + n_rows * args.s.d_model, args.x + step.n_rows * args.s.d_model,
              std::numeric_limits<float>::quiet_NaN());
  });
}

// Logits are of out_row, which may name padding.
void norm_head(ExecContext& ctx, const NormHeadArgs& args) {
  submit(ctx.stream.handle, [ctx, taken = args, step = *args.step]() mutable {
    taken.step = &step;
    norm_head_ref(ctx, taken);
  });
}

void kv_fill(ExecContext& ctx, const KvFillArgs& args) {
  submit(ctx.stream.handle, [ctx, args]() mutable { kv_fill_ref(ctx, args); });
}

void begin_step(ExecContext& ctx, const BeginStepArgs& args) {
  FATHOM_CHECK(page_locked().hold(args.inbox, args.s.place_bytes), "the inbox is not page-locked");
  submit(ctx.stream.handle, [ctx, args]() mutable { begin_step_ref(ctx, args); });
}

void draw(ExecContext& ctx, const DrawArgs& args) {
  const int64_t logits_bytes = args.s.vocab_size * static_cast<int64_t>(sizeof(float));
  FATHOM_CHECK(device_memory().hold(args.logits, logits_bytes), "the logits are on the host");
  FATHOM_CHECK(page_locked().hold(args.drawn, sizeof(Drawn)), "answers are not page-locked");
  submit(ctx.stream.handle, [ctx, args]() mutable { draw_ref(ctx, args); });
}

constexpr OpTable kOps{
    .embed = embed,
    .norm_qkv_rope_append = submit_op<NormQkvRopeAppendArgs, norm_qkv_rope_append_ref>,
    .attn = submit_op<AttnArgs, attn_ref>,
    .out_proj_residual = submit_op<OutProjResidualArgs, out_proj_residual_ref>,
    .norm_gate_up_act = submit_op<NormGateUpActArgs, norm_gate_up_act_ref>,
    .down_proj_residual = submit_op<DownProjResidualArgs, down_proj_residual_ref>,
    .norm_head = norm_head,
    .sample = nullptr,
    .kv_fill = kv_fill,
    .workspace_bytes = kCpuWorkspaces,
    .begin_step = begin_step,
    .draw = draw,
};

void pack_matrix(ThreadPool&, const PackedMatrix& plan, const std::byte* file, std::byte* packed) {
  const Opened opened;
  std::memcpy(packed, file, static_cast<size_t>(plan.packed_bytes));
}

}  // namespace
}  // namespace fathom

extern "C" const fathom::Backend* fathom_backend(uint32_t abi) {
  using namespace fathom;
  if (abi != kBackendAbi) return nullptr;
  static const Backend kBackend{.abi = kBackendAbi,
                                .name = GUARDED_NAME,
                                .build_id = "tests",
                                .ops = &kOps,
                                .device = &kDevice,
                                .plan_matrix = reference_backend().plan_matrix,
                                .pack_matrix = pack_matrix,
                                .keeps_file_layout = false,
                                .has_graphs = GUARDED_GRAPHS,
                                .default_ubatch = GUARDED_GRAPHS ? 24 : 512,
                                .trace_source = GUARDED_WATCHED ? fake::trace_source : nullptr,
                                .counter_source = GUARDED_WATCHED ? fake::counter_source : nullptr,
                                .stall_source = GUARDED_WATCHED ? fake::stall_source : nullptr};
  return &kBackend;
}
