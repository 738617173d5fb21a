// SPDX-License-Identifier: Apache-2.0
// The vocabulary first, which a damaged file more often lacks, then the tensors.
#include "engine/bind_model.hpp"

#include "backends/cpu/cpu_backend.hpp"
#include "backends/reference/reference_backend.hpp"
#include "base/error.hpp"
#include "device/backend_loader.hpp"
#include "model/vocab.hpp"

namespace fathom::engine {

const Backend& select_backend(const std::string& name, const std::string& backend_dir) {
  for (const Backend* linked : {&cpu_backend(), &reference_backend()}) {
    if (name == linked->name) return *linked;
  }
  const Backend& library = load_backend(name, backend_dir);
  library.device->info();  // throws when this machine has no such device
  return library;
}

BoundModel bind_model(const gguf::File& file, const ModelConfig& config, const Backend& backend,
                      Activations activations) {
  BoundModel out;
  out.tokenizer = std::make_unique<text::Tokenizer>(tokenizer_from_gguf(file));
  if (out.tokenizer->n_vocab() != config.vocab_size) {
    file.refuse(ErrorCode::bad_file, "tokenizer.ggml.tokens",
                fmt::format("the vocabulary has {} tokens, the embedding table {} rows",
                            out.tokenizer->n_vocab(), config.vocab_size));
  }
  out.weights = Weights::bind(file, config, backend, activations);
  return out;
}

}  // namespace fathom::engine
