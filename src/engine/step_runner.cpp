// SPDX-License-Identifier: Apache-2.0
// The layout of a step's arrays in one allocation, measured and then made by the same code, the
// filling of the StepState, and the choice between ops and graph.
#include "engine/step_runner.hpp"

#include <algorithm>
#include <vector>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "model/decode_step.hpp"

namespace fathom::engine {
namespace {

constexpr int64_t kStepArrays = 4;  // token, pos, slot, out_row

// Lays arrays one behind the other; with a null base it only measures.
class Layout {
 public:
  explicit Layout(std::byte* base) : base_(base) {}
  template <class T>
  T* take(int64_t n) {
    std::byte* at = base_ ? base_ + bytes_ : nullptr;
    bytes_ += static_cast<int64_t>(round_up(n * static_cast<int64_t>(sizeof(T)), 64));
    return reinterpret_cast<T*>(at);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

struct DeviceArrays {
  StepBuffers buffers;
  int32_t* step;
  Workspace workspace, counters;
};

DeviceArrays lay_out(const StepRunner::Config& c, Layout& layout) {
  const int64_t rows = c.limits.max_rows;
  DeviceArrays a{};
  a.buffers.x = layout.take<float>(rows * c.d_model);
  a.buffers.rope = layout.take<float>(rows * c.rope_dim);
  a.buffers.q = layout.take<float>(rows * c.q_dim);
  a.buffers.attn = layout.take<float>(rows * c.q_dim);
  a.buffers.h = layout.take<float>(rows * c.d_ff);
  a.buffers.logits = layout.take<float>(c.limits.max_out * c.vocab_size);
  a.step = layout.take<int32_t>(kStepArrays * rows);
  a.workspace = {layout.take<std::byte>(c.workspace_bytes), c.workspace_bytes};
  if (!c.backend->device->shares_host_memory) {
    a.counters = {layout.take<std::byte>(kCounterBytes), kCounterBytes};
  }
  return a;
}

// The rows' host mirror, for costs.
StepShape shape_of(std::span<const StepRow> rows, size_t n_out) {
  StepShape shape{static_cast<int64_t>(rows.size()), static_cast<int64_t>(n_out), 0, 0};
  for (size_t i = 0; i < rows.size(); ++i) {
    shape.attended_pairs += rows[i].pos + 1;
    const bool last_of_slot = i + 1 == rows.size() || rows[i + 1].slot != rows[i].slot;
    if (last_of_slot) shape.kv_tokens += rows[i].pos + 1;
  }
  return shape;
}

}  // namespace

int64_t StepRunner::planned_bytes(const Config& config) {
  Layout layout(nullptr);
  lay_out(config, layout);
  return layout.bytes();
}

StepRunner::StepRunner(const Config& config)
    : config_(config),
      device_(*config.backend->device),
      memory_(make_buffer(device_, planned_bytes(config))) {
  Layout layout(memory_.get().data);
  const DeviceArrays arrays = lay_out(config, layout);
  buffers_ = arrays.buffers;
  arrays_ = host_arrays_ = arrays.step;
  host_logits_ = buffers_.logits;
  exec_.stream.handle = config.stream;
  exec_.pool = config.pool;
  exec_.cpu = config.cpu;
  exec_.workspace = arrays.workspace;
  if (device_.shares_host_memory) return;
  exec_.counters = arrays.counters;
  const std::vector<std::byte> zeros(kCounterBytes);
  device_.copy_to_device(exec_.counters.data, zeros.data(), kCounterBytes, config.stream);
  const auto lay_out_host = [&](std::byte* base) {
    Layout host(base);
    host_arrays_ = host.take<int32_t>(kStepArrays * config.limits.max_rows);
    host_logits_ = host.take<float>(config.limits.max_out * config.vocab_size);
    return host.bytes();
  };
  host_memory_ = make_host_buffer(device_, lay_out_host(nullptr));
  lay_out_host(host_memory_.get().data);
}

StepRunner::~StepRunner() {
  try {
    synchronize();  // a step that was given up may still use what goes now
  } catch (const Error&) {
    // What is wrong with the device was said when a step met it.
  }
}

void StepRunner::synchronize() {
  if (!submitted_) return;
  submitted_ = false;
  device_.stream_synchronize(exec_.stream.handle);
}

// Copies n elements of the step's arrays, where there is a copy at all.
void StepRunner::copy_arrays(int64_t begin, int64_t n) {
  submitted_ = true;
  logits_on_host_ = device_.shares_host_memory;
  if (device_.shares_host_memory) return;
  device_.copy_to_device(arrays_ + begin, host_arrays_ + begin,
                         n * static_cast<int64_t>(sizeof(int32_t)), exec_.stream.handle);
}

// A decode step of a device with graphs; all of its rows have logits, or none.
bool StepRunner::replayable(std::span<const StepRow> rows, size_t n_out) const {
  if (!config_.backend->has_graphs || exec_.sink) return false;
  if (n_out != 0 && n_out != rows.size()) return false;
  const auto same_slot = [](const StepRow& a, const StepRow& b) { return a.slot == b.slot; };
  return std::adjacent_find(rows.begin(), rows.end(), same_slot) == rows.end();
}

// Fills the arrays of the StepState. Rows behind the given ones are padding; a padded step has
// logits of every row, as far as there is room for them.
void StepRunner::stage(std::span<const StepRow> rows, std::span<const int32_t> out_rows,
                       int64_t n_padded) {
  synchronize();  // the copy of the step before may still read them
  const int64_t n_rows = static_cast<int64_t>(rows.size());
  int32_t* const token = host_arrays_;
  int32_t* const pos = token + n_padded;
  int32_t* const slot = pos + n_padded;
  int32_t* const out_row = slot + n_padded;
  for (int64_t i = 0; i < n_padded; ++i) {
    const StepRow row = i < n_rows ? rows[i] : StepRow{.token = 0, .pos = -1, .slot = 0};
    token[i] = row.token;
    pos[i] = row.pos;
    slot[i] = row.slot;
    out_row[i] = static_cast<int32_t>(i);
  }
  std::copy(out_rows.begin(), out_rows.end(), out_row);
  copy_arrays(0, kStepArrays * n_padded);
  int64_t n_out = static_cast<int64_t>(out_rows.size());
  if (n_out > 0 && n_padded > n_rows) n_out = std::min(n_padded, config_.limits.max_out);
  state_.n_rows = static_cast<int32_t>(n_padded);
  state_.n_out = static_cast<int32_t>(n_out);
  state_.token = arrays_;
  state_.pos = arrays_ + n_padded;
  state_.slot = arrays_ + 2 * n_padded;
  state_.out_row = arrays_ + 3 * n_padded;
}

StepContext StepRunner::context(const StepPlan& plan, const std::atomic<bool>* cancel) {
  return {exec_, device_, *config_.backend->ops, plan, buffers_, state_, shape_, cancel};
}

void StepRunner::run(const StepPlan& plan, std::span<const StepRow> rows,
                     std::span<const int32_t> out_rows, const int32_t* page_table,
                     int32_t max_pages, const std::atomic<bool>* cancel) {
  const int64_t n_rows = static_cast<int64_t>(rows.size());
  FATHOM_CHECK(n_rows >= 1 && n_rows <= config_.limits.max_rows, "a step has 1 to max_rows rows");
  FATHOM_CHECK(static_cast<int64_t>(out_rows.size()) <= std::min(n_rows, config_.limits.max_out),
               "more rows want logits than the plan allows");
  const bool replays = replayable(rows, out_rows.size());
  stage(rows, out_rows, replays ? StepGraph::bucket(n_rows, config_.limits.max_rows) : n_rows);
  state_.page_table = page_table;
  state_.max_pages = max_pages;
  shape_ = shape_of(rows, out_rows.size());
  ++epoch_;
  if (replays) {
    graph_.run(context(plan, cancel));
  } else {
    decode_step(context(plan, cancel));
  }
}

void StepRunner::run_head(const StepPlan& plan, std::span<const int32_t> out_rows,
                          const std::atomic<bool>* cancel) {
  const int64_t n_out = static_cast<int64_t>(out_rows.size());
  FATHOM_CHECK(n_out <= std::min<int64_t>(state_.n_rows, config_.limits.max_out),
               "more rows want logits than the plan allows");
  synchronize();
  const int64_t begin = state_.out_row - arrays_;
  std::copy(out_rows.begin(), out_rows.end(), host_arrays_ + begin);
  copy_arrays(begin, n_out);
  state_.n_out = static_cast<int32_t>(n_out);
  shape_.n_out = n_out;
  head_step(context(plan, cancel));
}

void StepRunner::fill_cache(const StepPlan& plan, const int32_t* pages, int64_t begin, int64_t end,
                            uint64_t seed) {
  submitted_ = true;
  for (int layer = 0; layer < static_cast<int>(plan.layers.size()); ++layer) {
    const KvFillArgs args{{plan.layers[layer].attn.kv, layer}, pages, begin, end, seed};
    const OpScope scope(exec_.sink, {"kv_fill", layer}, exec_.sink ? cost(args) : Cost{});
    config_.backend->ops->kv_fill(exec_, args);
    if (exec_.sink) device_.stream_synchronize(exec_.stream.handle);
  }
}

int32_t StepRunner::sample(const StepPlan& plan, int64_t row, SampleArgs args) {
  int32_t token = -1;
  args.s = plan.sample;
  args.logits = buffers_.logits + row * config_.vocab_size;
  args.token = &token;
  const OpScope scope(exec_.sink, {"sample", -1}, exec_.sink ? cost(plan.sample, 1) : Cost{});
  config_.backend->ops->sample(exec_, args);
  return token;
}

std::span<const float> StepRunner::logits(int64_t row) {
  if (!logits_on_host_) {
    device_.copy_to_host(host_logits_, buffers_.logits,
                         shape_.n_out * config_.vocab_size * static_cast<int64_t>(sizeof(float)),
                         exec_.stream.handle);
    submitted_ = true;
    synchronize();
    logits_on_host_ = true;
  }
  return {host_logits_ + row * config_.vocab_size, static_cast<size_t>(config_.vocab_size)};
}

}  // namespace fathom::engine
