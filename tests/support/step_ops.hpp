// SPDX-License-Identifier: Apache-2.0
// Small launches of every op of a step on a GPU, one for each kernel that takes them: what the
// kernel before it in the step leaves to it, what it writes, and the launch itself.
#pragma once

#include <functional>
#include <limits>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/attn/attn_cases.hpp"
#include "kernels/common/kv_ref.hpp"
#include "kernels/down_proj_residual/down_proj_residual.hpp"
#include "kernels/embed/embed.hpp"
#include "kernels/norm_gate_up_act/norm_gate_up_act.hpp"
#include "kernels/norm_head/norm_head.hpp"
#include "kernels/norm_qkv_rope_append/norm_qkv_rope_append.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/cuda_fixture.hpp"
#include "tests/support/cuda_matrix.hpp"

namespace fathom::test {

// A place that the kernel before the op fills: with what, and what stood there until then.
struct StepInput {
  std::byte* at;
  std::vector<std::byte> good, bad;
};
struct StepOutput {
  std::byte* at;
  int64_t bytes;
};
struct StepOp {
  std::vector<StepInput> inputs;
  std::vector<StepOutput> outputs;  // an input that is changed in place is one too
  std::function<void()> launch;
};

enum class StepOpKind { residual, down_of_codes, gate_up, gate_up_codes, head, qkv, attn, embed };
struct StepOpCase {
  const char* name;
  StepOpKind kind;
  DType type = DType::q4_k;  // of weights
  int n_rows = 1;
  int64_t outputs = 0, cols = 0;  // of the matrix; of qkv: cols
  KvFormat kv = KvFormat::f16;
  int head_dim = 64;
  bool head_norms = false;
  int kv_len = 0;  // of attention: of the first row; others are shorter, or of one prompt
  int n_ctx = 2048;
};
inline std::ostream& operator<<(std::ostream& out, const StepOpCase& c) { return out << c.name; }

// Products: one row (several units a warp; an f16 matrix; codes between gate and up and down), 2 to
// 4 rows, 5 to 32 (blocks of a cluster, whole chunks; of f16 the kernel below those), more than 32.
inline constexpr StepOpCase kStepOpCases[] = {
    {"residual_1", StepOpKind::residual, DType::q4_k, 1, 13000, 1280},
    {"residual_1_f16", StepOpKind::residual, DType::f16, 1, 100, 512},
    {"down_of_codes_1", StepOpKind::down_of_codes, DType::q6_k, 1, 75, 2048},
    {"gate_up_1", StepOpKind::gate_up, DType::q5_0, 1, 200, 768},
    {"gate_up_codes_1", StepOpKind::gate_up_codes, DType::q4_k, 1, 1024, 768},
    {"head_1", StepOpKind::head, DType::q8_0, 1, 203, 512},
    {"residual_3", StepOpKind::residual, DType::q4_k, 3, 13000, 1280},
    {"gate_up_4", StepOpKind::gate_up, DType::q4_1, 4, 200, 768},
    {"residual_8", StepOpKind::residual, DType::q4_k, 8, 304, 1280},
    {"gate_up_12", StepOpKind::gate_up, DType::q6_k, 12, 200, 768},
    {"residual_32", StepOpKind::residual, DType::q4_0, 32, 30000, 512},
    {"gate_up_32", StepOpKind::gate_up, DType::q4_k, 32, 15000, 512},
    {"residual_7_f16", StepOpKind::residual, DType::f16, 7, 100, 512},
    {"residual_20_bf16", StepOpKind::residual, DType::bf16, 20, 100, 512},
    {"residual_70", StepOpKind::residual, DType::q4_k, 70, 304, 1280},
    {"gate_up_40", StepOpKind::gate_up, DType::q4_k, 40, 200, 768},
    {"residual_40_bf16", StepOpKind::residual, DType::bf16, 40, 100, 512},
    {"head_40", StepOpKind::head, DType::q6_k, 40, 203, 512},
    {"qkv_1_pairs", StepOpKind::qkv, DType::q4_k, 1, 0, 768, KvFormat::f16, 64},
    {"qkv_1_scaled_pairs", StepOpKind::qkv, DType::q4_k, 1, 0, 768, KvFormat::fp8_e4m3, 128},
    {"qkv_1_scaled_blocks", StepOpKind::qkv, DType::q4_k, 1, 0, 768, KvFormat::q8_0, 128},
    {"qkv_1_head_norms", StepOpKind::qkv, DType::q4_k, 1, 0, 768, KvFormat::bf16, 96, true},
    {"qkv_3", StepOpKind::qkv, DType::q6_k, 3, 0, 768, KvFormat::q8_0, 64},
    {"qkv_8", StepOpKind::qkv, DType::q4_k, 8, 0, 768, KvFormat::f16, 80},
    {"qkv_5_fp8", StepOpKind::qkv, DType::q4_k, 5, 0, 768, KvFormat::fp8_e4m3, 128},
    {"qkv_40", StepOpKind::qkv, DType::q4_k, 40, 0, 768, KvFormat::f16, 64, true},
    {"attn_1_f32", StepOpKind::attn, {}, 1, 0, 0, KvFormat::f32, 64, false, 300},
    {"attn_1_f16", StepOpKind::attn, {}, 1, 0, 0, KvFormat::f16, 128, false, 1641},
    {"attn_3_bf16", StepOpKind::attn, {}, 3, 0, 0, KvFormat::bf16, 80, false, 300},
    {"attn_3_q8_0", StepOpKind::attn, {}, 3, 0, 0, KvFormat::q8_0, 64, false, 700},
    {"attn_4_fp8", StepOpKind::attn, {}, 4, 0, 0, KvFormat::fp8_e4m3, 128, false, 530},
    {"attn_40_f16", StepOpKind::attn, {}, 40, 0, 0, KvFormat::f16, 64, false, 300},
    {"attn_50_bf16", StepOpKind::attn, {}, 50, 0, 0, KvFormat::bf16, 128, false, 170},
    {"attn_40_q8_0", StepOpKind::attn, {}, 40, 0, 0, KvFormat::q8_0, 128, false, 300},
    {"attn_40_fp8", StepOpKind::attn, {}, 40, 0, 0, KvFormat::fp8_e4m3, 64, false, 300},
    // Nodes of 512 tokens: more of them than a device has blocks for, so that their states wait in
    // memory; of f16, which has fewer blocks, 236 are enough, which q8_0 takes in several clusters.
    {"attn_1_f16_deep", StepOpKind::attn, {}, 1, 0, 0, KvFormat::f16, 64, false, 60000, 60000},
    {"attn_1_q8_0_deep", StepOpKind::attn, {}, 1, 0, 0, KvFormat::q8_0, 64, false, 60000, 60000},
    {"attn_1_q8_0_deeper",
     StepOpKind::attn,
     {},
     1,
     0,
     0,
     KvFormat::q8_0,
     64,
     false,
     105000,
     105000},
    {"embed_5", StepOpKind::embed, DType::q6_k, 5, 0, 1024},
};

class StepOpTest : public CudaTestWithParam<StepOpCase> {
 protected:
  static constexpr float kEps = 1e-5f;

  StepOp make() {
    const StepOpCase& c = GetParam();
    counters_ = hold(std::vector(kCounterBytes, std::byte{0}));
    ctx().counters = {counters_, kCounterBytes};
    step_.n_rows = c.n_rows;
    switch (c.kind) {
      case StepOpKind::residual:
        return residual(normal(c.n_rows * c.cols, 5), HiddenForm::floats);
      case StepOpKind::down_of_codes:
        return residual(codes(c.cols), HiddenForm::backend);
      case StepOpKind::gate_up:
        return gate_up(matrix(c.outputs, 3), matrix(c.outputs, 4), HiddenForm::floats);
      case StepOpKind::gate_up_codes:
        return gate_up(matrix(c.outputs, 3), matrix(c.outputs, 4), HiddenForm::backend);
      case StepOpKind::head:
        return head();
      case StepOpKind::qkv:
        return qkv();
      case StepOpKind::attn:
        return attn();
      case StepOpKind::embed:
        return embed();
    }
    return {};
  }

  // What the op needs is there; what it writes is poisoned.
  void prepare(const StepOp& op) {
    for (const StepOutput& out : op.outputs) put(out.at, poison(out.bytes));
    for (const StepInput& in : op.inputs) put(in.at, in.good);
    if (ctx().workspace.bytes > 0 && !keeps_scratch_fresh())
      put(ctx().workspace.data, poison(ctx().workspace.bytes));
  }
  std::vector<std::vector<std::byte>> results(const StepOp& op) {
    std::vector<std::vector<std::byte>> out;
    for (const StepOutput& output : op.outputs) {
      out.emplace_back(static_cast<size_t>(output.bytes));
      api().copy_to_host(out.back().data(), output.at, output.bytes, stream().get());
    }
    synchronize();
    return out;
  }
  bool counters_are_zero() {
    std::vector<std::byte> left(static_cast<size_t>(kCounterBytes));
    api().copy_to_host(left.data(), counters_, kCounterBytes, stream().get());
    synchronize();
    return std::all_of(left.begin(), left.end(), [](std::byte b) { return b == std::byte{0}; });
  }

  static std::vector<std::byte> poison(int64_t bytes) {
    return std::vector(static_cast<size_t>(bytes), std::byte{0xff});
  }
  template <class T>
  T* hold(const std::vector<T>& values) {
    memory_.push_back(upload(bytes_of(values)));
    return reinterpret_cast<T*>(memory_.back().get());
  }
  void put(std::byte* to, const std::vector<std::byte>& bytes) {
    api().copy_to_device(to, bytes.data(), static_cast<int64_t>(bytes.size()), stream().get());
    synchronize();
  }

 private:
  template <class T>
  static std::vector<std::byte> bytes_of(const std::vector<T>& values) {
    const auto* first = reinterpret_cast<const std::byte*>(values.data());
    return {first, first + values.size() * sizeof(T)};
  }
  static std::vector<std::byte> normal(int64_t n, uint64_t seed) {
    return bytes_of(quant::random_activations(n, seed));
  }
  StepInput input(const std::vector<std::byte>& good) {
    const std::vector<std::byte> bad = poison(static_cast<int64_t>(good.size()));
    return {hold(bad), good, bad};
  }
  StepOutput output(int64_t bytes) { return {hold(poison(bytes)), bytes}; }
  PackedMatrix matrix(int64_t rows, uint64_t seed, int64_t cols = 0) {
    const CudaMatrix w(GetParam().type, rows, cols ? cols : GetParam().cols, seed);
    PackedMatrix out = w.tiles;
    out.data = hold(w.packed);
    return out;
  }
  const float* norm(int64_t n) { return hold(uniform_values(n, 0.5f, 1.5f, 7)); }
  template <class T>
  static T* as(const StepInput& in) {
    return reinterpret_cast<T*>(in.at);
  }

  StepOp residual(const std::vector<std::byte>& a, HiddenForm form) {
    const StepOpCase& c = GetParam();
    DownProjResidualArgs::Static s{matrix(c.outputs, 3), norm(c.outputs), c.n_rows};
    s.a_form = form;
    use_workspace(workspace_bytes_cuda(s));
    const StepInput in = input(a), x = input(normal(c.n_rows * c.outputs, 6));
    return {{in, x}, {{x.at, static_cast<int64_t>(x.good.size())}}, [=, this] {
              down_proj_residual_cuda(ctx(), {s, &step_, as<float>(in), as<float>(x)});
            }};
  }

  StepOp gate_up(const PackedMatrix& gate, const PackedMatrix& up, HiddenForm form) {
    const StepOpCase& c = GetParam();
    NormGateUpActArgs::Static s{gate.cols, gate.rows, kEps, norm(gate.cols), gate, up, c.n_rows};
    s.h_form = form;
    use_workspace(workspace_bytes_cuda(s));
    const StepInput x = input(normal(c.n_rows * gate.cols, 5));
    const StepOutput h = output(c.n_rows * gate.rows * 4);
    return {
        {x}, {h}, [=, this] {
          norm_gate_up_act_cuda(ctx(), {s, &step_, as<float>(x), reinterpret_cast<float*>(h.at)});
        }};
  }
  // What gate and up hand over for a matrix of so many columns.
  std::vector<std::byte> codes(int64_t d_ff) {
    const StepOp front = gate_up(matrix(d_ff, 8, 256), matrix(d_ff, 9, 256), HiddenForm::backend);
    prepare(front);
    front.launch();
    return results(front)[0];
  }

  StepOp head() {
    const StepOpCase& c = GetParam();
    const NormHeadArgs::Static s{c.cols,  c.outputs, kEps, norm(c.cols), matrix(c.outputs, 3),
                                 c.n_rows};
    use_workspace(workspace_bytes_cuda(s));
    std::vector<int32_t> rows(static_cast<size_t>(c.n_rows));
    std::iota(rows.begin(), rows.end(), 0);
    step_.n_out = c.n_rows;
    step_.out_row = hold(rows);
    const StepInput x = input(normal(c.n_rows * c.cols, 5));
    const StepOutput logits = output(c.n_rows * c.outputs * 4);
    return {{x}, {logits}, [=, this] {
              norm_head_cuda(ctx(), {s, &step_, as<float>(x), reinterpret_cast<float*>(logits.at)});
            }};
  }

  StepOp qkv() {
    constexpr int kHeads = 6, kKvHeads = 2, kPage = 16;
    const StepOpCase& c = GetParam();
    const int n_pages = (c.n_rows + kPage - 1) / kPage + 1;
    std::vector<int32_t> pos(static_cast<size_t>(c.n_rows)), slot(pos.size(), 0), pages;
    std::iota(pos.begin(), pos.end(), 5);
    for (int page = n_pages; page > 0; --page) pages.push_back(page - 1);
    step_.pos = hold(pos);
    step_.slot = hold(slot);
    step_.page_table = hold(pages);
    step_.max_pages = n_pages;
    NormQkvRopeAppendArgs::Static s{};
    s.d_model = c.cols;
    s.n_heads = kHeads;
    s.n_kv_heads = kKvHeads;
    s.head_dim = s.rope_dim = c.head_dim;
    s.pairs = RopePairs::half_split;
    s.rms_eps = kEps;
    s.norm = norm(c.cols);
    s.q = matrix(kHeads * c.head_dim, 3);
    s.k = matrix(kKvHeads * c.head_dim, 4);
    s.v = matrix(kKvHeads * c.head_dim, 5);
    s.q_bias = norm(kHeads * c.head_dim);
    s.k_bias = s.v_bias = s.q_bias + 3;
    if (c.head_norms) s.q_norm = s.k_norm = norm(c.head_dim);
    s.max_rows = c.n_rows;
    const KvGeometry geometry{c.kv, kKvHeads, c.head_dim, kPage};
    const StepOutput k = output(n_pages * geometry.page_bytes()),
                     v = output(n_pages * geometry.page_bytes()),
                     q = output(int64_t{c.n_rows} * kHeads * c.head_dim * 4);
    s.kv = {geometry, k.at, v.at};
    use_workspace(workspace_bytes_cuda(s));
    const StepInput x = input(normal(c.n_rows * c.cols, 5)),
                    rope = input(bytes_of(uniform_values(c.n_rows * c.head_dim, -1, 1, 9)));
    return {{x, rope}, {q, k, v}, [=, this] {
              norm_qkv_rope_append_cuda(ctx(), {s, &step_, as<float>(x), as<float>(rope),
                                                reinterpret_cast<float*>(q.at)});
            }};
  }

  StepOp attn() {
    using namespace attn_cases;
    const StepOpCase& c = GetParam();
    std::vector<Row> rows;
    for (int i = 0; i < c.n_rows; ++i) {
      if (c.n_rows > 32) {
        rows.push_back({c.kv_len - c.n_rows + i, 0});
      } else {
        rows.push_back({c.kv_len - 1 - 37 * i, i});
      }
    }
    Problem p({7, 2, c.head_dim}, c.kv, rows, {.n_ctx = c.n_ctx, .max_rows = c.n_rows});
    // The step's own tokens are there when the kernel before has ended, the others all the time.
    std::vector<std::byte> bad_k = p.k, bad_v = p.v;
    const KvLayerView bad{p.s.kv.geometry, bad_k.data(), bad_v.data()};
    const std::vector<double> nan(static_cast<size_t>(c.head_dim),
                                  std::numeric_limits<double>::quiet_NaN());
    for (int row = 0; row < p.rows(); ++row) {
      for (int kv_head = 0; kv_head < p.s.n_kv_heads; ++kv_head) {
        for (const KvPart part : {KvPart::key, KvPart::value}) {
          kv_store_ref(bad, part, p.step.pages_of(row), kv_head, p.pos[static_cast<size_t>(row)],
                       nan.data());
        }
      }
    }
    const StepInput k{hold(p.k), p.k, bad_k}, v{hold(p.v), p.v, bad_v}, q = input(bytes_of(p.q));
    AttnArgs::Static s = p.s;
    s.kv.k = k.at;
    s.kv.v = v.at;
    step_ = p.step;
    step_.pos = hold(p.pos);
    step_.slot = hold(p.slot);
    step_.page_table = hold(p.page_table);
    use_workspace(workspace_bytes_cuda(s));
    const StepOutput out = output(static_cast<int64_t>(p.q.size()) * 4);
    return {{q, k, v}, {out}, [=, this] {
              attn_cuda(ctx(), {s, &step_, as<float>(q), reinterpret_cast<float*>(out.at)});
            }};
  }

  StepOp embed() {
    constexpr int kVocab = 50, kRopeDim = 64;
    const StepOpCase& c = GetParam();
    std::vector<int32_t> tokens, pos;
    for (int row = 0; row < c.n_rows; ++row) {
      tokens.push_back(row * 7 % kVocab);
      pos.push_back(row * 11);
    }
    const EmbedArgs::Static s{
        hold(quant::random_weights(c.type, kVocab, c.cols, 3)), c.type,   kVocab, c.cols,
        hold(std::vector<double>(kRopeDim / 2, 0.3)),           kRopeDim, 1.0f};
    const StepInput token = input(bytes_of(tokens)), at = input(bytes_of(pos));
    step_.token = as<int32_t>(token);
    step_.pos = as<int32_t>(at);
    const StepOutput x = output(c.n_rows * c.cols * 4), rope = output(c.n_rows * kRopeDim * 4);
    return {{token, at}, {x, rope}, [=, this] {
              embed_cuda(ctx(), {s, &step_, reinterpret_cast<float*>(x.at),
                                 reinterpret_cast<float*>(rope.at)});
            }};
  }

  StepState step_{};
  std::byte* counters_ = nullptr;
  std::vector<DeviceArray<std::byte>> memory_;
};

}  // namespace fathom::test
