// SPDX-License-Identifier: Apache-2.0
// The flags' help texts and defaults, and the way from flags to OpenOptions to an open model.
#include "cli/model_flags.hpp"

#include <CLI/CLI.hpp>
#include <limits>

#include "base/error.hpp"
#include "cli/arguments.hpp"
#include "cli/cache_dir.hpp"
#include "cli/interrupt.hpp"

namespace fathom::cli {

void add_model_argument(CLI::App& app, std::string& model) {
  app.add_option("MODEL,-m,--model", model, "A GGUF file, or a name in the cache directory")
      ->required()
      ->type_name("");
}

void add_context_flag(CLI::App& app, int64_t& n_ctx) {
  app.add_option("-c,--ctx,--ctx-size", n_ctx,
                 "Tokens a sequence can hold; 0 = the trained length, at most 4096")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24))
      ->type_name("N");
}

CLI::Option* add_seed_flag(CLI::App& app, const char* names, const char* text, uint64_t& seed) {
  const auto canonical = [](std::string& given) {
    const std::optional<uint64_t> value = parse_uint64(given);
    if (!value) {
      return fmt::format("'{}' is not a whole number from 0 to {}", given,
                         std::numeric_limits<uint64_t>::max());
    }
    given = std::to_string(*value);  // CLI11 reads a leading 0 as octal
    return std::string();
  };
  return app.add_option(names, seed, text)
      ->capture_default_str()
      ->transform(CLI::Validator(canonical, ""))
      ->type_name("N");
}

void add_engine_flags(CLI::App& app, ModelFlags& flags) {
  const char* group = "Engine";
  app.add_option("--cache-type-k", flags.type_k,
                 "(-ctk) Type of cached keys: f16, bf16, f32, q8_0 or fp8-e4m3")
      ->capture_default_str()
      ->type_name("TYPE")
      ->group(group);
  app.add_option("--cache-type-v", flags.type_v,
                 "(-ctv) Type of cached values; must be that of the keys")
      ->capture_default_str()
      ->type_name("TYPE")
      ->group(group);
  app.add_option("--page-tokens", flags.page_tokens,
                 "Tokens of a cache page: 16, 64 or 256; 0 = one page per sequence")
      ->capture_default_str()
      ->check(CLI::IsMember({0, 16, 64, 256}))
      ->type_name("N")
      ->group(group);
  app.add_option("--activations", flags.activations,
                 "int8, or f32 for comparisons (slow, exact weights)")
      ->capture_default_str()
      ->type_name("TYPE")
      ->group(group);
  app.add_option("-b,--batch-size", flags.n_batch, "Accepted; a prompt runs in chunks of -ub")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->group(group);
  app.add_option("--ubatch-size", flags.n_ubatch,
                 "(-ub) Most tokens of one prefill step; 0 = 512, on CUDA 2048")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 16))
      ->type_name("N")
      ->group(group);
  app.add_option("--n-gpu-layers", flags.n_gpu_layers,
                 "(-ngl) Accepted; the whole model runs on the backend")
      ->type_name("N")
      ->group(group);
  app.add_option("--flash-attn", flags.flash_attn, "(-fa) Accepted; attention is always fused")
      ->type_name("0|1")
      ->group(group);
}

OpenOptions open_options(const ModelFlags& flags, const CommonFlags& common) {
  OpenOptions options;
  options.backend = common.backend;
  options.backend_dir = common.backend_dir;
  options.isa = common.isa;
  options.threads = common.threads;
  options.n_ctx = flags.n_ctx;
  options.kv_type = parse_kv_types(flags.type_k, flags.type_v);
  options.page_tokens = flags.page_tokens;
  options.n_ubatch = flags.n_ubatch;
  options.activations = parse_activations(flags.activations);
  return options;
}

OpenedModel open_model(const std::string& name, OpenOptions options, const CommonFlags& common) {
  auto log = std::make_unique<TerminalLog>(common.verbose, common.quiet);
  ProgressBar bar("loading", common.quiet);
  options.log = log.get();
  options.on_progress = [&bar](double fraction) { bar.update(fraction); };
  options.cancel_loading = &interrupted();
  const std::string path = resolve_model(name);
  Model model = Model::open(path, options);
  bar.clear();
  return {std::move(log), std::move(model)};
}

}  // namespace fathom::cli
