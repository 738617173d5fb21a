// SPDX-License-Identifier: Apache-2.0
// The ends of a step: the look-up of embeddings, and the draw of a token from logits, as the
// backend does it.
#include <cmath>

#include "base/error.hpp"
#include "measure/probe_buffers.hpp"
#include "tensor/step_ring.hpp"

namespace fathom::measure {
namespace {

// The output of a row: the embedding, then the angles.
class ProbeEmbed : public ProbeOp {
 public:
  ProbeEmbed(const ProbeInput& in, const ProbeDevice& device)
      : in_(in),
        device_(device),
        file_(quant::random_weights(in.type, in.shape.vocab_size, in.shape.d_model, 3)),
        inv_freq_(frequencies(in.shape.head_dim)),
        table_(device, file_),
        device_freq_(device, inv_freq_),
        x_(device, in.size.batch, in.shape.d_model),
        rope_(device, in.size.batch, in.shape.head_dim) {
    make_sets(1);
  }
  Cost cost() const override {
    return fathom::cost(static_with(table_.get(), device_freq_.get()), step_shape(in_.size));
  }
  int64_t workspace_bytes(const OpTable&) const override { return 0; }
  int64_t width() const override { return in_.shape.d_model + in_.shape.head_dim; }
  // Sets differ in the rows of the table that they look up.
  void make_sets(int n) override {
    steps_.clear();
    for (int set = 0; set < n; ++set) {
      std::mt19937_64 random(100 * static_cast<uint64_t>(in_.draw) + 7);
      std::vector<int32_t> tokens;
      for (int row = 0; row < in_.size.batch; ++row) {
        tokens.push_back(static_cast<int32_t>((random() + static_cast<uint64_t>(set) * 1009) %
                                              static_cast<uint64_t>(in_.shape.vocab_size)));
      }
      steps_.push_back(std::make_unique<ProbeStep>(
          device_, in_.size, 0, 1, std::vector<int32_t>(static_cast<size_t>(in_.size.batch)),
          tokens));
    }
  }
  void run(ExecContext& ctx, const OpTable& ops, int set, ProbeRows rows) override {
    const StepState step = steps_[static_cast<size_t>(set)]->on_device(rows);
    ops.embed(ctx, {static_with(table_.get(), device_freq_.get()), &step,
                    x_.get() + rows.first * x_.width(), rope_.get() + rows.first * rope_.width()});
  }
  void reset() override {
    x_.reset();
    rope_.reset();
  }
  ProbeOutput output(ProbeRows rows) override {
    const ProbeOutput x = x_.read(rows), rope = rope_.read(rows);
    ProbeOutput out{{}, x.problem.empty() ? rope.problem : x.problem};
    for (int row = 0; row < rows.n; ++row) {
      const auto add = [&](const ProbeOutput& from, int64_t n) {
        out.values.insert(out.values.end(), from.values.begin() + row * n,
                          from.values.begin() + (row + 1) * n);
      };
      add(x, x_.width());
      add(rope, rope_.width());
    }
    return out;
  }
  std::string tolerance_problem(std::span<const float> output) override {
    std::vector<float> x(static_cast<size_t>(in_.size.batch * x_.width())),
        rope(static_cast<size_t>(in_.size.batch * rope_.width())), expected;
    ExecContext ctx;
    const StepState step = steps_.front()->on_host({0, in_.size.batch});
    reference_ops().embed(
        ctx, {static_with(file_.data(), inv_freq_.data()), &step, x.data(), rope.data()});
    for (int row = 0; row < in_.size.batch; ++row) {
      expected.insert(expected.end(), x.begin() + row * x_.width(),
                      x.begin() + (row + 1) * x_.width());
      expected.insert(expected.end(), rope.begin() + row * rope_.width(),
                      rope.begin() + (row + 1) * rope_.width());
    }
    return relative_error_problem(output, expected, 1e-5);
  }

 private:
  static std::vector<double> frequencies(int rope_dim) {
    std::vector<double> out;
    for (int i = 0; i < rope_dim / 2; ++i) out.push_back(std::pow(1e4, -2.0 * i / rope_dim));
    return out;
  }
  EmbedArgs::Static static_with(const std::byte* table, const double* inv_freq) const {
    return {.table = table,
            .table_type = in_.type,
            .vocab_size = in_.shape.vocab_size,
            .d_model = in_.shape.d_model,
            .inv_freq = inv_freq,
            .rope_dim = in_.shape.head_dim,
            .rope_scale = 1};
  }

  const ProbeInput in_;
  const ProbeDevice device_;
  std::vector<std::byte> file_;
  std::vector<double> inv_freq_;
  ProbeArray<std::byte> table_;
  ProbeArray<double> device_freq_;
  std::vector<std::unique_ptr<ProbeStep>> steps_;
  ProbeOutputRows x_, rope_;
};

// A sampled token of each row, by the op `draw` where the backend has it and else by `sample`. The
// output of a row is the token.
class ProbeSample : public ProbeOp {
 public:
  ProbeSample(const ProbeInput& in, const ProbeDevice& device)
      : in_(in),
        device_(device),
        logits_(draw_activations(in.size.batch * in.shape.vocab_size, 0, 11 + in.draw)),
        history_(device, std::vector<int32_t>(static_cast<size_t>(in.size.batch))),
        n_steps_(device, std::vector<int64_t>{1}),
        newest_(device, std::vector<int32_t>(static_cast<size_t>(in.size.batch), -1)),
        drawn_(make_host_buffer(device.api(),
                                kStepRing * in.size.batch * static_cast<int64_t>(sizeof(Drawn)))),
        tokens_(static_cast<size_t>(in.size.batch), -1) {
    for (int row = 0; row < in.size.batch; ++row) {
      DrawRequest r;
      r.seed = 42;
      r.position = in.size.depth + row;
      r.slot = row;
      r.temperature = params().temperature;
      r.top_k = params().top_k;
      r.top_p = params().top_p;
      r.is_wanted = 1;
      requests_host_.push_back(r);
    }
    requests_ = {device, requests_host_};
    make_sets(1);
  }
  Cost cost() const override { return fathom::cost(static_sample(), in_.size.batch); }
  int64_t workspace_bytes(const OpTable& ops) const override {
    const OpWorkspaces& w = ops.workspace_bytes;  // as an engine, which takes the larger
    return std::max(w.draw ? w.draw(static_draw()) : 0, w.sample ? w.sample(static_sample()) : 0);
  }
  int64_t width() const override { return 1; }
  void make_sets(int n) override {
    device_logits_ = {};
    device_logits_ = {device_, logits_, n};
  }
  void run(ExecContext& ctx, const OpTable& ops, int set, ProbeRows rows) override {
    const float* logits = device_logits_.at(set) + rows.first * in_.shape.vocab_size;
    if (ops.draw) {
      ops.draw(ctx, {.s = static_draw(),
                     .n_rows = rows.n,
                     .requests = requests_.get() + rows.first,
                     .logits = logits,
                     .history = history_.get(),
                     .n_steps = n_steps_.get(),
                     .newest = newest_.get(),
                     .drawn = reinterpret_cast<Drawn*>(drawn_.get().data)});
      return;
    }
    for (int row = 0; row < rows.n; ++row)
      sample_row(ctx, ops, logits + row * in_.shape.vocab_size, rows.first + row);
  }
  void reset() override {
    std::ranges::fill(tokens_, -1);
    reset_drawn();
  }
  ProbeOutput output(ProbeRows rows) override {
    device_.api().stream_synchronize(device_.stream);
    ProbeOutput out;
    for (int row = 0; row < rows.n; ++row) {
      const int32_t token = device_.backend.ops->draw
                                ? all_drawn()[row].token
                                : tokens_[static_cast<size_t>(rows.first + row)];
      if (token < 0) out.problem = "a token was not written";
      out.values.push_back(static_cast<float>(token));
    }
    return out;
  }
  std::string tolerance_problem(std::span<const float> output) override {
    ExecContext ctx;
    std::vector<std::byte> scratch(
        static_cast<size_t>(std::max<int64_t>(64, workspace_bytes_cpu(static_sample()))));
    ctx.workspace = {scratch.data(), static_cast<int64_t>(scratch.size())};
    for (int row = 0; row < in_.size.batch; ++row) {
      sample_row(ctx, reference_ops(), logits_.data() + row * in_.shape.vocab_size, row);
      const auto expected = static_cast<float>(tokens_[static_cast<size_t>(row)]);
      if (output[static_cast<size_t>(row)] != expected)
        return fmt::format("row {} drew {}, the reference {}", row,
                           output[static_cast<size_t>(row)], expected);
    }
    return "";
  }

 private:
  static SamplerParams params() {
    SamplerParams p;
    p.temperature = 0.8f;
    p.top_k = 40;
    p.top_p = 0.95f;
    p.seed = 42;
    return p;
  }
  // Steps count from 1, and the place of step n is (n - 1) % kStepRing.
  Drawn* all_drawn() const { return reinterpret_cast<Drawn*>(drawn_.get().data); }
  void reset_drawn() { std::fill_n(all_drawn(), kStepRing * in_.size.batch, Drawn{}); }
  void sample_row(ExecContext& ctx, const OpTable& ops, const float* logits, int row) {
    const SamplerParams p = params();
    ops.sample(ctx, {.s = static_sample(),
                     .params = &p,
                     .logit_bias = {},
                     .history = {},
                     .position = in_.size.depth + row,
                     .logits = logits,
                     .token = &tokens_[static_cast<size_t>(row)]});
  }
  SampleArgs::Static static_sample() const { return {in_.shape.vocab_size}; }
  DrawArgs::Static static_draw() const { return {in_.shape.vocab_size, 1, in_.size.batch}; }

  const ProbeInput in_;
  const ProbeDevice device_;
  std::vector<float> logits_;
  std::vector<DrawRequest> requests_host_;
  ProbeArray<DrawRequest> requests_;
  ProbeArray<int32_t> history_;
  ProbeArray<int64_t> n_steps_;
  ProbeArray<int32_t> newest_;
  ProbeArray<float> device_logits_;
  HostBuffer drawn_;
  std::vector<int32_t> tokens_;
};

}  // namespace

std::unique_ptr<ProbeOp> make_probe_embed(const ProbeInput& input, const ProbeDevice& device) {
  return std::make_unique<ProbeEmbed>(input, device);
}
std::unique_ptr<ProbeOp> make_probe_sample(const ProbeInput& input, const ProbeDevice& device) {
  return std::make_unique<ProbeSample>(input, device);
}

}  // namespace fathom::measure
