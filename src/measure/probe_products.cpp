// SPDX-License-Identifier: Apache-2.0
// The ops around a product with weights: random codes under valid scales, activations with heavy
// tails. The bound on their error is one that a wrong kernel does not meet; how near they must be
// is for the ops' own tests, which know how activations are rounded.
#include <cmath>
#include <numeric>

#include "measure/probe_buffers.hpp"

namespace fathom::measure {
namespace {

constexpr float kRmsEps = 1e-5f;

// Of int8 activations with heavy tails, or of halves.
double error_bound(const PackedMatrix& w) {
  const bool is_float =
      w.file_type == DType::f32 || w.file_type == DType::f16 || w.file_type == DType::bf16;
  return is_float ? 0.02 : 0.06;
}

std::vector<int32_t> page_of_each(int n_sequences) {
  std::vector<int32_t> out(static_cast<size_t>(n_sequences));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// What these ops share; `Args` are the op's.
template <class Args>
class ProbeProduct : public ProbeOp {
 public:
  ProbeProduct(const ProbeInput& in, const ProbeDevice& device, int64_t in_width, int64_t out_width,
               bool adds)
      : in_(in),
        device_(device),
        values_(draw_activations(in.size.batch * in_width, in.draw, 5)),
        initial_(adds ? draw_activations(in.size.batch * out_width, in.draw, 6)
                      : std::vector<float>()),
        in_width_(in_width),
        step_(device, in.size, 0, 1, page_of_each(in.size.batch), {}),
        input_(device, values_),
        out_(device, in.size.batch, out_width, initial_) {}

  Cost cost() const override { return fathom::cost(static_of(0), step_shape(in_.size)); }
  int64_t width() const override { return out_.width(); }
  int64_t workspace_bytes(const OpTable& ops) const override {
    const auto bytes = workspace_entry(ops);
    return bytes ? bytes(static_of(0)) : 0;
  }
  void run(ExecContext& ctx, const OpTable& ops, int set, ProbeRows rows) override {
    const StepState step = step_.on_device(rows);
    entry(ops)(ctx, args(static_of(set), &step, input_.get() + rows.first * in_width_,
                         out_.get() + rows.first * width()));
  }
  void reset() override { out_.reset(); }
  ProbeOutput output(ProbeRows rows) override { return out_.read(rows); }
  std::string tolerance_problem(std::span<const float> output) override {
    if (expected_.empty()) {
      expected_ = initial_;
      expected_.resize(output.size());
      ExecContext ctx;
      ctx.pool = &device_.pool;
      const StepState step = step_.on_host({0, in_.size.batch});
      entry(reference_ops())(ctx,
                             args(reference_static(), &step, values_.data(), expected_.data()));
    }
    return relative_error_problem(output, expected_, error_bound(reference_matrix()));
  }

 protected:
  using Static = typename Args::Static;
  using Entry = void (*)(ExecContext&, const Args&);
  using WorkspaceEntry = int64_t (*)(const Static&);
  virtual Entry entry(const OpTable& ops) const = 0;
  virtual WorkspaceEntry workspace_entry(const OpTable& ops) const = 0;
  virtual Static static_of(int set) const = 0;  // of the device
  virtual Static reference_static() const = 0;
  virtual PackedMatrix reference_matrix() const = 0;
  virtual Args args(const Static& s, const StepState* step, const float* in, float* out) const = 0;

  const ProbeInput in_;
  const ProbeDevice device_;

 private:
  std::vector<float> values_, initial_, expected_;
  int64_t in_width_;
  ProbeStep step_;
  ProbeArray<float> input_;
  ProbeOutputRows out_;
};

// x += W a
template <class Args>
class ProbeResidual : public ProbeProduct<Args> {
  using Base = ProbeProduct<Args>;

 public:
  ProbeResidual(const ProbeInput& in, const ProbeDevice& device, int64_t cols)
      : Base(in, device, cols, in.shape.d_model, true),
        w_(device, in.type, in.shape.d_model, cols, 3) {}
  void make_sets(int n) override { w_.make_sets(n); }

 protected:
  typename Base::Static static_of(int set) const override { return {w_.at(set), nullptr, rows()}; }
  typename Base::Static reference_static() const override {
    return {w_.in_file(), nullptr, rows()};
  }
  PackedMatrix reference_matrix() const override { return w_.in_file(); }
  Args args(const typename Base::Static& s, const StepState* step, const float* in,
            float* out) const override {
    return {s, step, in, out};
  }

 private:
  int64_t rows() const { return this->in_.size.batch; }
  ProbeMatrix w_;
};

class ProbeOutProj : public ProbeResidual<OutProjResidualArgs> {
 public:
  ProbeOutProj(const ProbeInput& in, const ProbeDevice& device)
      : ProbeResidual(in, device, in.shape.q_dim()) {}

 protected:
  Entry entry(const OpTable& ops) const override { return ops.out_proj_residual; }
  WorkspaceEntry workspace_entry(const OpTable& ops) const override {
    return ops.workspace_bytes.out_proj_residual;
  }
};

class ProbeDown : public ProbeResidual<DownProjResidualArgs> {
 public:
  ProbeDown(const ProbeInput& in, const ProbeDevice& device)
      : ProbeResidual(in, device, in.shape.d_ff) {}

 protected:
  Entry entry(const OpTable& ops) const override { return ops.down_proj_residual; }
  WorkspaceEntry workspace_entry(const OpTable& ops) const override {
    return ops.workspace_bytes.down_proj_residual;
  }
};

class ProbeGateUp : public ProbeProduct<NormGateUpActArgs> {
 public:
  ProbeGateUp(const ProbeInput& in, const ProbeDevice& device)
      : ProbeProduct(in, device, in.shape.d_model, in.shape.d_ff, false),
        gate_(device, in.type, in.shape.d_ff, in.shape.d_model, 3),
        up_(device, in.type, in.shape.d_ff, in.shape.d_model, 4),
        norm_(draw_norm(in.shape.d_model, 7)),
        device_norm_(device, norm_) {}
  void make_sets(int n) override {
    gate_.make_sets(n);
    up_.make_sets(n);
  }

 protected:
  Entry entry(const OpTable& ops) const override { return ops.norm_gate_up_act; }
  WorkspaceEntry workspace_entry(const OpTable& ops) const override {
    return ops.workspace_bytes.norm_gate_up_act;
  }
  Static static_with(const float* norm, const PackedMatrix& gate, const PackedMatrix& up) const {
    return {.d_model = in_.shape.d_model,
            .d_ff = in_.shape.d_ff,
            .rms_eps = kRmsEps,
            .norm = norm,
            .gate = gate,
            .up = up,
            .max_rows = in_.size.batch};
  }
  Static static_of(int set) const override {
    return static_with(device_norm_.get(), gate_.at(set), up_.at(set));
  }
  Static reference_static() const override {
    return static_with(norm_.data(), gate_.in_file(), up_.in_file());
  }
  PackedMatrix reference_matrix() const override { return gate_.in_file(); }
  NormGateUpActArgs args(const Static& s, const StepState* step, const float* in,
                         float* out) const override {
    return {s, step, in, out};
  }

 private:
  ProbeMatrix gate_, up_;
  std::vector<float> norm_;
  ProbeArray<float> device_norm_;
};

class ProbeHead : public ProbeProduct<NormHeadArgs> {
 public:
  ProbeHead(const ProbeInput& in, const ProbeDevice& device)
      : ProbeProduct(in, device, in.shape.d_model, in.shape.vocab_size, false),
        head_(device, in.type, in.shape.vocab_size, in.shape.d_model, 3),
        norm_(draw_norm(in.shape.d_model, 7)),
        device_norm_(device, norm_) {}
  void make_sets(int n) override { head_.make_sets(n); }

 protected:
  Entry entry(const OpTable& ops) const override { return ops.norm_head; }
  WorkspaceEntry workspace_entry(const OpTable& ops) const override {
    return ops.workspace_bytes.norm_head;
  }
  Static static_with(const float* norm, const PackedMatrix& head) const {
    return {.d_model = in_.shape.d_model,
            .vocab_size = in_.shape.vocab_size,
            .rms_eps = kRmsEps,
            .norm = norm,
            .head = head,
            .max_out = in_.size.batch};
  }
  Static static_of(int set) const override {
    return static_with(device_norm_.get(), head_.at(set));
  }
  Static reference_static() const override { return static_with(norm_.data(), head_.in_file()); }
  PackedMatrix reference_matrix() const override { return head_.in_file(); }
  NormHeadArgs args(const Static& s, const StepState* step, const float* in,
                    float* out) const override {
    return {s, step, in, out};
  }

 private:
  ProbeMatrix head_;
  std::vector<float> norm_;
  ProbeArray<float> device_norm_;
};

// The output is q; keys and values go to a page of each sequence that nobody compares.
class ProbeQkv : public ProbeProduct<NormQkvRopeAppendArgs> {
 public:
  ProbeQkv(const ProbeInput& in, const ProbeDevice& device)
      : ProbeProduct(in, device, in.shape.d_model, in.shape.q_dim(), false),
        q_(device, in.type, in.shape.q_dim(), in.shape.d_model, 3),
        k_(device, in.type, in.shape.kv_dim(), in.shape.d_model, 4),
        v_(device, in.type, in.shape.kv_dim(), in.shape.d_model, 8),
        norm_(draw_norm(in.shape.d_model, 7)),
        rope_(angles(in)),
        host_cache_(cache_bytes(in)),
        device_norm_(device, norm_),
        device_rope_(device, rope_),
        cache_k_(device, host_cache_),
        cache_v_(device, host_cache_) {}
  void make_sets(int n) override {
    q_.make_sets(n);
    k_.make_sets(n);
    v_.make_sets(n);
  }

 protected:
  Entry entry(const OpTable& ops) const override { return ops.norm_qkv_rope_append; }
  WorkspaceEntry workspace_entry(const OpTable& ops) const override {
    return ops.workspace_bytes.norm_qkv_rope_append;
  }
  // A sequence's page holds all of its positions.
  static KvGeometry geometry(const ProbeInput& in) {
    const auto tokens = static_cast<int>((in.size.depth + 15) / 16 * 16);
    return {in.cache, in.shape.n_kv_heads, in.shape.head_dim, tokens};
  }
  static std::vector<std::byte> cache_bytes(const ProbeInput& in) {
    return std::vector<std::byte>(static_cast<size_t>(in.size.batch * geometry(in).page_bytes()));
  }
  static std::vector<float> angles(const ProbeInput& in) {
    std::vector<float> out;
    for (int i = 0; i < in.size.batch * in.shape.head_dim / 2; ++i) {
      const double angle = 0.1 * i;
      out.push_back(static_cast<float>(std::cos(angle)));
      out.push_back(static_cast<float>(std::sin(angle)));
    }
    return out;
  }
  Static static_with(const float* norm, const PackedMatrix& q, const PackedMatrix& k,
                     const PackedMatrix& v, std::byte* cache_k, std::byte* cache_v) const {
    return {.d_model = in_.shape.d_model,
            .n_heads = in_.shape.n_heads,
            .n_kv_heads = in_.shape.n_kv_heads,
            .head_dim = in_.shape.head_dim,
            .rope_dim = in_.shape.head_dim,
            .pairs = RopePairs::half_split,
            .rms_eps = kRmsEps,
            .norm = norm,
            .q = q,
            .k = k,
            .v = v,
            .q_bias = nullptr,
            .k_bias = nullptr,
            .v_bias = nullptr,
            .q_norm = nullptr,
            .k_norm = nullptr,
            .kv = {geometry(in_), cache_k, cache_v},
            .max_rows = in_.size.batch};
  }
  Static static_of(int set) const override {
    return static_with(device_norm_.get(), q_.at(set), k_.at(set), v_.at(set), cache_k_.get(),
                       cache_v_.get());
  }
  Static reference_static() const override {
    reference_k_ = reference_v_ = host_cache_;
    return static_with(norm_.data(), q_.in_file(), k_.in_file(), v_.in_file(), reference_k_.data(),
                       reference_v_.data());
  }
  PackedMatrix reference_matrix() const override { return q_.in_file(); }
  // Rows after the first have the angles behind the first's.
  NormQkvRopeAppendArgs args(const Static& s, const StepState* step, const float* in,
                             float* out) const override {
    const float* rope = s.norm == norm_.data() ? rope_.data() : device_rope_.get();
    return {s, step, in, rope + int64_t{step_first_} * in_.shape.head_dim, out};
  }
  void run(ExecContext& ctx, const OpTable& ops, int set, ProbeRows rows) override {
    step_first_ = rows.first;
    ProbeProduct::run(ctx, ops, set, rows);
    step_first_ = 0;
  }

 private:
  ProbeMatrix q_, k_, v_;
  std::vector<float> norm_, rope_;
  std::vector<std::byte> host_cache_;
  mutable std::vector<std::byte> reference_k_, reference_v_;
  ProbeArray<float> device_norm_, device_rope_;
  ProbeArray<std::byte> cache_k_, cache_v_;
  int step_first_ = 0;
};

}  // namespace

std::unique_ptr<ProbeOp> make_probe_qkv(const ProbeInput& input, const ProbeDevice& device) {
  return std::make_unique<ProbeQkv>(input, device);
}
std::unique_ptr<ProbeOp> make_probe_out_proj(const ProbeInput& input, const ProbeDevice& device) {
  return std::make_unique<ProbeOutProj>(input, device);
}
std::unique_ptr<ProbeOp> make_probe_gate_up(const ProbeInput& input, const ProbeDevice& device) {
  return std::make_unique<ProbeGateUp>(input, device);
}
std::unique_ptr<ProbeOp> make_probe_down(const ProbeInput& input, const ProbeDevice& device) {
  return std::make_unique<ProbeDown>(input, device);
}
std::unique_ptr<ProbeOp> make_probe_head(const ProbeInput& input, const ProbeDevice& device) {
  return std::make_unique<ProbeHead>(input, device);
}

}  // namespace fathom::measure
