// SPDX-License-Identifier: Apache-2.0
// The layout of a step's arrays in one allocation, measured and then made by the same code, and the
// filling of the StepState.
#include "engine/step_runner.hpp"

#include "base/checked.hpp"
#include "base/error.hpp"
#include "model/decode_step.hpp"

namespace fathom::engine {
namespace {

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

struct Arrays {
  StepBuffers buffers;
  int32_t *token, *pos, *slot, *out_row;
  Workspace workspace;
};

Arrays lay_out(const StepRunner::Config& c, Layout& layout) {
  const int64_t rows = c.limits.max_rows;
  Arrays a{};
  a.buffers.x = layout.take<float>(rows * c.d_model);
  a.buffers.rope = layout.take<float>(rows * c.rope_dim);
  a.buffers.q = layout.take<float>(rows * c.q_dim);
  a.buffers.attn = layout.take<float>(rows * c.q_dim);
  a.buffers.h = layout.take<float>(rows * c.d_ff);
  a.buffers.logits = layout.take<float>(c.limits.max_out * c.vocab_size);
  a.token = layout.take<int32_t>(rows);
  a.pos = layout.take<int32_t>(rows);
  a.slot = layout.take<int32_t>(rows);
  a.out_row = layout.take<int32_t>(rows);
  a.workspace = {layout.take<std::byte>(c.workspace_bytes), c.workspace_bytes};
  return a;
}

}  // namespace

int64_t StepRunner::planned_bytes(const Config& config) {
  Layout layout(nullptr);
  lay_out(config, layout);
  return layout.bytes();
}

StepRunner::StepRunner(const Config& config)
    : config_(config),
      memory_(make_buffer(*config.backend->device, planned_bytes(config))),
      host_(3 * config.limits.max_rows) {
  Layout layout(memory_.get().data);
  const Arrays arrays = lay_out(config, layout);
  buffers_ = arrays.buffers;
  token_ = arrays.token;
  pos_ = arrays.pos;
  slot_ = arrays.slot;
  out_row_ = arrays.out_row;
  exec_.pool = config.pool;
  exec_.cpu = config.cpu;
  exec_.workspace = arrays.workspace;
}

void StepRunner::set_out_rows(std::span<const int32_t> out_rows) {
  FATHOM_CHECK(static_cast<int64_t>(out_rows.size()) <= config_.limits.max_out,
               "more rows want logits than the plan allows");
  config_.backend->device->copy_to_device(
      out_row_, out_rows.data(), static_cast<int64_t>(out_rows.size_bytes()), exec_.stream.handle);
  state_.n_out = static_cast<int32_t>(out_rows.size());
  shape_.n_out = state_.n_out;
}

void StepRunner::run(const StepPlan& plan, std::span<const StepRow> rows,
                     std::span<const int32_t> out_rows, const int32_t* page_table,
                     int32_t max_pages, const std::atomic<bool>* cancel) {
  const int64_t n_rows = static_cast<int64_t>(rows.size());
  FATHOM_CHECK(n_rows >= 1 && n_rows <= config_.limits.max_rows, "a step has 1 to max_rows rows");
  int32_t* host_pos = host_.data() + n_rows;
  int32_t* host_slot = host_pos + n_rows;
  shape_ = {n_rows, 0, 0, 0};
  for (int64_t i = 0; i < n_rows; ++i) {
    host_[i] = rows[i].token;
    host_pos[i] = rows[i].pos;
    host_slot[i] = rows[i].slot;
    shape_.attended_pairs += rows[i].pos + 1;
    const bool last_of_slot = i + 1 == n_rows || rows[i + 1].slot != rows[i].slot;
    if (last_of_slot) shape_.kv_tokens += rows[i].pos + 1;
  }
  const DeviceApi& device = *config_.backend->device;
  const int64_t bytes = n_rows * static_cast<int64_t>(sizeof(int32_t));
  device.copy_to_device(token_, host_.data(), bytes, exec_.stream.handle);
  device.copy_to_device(pos_, host_pos, bytes, exec_.stream.handle);
  device.copy_to_device(slot_, host_slot, bytes, exec_.stream.handle);
  state_ = {.n_rows = static_cast<int32_t>(n_rows),
            .n_out = 0,
            .max_pages = max_pages,
            .token = token_,
            .pos = pos_,
            .slot = slot_,
            .out_row = out_row_,
            .page_table = page_table};
  set_out_rows(out_rows);
  ++epoch_;
  decode_step({exec_, *config_.backend->ops, plan, buffers_, state_, shape_, cancel});
}

void StepRunner::run_head(const StepPlan& plan, std::span<const int32_t> out_rows,
                          const std::atomic<bool>* cancel) {
  set_out_rows(out_rows);
  head_step({exec_, *config_.backend->ops, plan, buffers_, state_, shape_, cancel});
}

void StepRunner::fill_cache(const StepPlan& plan, const int32_t* pages, int64_t begin, int64_t end,
                            uint64_t seed) {
  for (int layer = 0; layer < static_cast<int>(plan.layers.size()); ++layer) {
    const KvFillArgs args{{plan.layers[layer].attn.kv, layer}, pages, begin, end, seed};
    const OpScope scope(exec_.sink, {"kv_fill", layer}, exec_.sink ? cost(args) : Cost{});
    config_.backend->ops->kv_fill(exec_, args);
  }
}

int32_t StepRunner::sample(const StepPlan& plan, const SampleArgs& args) {
  const OpScope scope(exec_.sink, {"sample", -1}, exec_.sink ? cost(plan.sample, 1) : Cost{});
  config_.backend->ops->sample(exec_, args);
  return *args.token;
}

std::span<const float> StepRunner::logits(int64_t row) const {
  return {buffers_.logits + row * config_.vocab_size, static_cast<size_t>(config_.vocab_size)};
}

}  // namespace fathom::engine
