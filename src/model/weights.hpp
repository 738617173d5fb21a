// SPDX-License-Identifier: Apache-2.0
// The weights of a model as a backend wants them. bind() checks every tensor of the file against
// the schema (name, shape, type) and plans the packed forms; load() packs them, largest first, into
// one allocation on the device and gives the pages of the file back as it goes, so that the peak
// stays near the packed size.
#pragma once

#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "base/log.hpp"
#include "base/thread_pool.hpp"
#include "device/backend.hpp"
#include "device/owned.hpp"
#include "gguf/gguf_file.hpp"
#include "model/model_config.hpp"
#include "tensor/packed_matrix.hpp"

namespace fathom {

struct LayerWeights {
  const float* attn_norm = nullptr;  // [d_model]
  PackedMatrix attn_q;               // [q_dim, d_model]
  PackedMatrix attn_k;               // [kv_dim, d_model]
  PackedMatrix attn_v;               // [kv_dim, d_model]
  const float* attn_q_bias = nullptr;
  const float* attn_k_bias = nullptr;
  const float* attn_v_bias = nullptr;
  const float* attn_q_norm = nullptr;  // [head_dim]
  const float* attn_k_norm = nullptr;  // [head_dim]
  PackedMatrix attn_output;            // [d_model, q_dim]
  const float* attn_output_bias = nullptr;
  const float* ffn_norm = nullptr;  // [d_model]
  PackedMatrix ffn_gate;            // [d_ff, d_model]
  PackedMatrix ffn_up;              // [d_ff, d_model]
  PackedMatrix ffn_down;            // [d_model, d_ff]
  const float* ffn_down_bias = nullptr;
};

class Weights {
 public:
  // The file, the configuration and the backend must outlive the weights.
  static std::unique_ptr<Weights> bind(const gguf::File& file, const ModelConfig& config,
                                       const Backend& backend, Activations activations);
  Weights(const Weights&) = delete;  // placements point into it until load()
  Weights& operator=(const Weights&) = delete;
  // `progress` is told the share of bytes done after each tensor; it may throw to stop. Everything
  // is on the device on return.
  void load(ThreadPool& pool, void* stream, const std::function<void(double)>& progress);

  int64_t packed_bytes() const { return packed_bytes_; }  // what load() allocates
  int64_t n_params() const { return n_params_; }

  DType embedding_type() const { return embedding_tensor_->dtype(); }
  // Gives back what look-ups have mapped of the file; nothing where the table is on the device.
  void drop_embedding_pages() const { file_->drop(*embedding_tensor_); }

  // [vocab_size, d_model] in file layout. Where the device shares host memory, rows are read from
  // the mapped file, a few per step: a second copy of a tied head would cost its size again.
  const std::byte* embedding = nullptr;
  const double* inv_freq = nullptr;    // [rope_dim/2] of the configuration
  const float* output_norm = nullptr;  // [d_model]
  PackedMatrix output;                 // [vocab_size, d_model]; tied to the embedding if the file
                                       // has no output.weight
  std::vector<LayerWeights> layers;

 private:
  Weights(const gguf::File& file, const Backend& backend) : file_(&file), backend_(&backend) {}

  // Bytes of the host, and the view to be set once they are on the device: a matrix is packed,
  // others are copied.
  using View = std::variant<PackedMatrix*, const float**, const double**, const std::byte**>;
  struct Placement {
    const gguf::TensorInfo* tensor;  // null: not of the file
    const std::byte* from;
    View view;
    int64_t bytes;
    int64_t offset;
  };
  class Binder;

  const gguf::File* file_;
  const Backend* backend_;
  const gguf::TensorInfo* embedding_tensor_ = nullptr;
  int64_t packed_bytes_ = 0;
  int64_t n_params_ = 0;
  std::vector<Placement> placements_;
  Buffer memory_;
};

}  // namespace fathom
