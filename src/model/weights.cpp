// SPDX-License-Identifier: Apache-2.0
// The schema: which tensors a model has, their shapes and types; and the loading, largest first.
#include "model/weights.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>
#include <unordered_set>

#include "base/checked.hpp"
#include "base/error.hpp"

namespace fathom {
namespace {

constexpr int64_t kAlignment = 256;  // what device allocations have

enum class Dim { d_model, q_dim, kv_dim, head_dim, d_ff };

int64_t value_of(Dim dim, const ModelConfig& config) {
  const std::array<int64_t, 5> values{config.d_model, config.q_dim(), config.kv_dim(),
                                      config.head_dim, config.d_ff};
  return values[static_cast<size_t>(dim)];
}

struct MatrixRow {
  const char* name;  // after "blk.<layer>."
  PackedMatrix LayerWeights::*field;
  Dim rows, cols;
};
constexpr MatrixRow kMatrices[] = {
    {"attn_q.weight", &LayerWeights::attn_q, Dim::q_dim, Dim::d_model},
    {"attn_k.weight", &LayerWeights::attn_k, Dim::kv_dim, Dim::d_model},
    {"attn_v.weight", &LayerWeights::attn_v, Dim::kv_dim, Dim::d_model},
    {"attn_output.weight", &LayerWeights::attn_output, Dim::d_model, Dim::q_dim},
    {"ffn_gate.weight", &LayerWeights::ffn_gate, Dim::d_ff, Dim::d_model},
    {"ffn_up.weight", &LayerWeights::ffn_up, Dim::d_ff, Dim::d_model},
    {"ffn_down.weight", &LayerWeights::ffn_down, Dim::d_model, Dim::d_ff},
};

struct VectorRow {
  const char* name;
  const float* LayerWeights::*field;
  Dim size;
  Presence Family::*presence;  // null = required in every family
};
constexpr VectorRow kVectors[] = {
    {"attn_norm.weight", &LayerWeights::attn_norm, Dim::d_model, nullptr},
    {"ffn_norm.weight", &LayerWeights::ffn_norm, Dim::d_model, nullptr},
    {"attn_q.bias", &LayerWeights::attn_q_bias, Dim::q_dim, &Family::qkv_bias},
    {"attn_k.bias", &LayerWeights::attn_k_bias, Dim::kv_dim, &Family::qkv_bias},
    {"attn_v.bias", &LayerWeights::attn_v_bias, Dim::kv_dim, &Family::qkv_bias},
    {"attn_q_norm.weight", &LayerWeights::attn_q_norm, Dim::head_dim, &Family::qk_norm},
    {"attn_k_norm.weight", &LayerWeights::attn_k_norm, Dim::head_dim, &Family::qk_norm},
    {"attn_output.bias", &LayerWeights::attn_output_bias, Dim::d_model, &Family::output_bias},
    {"ffn_down.bias", &LayerWeights::ffn_down_bias, Dim::d_model, &Family::ffn_down_bias},
};

}  // namespace

// Finds tensors, checks them, and notes where each will go.
class Weights::Binder {
 public:
  Binder(Weights& weights, const ModelConfig& config, Activations activations)
      : weights_(weights), file_(*weights.file_), config_(config), activations_(activations) {}

  const gguf::TensorInfo* find(const std::string& name, Presence presence, int64_t cols,
                               int64_t rows) {
    const gguf::TensorInfo* tensor = file_.find_tensor(name);
    if (!tensor) {
      if (presence != Presence::required) return nullptr;
      fail(ErrorCode::bad_file, "{}: tensor '{}' [{}, {}] is missing", file_.path(), name, cols,
           rows);
    }
    if (presence == Presence::absent) return nullptr;  // refused with the other extra tensors
    const bool right = tensor->dims[0] == static_cast<uint64_t>(cols) &&
                       tensor->dims[1] == static_cast<uint64_t>(rows) && tensor->dims[2] == 1 &&
                       tensor->dims[3] == 1;
    if (!right) {
      file_.refuse(
          ErrorCode::bad_file, *tensor,
          fmt::format("found shape [{}, {}, {}, {}], expected [{}, {}] from the hyper-parameters",
                      tensor->dims[0], tensor->dims[1], tensor->dims[2], tensor->dims[3], cols,
                      rows));
    }
    used_.insert(tensor->name);
    return tensor;
  }

  // What embed reads: where it lies, or a copy where the device cannot read that.
  void embedding(const gguf::TensorInfo& table) {
    const std::byte* rows = file_.data(table).data();
    const std::vector<double>& frequencies = config_.rope.inv_freq;
    if (weights_.backend_->device->shares_host_memory) {
      weights_.embedding = rows;
      weights_.inv_freq = frequencies.data();
      return;
    }
    place(&table, rows, &weights_.embedding, static_cast<int64_t>(table.bytes));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(frequencies));
    place(nullptr, bytes.data(), &weights_.inv_freq, static_cast<int64_t>(bytes.size()));
  }

  void matrix(const gguf::TensorInfo& tensor, int64_t rows, int64_t cols, PackedMatrix& out) {
    try {
      out = weights_.backend_->plan_matrix(tensor.dtype(), rows, cols, activations_);
    } catch (const Error& e) {
      file_.refuse(e.code(), tensor, e.what());
    }
    if (weights_.backend_->keeps_file_layout) {
      out.data = file_.data(tensor).data();
      return;
    }
    place(&tensor, file_.data(tensor).data(), &out, out.packed_bytes);
  }

  void vector(const std::string& name, Presence presence, int64_t n, const float*& out) {
    const gguf::TensorInfo* tensor = find(name, presence, n, 1);
    if (!tensor) return;
    if (tensor->dtype() != DType::f32) {
      file_.refuse(ErrorCode::unsupported, *tensor,
                   fmt::format("found type {}, expected F32", dtype_info(tensor->dtype()).name));
    }
    place(tensor, file_.data(*tensor).data(), &out, n * int64_t{sizeof(float)});
  }

  void layer(int index) {
    LayerWeights& layer = weights_.layers[index];
    const std::string prefix = fmt::format("blk.{}.", index);
    for (const MatrixRow& row : kMatrices) {
      const int64_t rows = value_of(row.rows, config_), cols = value_of(row.cols, config_);
      matrix(*find(prefix + row.name, Presence::required, cols, rows), rows, cols,
             layer.*row.field);
    }
    for (const VectorRow& row : kVectors) {
      const Presence presence = row.presence ? config_.family->*row.presence : Presence::required;
      vector(prefix + row.name, presence, value_of(row.size, config_), layer.*row.field);
    }
  }

  // A tensor that no op reads would be computed with elsewhere; only tables of the rotary
  // frequencies, which follow from the hyper-parameters, may be left out.
  void judge_unused() const {
    const bool reads_rope_freqs = config_.family->rope_freqs != Presence::absent;
    for (const gguf::TensorInfo& tensor : file_.tensors()) {
      if (used_.contains(tensor.name) || (tensor.name == "rope_freqs.weight" && reads_rope_freqs) ||
          tensor.name.ends_with("attn_rot_embd.weight") ||
          tensor.name.ends_with("rotary_emb.inv_freq")) {
        continue;
      }
      file_.refuse(
          ErrorCode::unsupported, tensor,
          fmt::format("it has no place in a {} model of {} layers, and leaving it out could "
                      "change what the model computes",
                      config_.family->architecture, config_.n_layers));
    }
  }

 private:
  void place(const gguf::TensorInfo* tensor, const std::byte* from, View view, int64_t bytes) {
    weights_.placements_.push_back({tensor, from, view, bytes, 0});
  }

  Weights& weights_;
  const gguf::File& file_;
  const ModelConfig& config_;
  Activations activations_;
  std::unordered_set<std::string_view> used_;
};

std::unique_ptr<Weights> Weights::bind(const gguf::File& file, const ModelConfig& config,
                                       const Backend& backend, Activations activations) {
  std::unique_ptr<Weights> owner(new Weights(file, backend));
  Weights& out = *owner;
  out.layers.resize(config.n_layers);
  Binder binder(out, config, activations);

  out.embedding_tensor_ =
      binder.find("token_embd.weight", Presence::required, config.d_model, config.vocab_size);
  binder.embedding(*out.embedding_tensor_);
  const gguf::TensorInfo* head =
      binder.find("output.weight", Presence::optional, config.d_model, config.vocab_size);
  binder.matrix(head ? *head : *out.embedding_tensor_, config.vocab_size, config.d_model,
                out.output);
  binder.vector("output_norm.weight", Presence::required, config.d_model, out.output_norm);
  for (int layer = 0; layer < config.n_layers; ++layer) binder.layer(layer);
  binder.judge_unused();

  for (const gguf::TensorInfo& tensor : file.tensors()) {
    out.n_params_ += static_cast<int64_t>(tensor.n_elems);
  }
  for (Placement& placement : out.placements_) {
    placement.offset = out.packed_bytes_;
    out.packed_bytes_ += static_cast<int64_t>(round_up(placement.bytes, kAlignment));
  }
  return owner;
}

void Weights::load(ThreadPool& pool, void* stream, const std::function<void(double)>& progress) {
  const DeviceApi& device = *backend_->device;
  memory_ = make_buffer(device, packed_bytes_);
  // The largest first: while a large tensor is both mapped and packed, little else is in memory.
  std::stable_sort(placements_.begin(), placements_.end(),
                   [](const Placement& a, const Placement& b) { return a.bytes > b.bytes; });
  int64_t done = 0;
  for (const Placement& placement : placements_) {
    std::byte* to = memory_.get().data + placement.offset;
    const auto fill = [&]<class T>(T* view) {
      if constexpr (std::is_same_v<T, PackedMatrix>) {
        backend_->pack_matrix(pool, *view, placement.from, to);
        view->data = to;
      } else {
        device.copy_to_device(to, placement.from, placement.bytes, stream);
        *view = reinterpret_cast<T>(to);
      }
    };
    std::visit(fill, placement.view);
    if (placement.tensor) file_->drop(*placement.tensor);
    done += placement.bytes;
    if (progress) progress(static_cast<double>(done) / static_cast<double>(packed_bytes_));
  }
  device.stream_synchronize(stream);
  // Faults map pages around them, of neighbours that were dropped before too: 8 MB in 272 tensors.
  for (const Placement& placement : placements_) {
    if (placement.tensor) file_->drop(*placement.tensor);
  }
  if (progress) progress(1.0);
  placements_.clear();
}

}  // namespace fathom
