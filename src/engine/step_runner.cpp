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
  DrawRequest* requests;
  int64_t* n_steps;
  int32_t *newest, *history;
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
  if (c.backend->device->shares_host_memory) return a;
  a.counters = {layout.take<std::byte>(kCounterBytes), kCounterBytes};
  a.requests = layout.take<DrawRequest>(c.limits.max_draws());
  a.n_steps = layout.take<int64_t>(1);
  a.newest = layout.take<int32_t>(c.limits.n_slots);
  a.history = layout.take<int32_t>(c.limits.n_slots * c.limits.n_ctx);
  return a;
}

int64_t place_bytes(const StepLimits& limits) {
  return BeginStepArgs::requests_offset(limits.max_rows) +
         limits.max_draws() * static_cast<int64_t>(sizeof(DrawRequest));
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
  FATHOM_CHECK(config.backend->ops->begin_step && config.backend->ops->draw,
               "a device with memory of its own begins steps and draws");
  exec_.counters = arrays.counters;
  requests_ = arrays.requests;
  n_steps_ = arrays.n_steps;
  newest_ = arrays.newest;
  history_ = arrays.history;
  const auto clear = [&](void* data, int64_t bytes) {
    const std::vector<std::byte> zeros(static_cast<size_t>(bytes));
    device_.copy_to_device(data, zeros.data(), bytes, config.stream);
  };
  clear(exec_.counters.data, kCounterBytes);
  clear(n_steps_, sizeof *n_steps_);
  clear(newest_, config.limits.n_slots * static_cast<int64_t>(sizeof *newest_));
  for (Event& done : done_) done = make_event(device_);
  const auto lay_out_host = [&](std::byte* base) {
    Layout host(base);
    inbox_ = host.take<std::byte>(kStepRing * place_bytes(config.limits));
    drawn_ = host.take<Drawn>(kStepRing * config.limits.max_draws());
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

void StepRunner::set_capture_sink(OpScopeSink* sink) {
  synchronize();
  graph_.forget();
  capture_sink_ = sink;
}

void StepRunner::synchronize() {
  if (!submitted_) return;
  submitted_ = false;
  device_.stream_synchronize(exec_.stream.handle);
}

// What the host says to the step that `epoch` counts.
std::byte* StepRunner::inbox_place(uint64_t epoch) const {
  return inbox_ + static_cast<int64_t>((epoch - 1) % kStepRing) * place_bytes(config_.limits);
}

// A decode step of a device with graphs; all of its rows have logits, or none.
bool StepRunner::replayable(std::span<const StepRow> rows, size_t n_out) const {
  if (!config_.backend->has_graphs || !graphs_ || exec_.sink) return false;
  if (n_out != 0 && n_out != rows.size()) return false;
  const auto same_slot = [](const StepRow& a, const StepRow& b) { return a.slot == b.slot; };
  return std::adjacent_find(rows.begin(), rows.end(), same_slot) == rows.end();
}

// Fills the arrays of the StepState. Rows behind the given ones are padding; a padded step has
// logits of every row, as far as there is room for them.
void StepRunner::stage(std::span<const StepRow> rows, std::span<const int32_t> out_rows,
                       int64_t n_padded) {
  if (!device_.shares_host_memory) {
    device_.event_synchronize(done_[epoch_ % kStepRing].get());  // who used the place before
    host_arrays_ = reinterpret_cast<int32_t*>(inbox_place(epoch_ + 1));
  }
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
  int64_t n_out = static_cast<int64_t>(out_rows.size());
  if (n_out > 0 && n_padded > n_rows) n_out = std::min(n_padded, config_.limits.max_out);
  state_.n_rows = static_cast<int32_t>(n_padded);
  state_.n_out = static_cast<int32_t>(n_out);
  state_.token = arrays_;
  state_.pos = arrays_ + n_padded;
  state_.slot = arrays_ + 2 * n_padded;
  state_.out_row = arrays_ + 3 * n_padded;
}

// Behind the step's arrays. A step that draws at all looks at every row of logits.
void StepRunner::stage_draws(std::span<const DrawRequest> draws) {
  n_draws_ = draws.empty() ? 0 : std::min<int64_t>(state_.n_out, config_.limits.max_draws());
  FATHOM_CHECK(static_cast<int64_t>(draws.size()) <= n_draws_, "more draws than the plan allows");
  if (n_draws_ == 0) return;
  auto* const out = reinterpret_cast<DrawRequest*>(
      inbox_place(epoch_ + 1) + BeginStepArgs::requests_offset(config_.limits.max_rows));
  std::copy(draws.begin(), draws.end(), out);
  std::fill(out + draws.size(), out + n_draws_, DrawRequest{});
}

DrawArgs StepRunner::draw_args(const StepPlan& plan, int64_t row, int64_t n_rows) const {
  return {.s = plan.draw,
          .n_rows = static_cast<int32_t>(n_rows),
          .requests = requests_ + row,
          .logits = buffers_.logits + row * config_.vocab_size,
          .history = history_,
          .n_steps = n_steps_,
          .newest = newest_,
          .drawn = drawn_ + row};
}

StepContext StepRunner::context(const StepPlan& plan, const std::atomic<bool>* cancel) {
  return {.exec = exec_,
          .device = device_,
          .ops = *config_.backend->ops,
          .plan = plan,
          .buffers = buffers_,
          .state = state_,
          .shape = shape_,
          .cancel = cancel,
          .sink = exec_.sink};
}

// Whatever becomes of the step, its place is in use until the stream has come this far.
void StepRunner::submit(const StepContext& step, bool replays) {
  struct Record {
    const StepRunner& runner;
    ~Record() {
      if (runner.device_.shares_host_memory) return;
      try {
        runner.device_.event_record(runner.done_[(runner.epoch_ - 1) % kStepRing].get(),
                                    runner.exec_.stream.handle);
      } catch (const Error&) {
        // The device has failed; what waits for the stream says so.
      }
    }
  } const record{*this};
  submitted_ = true;
  logits_on_host_ = device_.shares_host_memory;
  if (replays) {
    graph_.run(step, capture_sink_);
  } else {
    decode_step(step);
  }
}

void StepRunner::run(const StepPlan& plan, std::span<const StepRow> rows,
                     std::span<const int32_t> out_rows, const int32_t* page_table,
                     int32_t max_pages, std::span<const DrawRequest> draws,
                     const std::atomic<bool>* cancel) {
  stop_if_cancelled(cancel);
  const int64_t n_rows = static_cast<int64_t>(rows.size());
  FATHOM_CHECK(n_rows >= 1 && n_rows <= config_.limits.max_rows, "a step has 1 to max_rows rows");
  FATHOM_CHECK(static_cast<int64_t>(out_rows.size()) <= std::min(n_rows, config_.limits.max_out),
               "more rows want logits than the plan allows");
  FATHOM_CHECK(draws.empty() || (draws_in_steps() && draws.size() == out_rows.size()),
               "what is drawn is said of each row of logits");
  const bool replays = replayable(rows, out_rows.size());
  stage(rows, out_rows, replays ? StepGraph::bucket(n_rows, config_.limits.max_rows) : n_rows);
  stage_draws(draws);
  state_.page_table = page_table;
  state_.max_pages = max_pages;
  shape_ = shape_of(rows, out_rows.size());
  StepContext step = context(plan, cancel);
  const BeginStepArgs begin{.s = {.n_ctx = config_.limits.n_ctx,
                                  .place_bytes = place_bytes(config_.limits),
                                  .max_rows = config_.limits.max_rows,
                                  .request_bytes = sizeof(DrawRequest)},
                            .n_rows = state_.n_rows,
                            .n_requests = static_cast<int32_t>(n_draws_),
                            .inbox = inbox_,
                            .n_steps = n_steps_,
                            .rows = arrays_,
                            .requests = reinterpret_cast<std::byte*>(requests_),
                            .newest = newest_,
                            .history = history_};
  if (!device_.shares_host_memory) step.begin = &begin;
  const DrawArgs draw = draw_args(plan, 0, n_draws_);
  if (n_draws_ > 0) step.draw = &draw;
  ++epoch_;
  submit(step, replays);
}

void StepRunner::run_head(const StepPlan& plan, std::span<const int32_t> out_rows,
                          const std::atomic<bool>* cancel) {
  const int64_t n_out = static_cast<int64_t>(out_rows.size());
  FATHOM_CHECK(n_out <= std::min<int64_t>(state_.n_rows, config_.limits.max_out),
               "more rows want logits than the plan allows");
  synchronize();  // the step has fetched its arrays, and a copy before this one its own
  const int64_t begin = state_.out_row - arrays_;
  std::copy(out_rows.begin(), out_rows.end(), host_arrays_ + begin);
  if (!device_.shares_host_memory) {
    device_.copy_to_device(arrays_ + begin, host_arrays_ + begin,
                           n_out * static_cast<int64_t>(sizeof(int32_t)), exec_.stream.handle);
  }
  submitted_ = true;
  logits_on_host_ = device_.shares_host_memory;
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

void StepRunner::draw(const StepPlan& plan, int64_t row, const DrawRequest& request) {
  FATHOM_CHECK(row < config_.limits.max_draws(), "a row from which nothing is drawn");
  synchronize();
  auto* const place = reinterpret_cast<DrawRequest*>(
      inbox_place(epoch_) + BeginStepArgs::requests_offset(config_.limits.max_rows));
  *place = request;
  device_.copy_to_device(requests_ + row, place, sizeof request, exec_.stream.handle);
  StepContext step = context(plan, nullptr);
  const DrawArgs args = draw_args(plan, row, 1);
  step.draw = &args;
  draw_step(step);
  submitted_ = true;
  synchronize();
}

const Drawn& StepRunner::drawn(uint64_t epoch, int64_t row) {
  FATHOM_CHECK(epoch <= epoch_ && epoch_ - epoch < kStepRing, "a step that is long gone");
  const uint64_t place = (epoch - 1) % kStepRing;
  device_.event_synchronize(done_[place].get());
  return drawn_[static_cast<int64_t>(place) * config_.limits.max_draws() + row];
}

void StepRunner::write_history(int slot, int64_t begin, std::span<const int32_t> tokens) {
  if (device_.shares_host_memory) return;
  submitted_ = true;
  device_.copy_to_device(history_ + slot * config_.limits.n_ctx + begin, tokens.data(),
                         static_cast<int64_t>(tokens.size_bytes()), exec_.stream.handle);
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
