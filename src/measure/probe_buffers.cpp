// SPDX-License-Identifier: Apache-2.0
// The arrays of probed ops, the draws of their values, and the names of the ops.
#include "measure/probe_buffers.hpp"

#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/thread_pool.hpp"

namespace fathom::measure {
namespace {

struct Maker {
  const char* name;
  std::unique_ptr<ProbeOp> (*make)(const ProbeInput&, const ProbeDevice&);
};
constexpr Maker kMakers[] = {{"embed", make_probe_embed},
                             {"norm_qkv_rope_append", make_probe_qkv},
                             {"attn", make_probe_attn},
                             {"out_proj_residual", make_probe_out_proj},
                             {"norm_gate_up_act", make_probe_gate_up},
                             {"down_proj_residual", make_probe_down},
                             {"norm_head", make_probe_head},
                             {"sample", make_probe_sample}};

}  // namespace

int64_t ProbeOp::set_bytes() const {
  const Cost c = cost();
  return c.memory_bytes() + c.act_read_bytes + c.act_written_bytes;
}

std::span<const char* const> probe_op_names() {
  static const std::vector<const char*> kNames = [] {
    std::vector<const char*> out;
    for (const Maker& maker : kMakers) out.push_back(maker.name);
    return out;
  }();
  return kNames;
}

std::unique_ptr<ProbeOp> make_probe_op(const std::string& name, const ProbeInput& input,
                                       const ProbeDevice& device) {
  for (const Maker& maker : kMakers) {
    if (name == maker.name) return maker.make(input, device);
  }
  fail(ErrorCode::usage, "no op '{}' to probe: expected one of {}", name,
       fmt::join(probe_op_names(), ", "));
}

std::vector<std::byte> download(const ProbeDevice& device, const std::byte* from, int64_t bytes) {
  constexpr int64_t kPiece = int64_t{16} << 20;
  const DeviceApi& api = device.api();
  const HostBuffer staging = make_host_buffer(api, std::min(bytes, kPiece));
  std::vector<std::byte> out(static_cast<size_t>(bytes));
  for (int64_t at = 0; at < bytes; at += kPiece) {
    const int64_t n = std::min(kPiece, bytes - at);
    api.copy_to_host(staging.get().data, from + at, n, device.stream);
    api.stream_synchronize(device.stream);
    std::memcpy(&out[static_cast<size_t>(at)], staging.get().data, static_cast<size_t>(n));
  }
  return out;
}

ProbeOutputRows::ProbeOutputRows(const ProbeDevice& device, int n_rows, int64_t width,
                                 std::vector<float> initial)
    : device_(device), width_(width), has_initial_(!initial.empty()) {
  const int64_t bytes = n_rows * width * static_cast<int64_t>(sizeof(float));
  bytes_ = poisoned_with_canaries(bytes);
  if (has_initial_) std::memcpy(&bytes_[kCanaryBytes], initial.data(), static_cast<size_t>(bytes));
  buffer_ = make_buffer(device.api(), static_cast<int64_t>(bytes_.size()));
  staging_ = make_host_buffer(device.api(), static_cast<int64_t>(bytes_.size()));
  reset();
}

void ProbeOutputRows::reset() {
  const DeviceApi& api = device_.api();
  api.copy_to_device(buffer_.get().data, bytes_.data(), static_cast<int64_t>(bytes_.size()),
                     device_.stream);
  api.stream_synchronize(device_.stream);
}

ProbeOutput ProbeOutputRows::read(ProbeRows rows) const {
  device_.api().copy_to_host(staging_.get().data, buffer_.get().data, staging_.get().bytes,
                             device_.stream);
  device_.api().stream_synchronize(device_.stream);
  const std::span<const std::byte> now(staging_.get().data, bytes_.size());
  const auto row_bytes = static_cast<size_t>(width_) * sizeof(float);
  const size_t begin = kCanaryBytes + static_cast<size_t>(rows.first) * row_bytes;
  const size_t end = begin + static_cast<size_t>(rows.n) * row_bytes;
  ProbeOutput out;
  out.values.resize(static_cast<size_t>(rows.n * width_));
  std::memcpy(out.values.data(), &now[begin], end - begin);
  out.problem = canary_problem(now);
  const int64_t unwritten = has_initial_ ? 0 : n_unwritten(out.values);
  if (unwritten > 0) out.problem = fmt::format("{} values were not written", unwritten);
  if (!std::equal(now.begin(), now.begin() + static_cast<ptrdiff_t>(begin), bytes_.begin()) ||
      !std::equal(now.begin() + static_cast<ptrdiff_t>(end), now.end(),
                  bytes_.begin() + static_cast<ptrdiff_t>(end))) {
    out.problem = "values beside the rows of the call were written";
  }
  return out;
}

ProbeStep::ProbeStep(const ProbeDevice& device, const ProbeSize& size, int first_slot,
                     int max_pages, std::vector<int32_t> page_table, std::vector<int32_t> tokens)
    : max_pages_(max_pages),
      token_(std::move(tokens)),
      pos_(static_cast<size_t>(size.batch), static_cast<int32_t>(size.depth - 1)),
      slot_(static_cast<size_t>(size.batch)),
      out_row_(static_cast<size_t>(size.batch)),
      page_table_(std::move(page_table)) {
  token_.resize(static_cast<size_t>(size.batch));
  std::iota(slot_.begin(), slot_.end(), first_slot);
  std::iota(out_row_.begin(), out_row_.end(), 0);
  device_token_ = {device, token_};
  device_pos_ = {device, pos_};
  device_slot_ = {device, slot_};
  device_out_row_ = {device, out_row_};
  device_pages_ = {device, page_table_};
}

StepState ProbeStep::state(ProbeRows rows, const int32_t* token, const int32_t* pos,
                           const int32_t* slot, const int32_t* out_row,
                           const int32_t* pages) const {
  StepState s{};
  s.n_rows = s.n_out = rows.n;
  s.max_pages = max_pages_;
  s.token = token + rows.first;
  s.pos = pos + rows.first;
  s.slot = slot + rows.first;
  s.out_row = out_row;
  s.page_table = pages;
  return s;
}

StepState ProbeStep::on_device(ProbeRows rows) const {
  return state(rows, device_token_.get(), device_pos_.get(), device_slot_.get(),
               device_out_row_.get(), device_pages_.get());
}

StepState ProbeStep::on_host(ProbeRows rows) const {
  return state(rows, token_.data(), pos_.data(), slot_.data(), out_row_.data(), page_table_.data());
}

ProbeMatrix::ProbeMatrix(const ProbeDevice& device, DType type, int64_t rows, int64_t cols,
                         uint64_t seed)
    : device_(device),
      file_(quant::random_weights(type, rows, cols, seed)),
      plan_(device.backend.plan_matrix(type, rows, cols, Activations::int8)) {
  const DeviceApi& api = device.api();
  Buffer once = make_buffer(api, plan_.packed_bytes);
  device.backend.pack_matrix(device.pool, plan_, file_.data(), once.get().data);
  packed_ = download(device, once.get().data, plan_.packed_bytes);
  make_sets(1);
}

void ProbeMatrix::make_sets(int n) {
  sets_ = {};
  sets_ = {device_, packed_, n};
}

PackedMatrix ProbeMatrix::at(int set) const {
  PackedMatrix out = plan_;
  out.data = sets_.at(set);
  return out;
}

PackedMatrix ProbeMatrix::in_file() const {
  PackedMatrix out = plan_;
  out.data = file_.data();
  out.packed_type = out.file_type;
  out.packed_bytes = out.file_bytes;
  return out;
}

double draw_scale(int draw) {
  constexpr double kScales[kProbeDraws] = {1, 8, 1e-3};
  return kScales[draw];
}

std::vector<float> draw_activations(int64_t n, int draw, uint64_t seed) {
  std::vector<float> out = quant::random_activations(n, seed + 1000 * static_cast<uint64_t>(draw));
  for (float& x : out) x *= static_cast<float>(draw_scale(draw));
  return out;
}

std::vector<float> draw_norm(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> value(0.5f, 1.5f);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = value(random);
  return out;
}

std::string relative_error_problem(std::span<const float> got, std::span<const float> expected,
                                   double bound) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::pow(double{got[i]} - expected[i], 2);
    norm += std::pow(double{expected[i]}, 2);
  }
  const double relative = std::sqrt(error / norm);
  if (relative <= bound) return "";
  return fmt::format("relative error {:.3g} above {:.3g}", relative, bound);
}

StepShape step_shape(const ProbeSize& size) {
  const int64_t tokens = size.batch * size.depth;
  return {.n_rows = size.batch, .n_out = size.batch, .kv_tokens = tokens, .attended_pairs = tokens};
}

}  // namespace fathom::measure
