// SPDX-License-Identifier: Apache-2.0
// attn of a decode step, over caches as its own tests make them: of every sequence its own tokens,
// NaN behind their ends, pages in disorder. Of a draw the sequences differ, and the queries'
// magnitude.
#include <cmath>

#include "base/error.hpp"
#include "kernels/attn/attn_cases.hpp"
#include "measure/probe_buffers.hpp"

namespace fathom::measure {
namespace {

constexpr int kLeastContext = 4096;  // what an engine opens with

class ProbeAttn : public ProbeOp {
 public:
  ProbeAttn(const ProbeInput& in, const ProbeDevice& device)
      : device_(device),
        size_(in.size),
        draw_(in.draw),
        problem_({in.shape.n_heads / in.shape.n_kv_heads, in.shape.n_kv_heads, in.shape.head_dim},
                 in.cache, rows_of(in), options_of(in)),
        step_(device, in.size, in.draw * in.size.batch, problem_.step.max_pages,
              problem_.page_table, {}),
        q_(device, problem_.q),
        out_(device, in.size.batch, problem_.width()) {
    make_sets(1);
  }

  Cost cost() const override { return fathom::cost(problem_.s, step_shape(size_)); }
  int64_t width() const override { return out_.width(); }
  int64_t workspace_bytes(const OpTable& ops) const override {
    return ops.workspace_bytes.attn ? ops.workspace_bytes.attn(static_of(0)) : 0;
  }
  void make_sets(int n) override {
    k_ = {};
    v_ = {};
    k_ = {device_, problem_.k, n};
    v_ = {device_, problem_.v, n};
  }
  void run(ExecContext& ctx, const OpTable& ops, int set, ProbeRows rows) override {
    const StepState step = step_.on_device(rows);
    const int64_t at = rows.first * width();
    ops.attn(ctx, {static_of(set), &step, q_.get() + at, out_.get() + at});
  }
  void reset() override { out_.reset(); }
  ProbeOutput output(ProbeRows rows) override { return out_.read(rows); }

  // The rule of the op's own tests: at most twice the largest error of a plain f32 implementation,
  // and 1.5 times its mean; four times and thrice for large queries, where ties decide.
  std::string tolerance_problem(std::span<const float> output) override {
    if (expected_.empty()) {
      expected_ = attn_cases::exact(problem_);
      naive_ = attn_cases::errors(attn_cases::naive(problem_), expected_);
    }
    const attn_cases::Errors ours =
        attn_cases::errors(std::vector<float>(output.begin(), output.end()), expected_);
    const double factor = draw_scale(draw_) > 1 ? 4 : 2;
    const bool good = ours.max <= factor * naive_.max + 1e-6 * ours.scale &&
                      ours.mean <= 0.75 * factor * naive_.mean + 2e-7 * ours.scale &&
                      ours.cosine_distance < 5e-6;
    if (good) return "";
    return fmt::format("max error {:.3g}, a plain one's is {:.3g}; mean {:.3g}, {:.3g}", ours.max,
                       naive_.max, ours.mean, naive_.mean);
  }

 private:
  static std::vector<attn_cases::Row> rows_of(const ProbeInput& in) {
    std::vector<attn_cases::Row> out;
    for (int i = 0; i < in.size.batch; ++i) {
      out.push_back({static_cast<int32_t>(in.size.depth - 1), in.draw * in.size.batch + i});
    }
    return out;
  }
  static attn_cases::Options options_of(const ProbeInput& in) {
    int64_t n_ctx = std::max<int64_t>(kLeastContext, (in.size.depth + 15) / 16 * 16);
    if (in.n_ctx > 0) n_ctx = std::max(in.n_ctx, in.size.depth);
    return {.page_tokens = in.page_tokens,
            .n_ctx = static_cast<int>(n_ctx),
            .sigma = 2 * draw_scale(in.draw),
            .max_rows = static_cast<int>(in.max_rows > 0 ? in.max_rows : in.size.batch)};
  }
  AttnArgs::Static static_of(int set) const {
    AttnArgs::Static s = problem_.s;
    s.kv.k = k_.at(set);
    s.kv.v = v_.at(set);
    return s;
  }

  ProbeDevice device_;
  ProbeSize size_;
  int draw_;
  attn_cases::Problem problem_;
  ProbeStep step_;
  ProbeArray<float> q_;
  ProbeOutputRows out_;
  ProbeArray<std::byte> k_, v_;
  std::vector<float> expected_;
  attn_cases::Errors naive_;
};

}  // namespace

std::unique_ptr<ProbeOp> make_probe_attn(const ProbeInput& input, const ProbeDevice& device) {
  return std::make_unique<ProbeAttn>(input, device);
}

}  // namespace fathom::measure
