// SPDX-License-Identifier: Apache-2.0
// What a file must have to be served, beyond a readable configuration: a vocabulary that fits the
// embedding table and every tensor of the schema. No weight is read, so that `inspect` refuses what
// Engine::open refuses, in the same words.
#pragma once

#include <memory>
#include <string>

#include "device/backend.hpp"
#include "gguf/gguf_file.hpp"
#include "model/model_config.hpp"
#include "model/weights.hpp"
#include "text/tokenizer.hpp"

namespace fathom::engine {

// "cpu", "reference", or the name of a backend library looked for in `backend_dir` first. Throws
// Error{usage, unavailable}, the latter also when the library's device is missing.
const Backend& select_backend(const std::string& name, const std::string& backend_dir);

struct BoundModel {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<Weights> weights;  // still to be loaded
};

// REQUIRES: the file is opened in mode load; it, `config` and the backend outlive the result.
// Throws Error{bad_file, unsupported}.
BoundModel bind_model(const gguf::File& file, const ModelConfig& config, const Backend& backend,
                      Activations activations);

}  // namespace fathom::engine
