// SPDX-License-Identifier: Apache-2.0
// The flags that several commands share, and opening a model with progress and log.
#pragma once

#include <memory>
#include <string>

#include "cli/command.hpp"
#include "cli/terminal.hpp"
#include "fathom/fathom.hpp"

namespace fathom::cli {

struct ModelFlags {
  std::string model;
  int64_t n_ctx = 0;
  std::string type_k = "f16", type_v = "f16";
  int page_tokens = 0;
  std::string activations = "int8";
  int n_batch = 2048;
  int n_ubatch = 0;
  int n_gpu_layers = -1;
  std::string flash_attn = "1";
};

// MODEL, as the first word or as -m.
void add_model_argument(CLI::App& app, std::string& model);
void add_context_flag(CLI::App& app, int64_t& n_ctx);
// A seed is any number of 64 bits; CLI11 alone would clamp what does not fit.
CLI::Option* add_seed_flag(CLI::App& app, const char* names, const char* text, uint64_t& seed);
// -ctk -ctv --page-tokens --activations -b -ub -ngl -fa
void add_engine_flags(CLI::App& app, ModelFlags& flags);

// What the flags say; throws Error{usage} for a wrong value.
OpenOptions open_options(const ModelFlags& flags, const CommonFlags& common);

// A model and the log that it writes to.
struct OpenedModel {
  std::unique_ptr<TerminalLog> log;
  Model model;
};
// Resolves the name, shows progress, and stops at Ctrl-C.
OpenedModel open_model(const std::string& name, OpenOptions options, const CommonFlags& common);

}  // namespace fathom::cli
