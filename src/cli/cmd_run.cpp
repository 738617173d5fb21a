// SPDX-License-Identifier: Apache-2.0
// fathom run: text from a prompt, streamed to stdout; the figures are the last line of stderr.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "base/json.hpp"
#include "cli/arguments.hpp"
#include "cli/ceiling.hpp"
#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "cli/model_flags.hpp"
#include "cli/profile.hpp"
#include "cli/read_ceiling.hpp"
#include "cli/terminal.hpp"
#include "report/result.hpp"
#include "report/table.hpp"

namespace fathom::cli {
namespace {

struct RunFlags {
  ModelFlags model;
  std::optional<std::string> prompt;
  std::string file;
  bool echo = false;
  bool special = false;
  bool profile = false;
  std::string depths = "64,1641";
  int64_t max_tokens = -1;
  SamplerParams sampler;
  std::vector<std::string> logit_bias;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

std::string prompt_text(const RunFlags& flags) {
  if (flags.prompt && !flags.file.empty()) {
    fail(ErrorCode::usage, "both -p and -f are given: use one");
  }
  if (flags.prompt) return *flags.prompt == "-" ? read_text("-") : *flags.prompt;
  if (!flags.file.empty()) return read_text(flags.file);
  fail(ErrorCode::usage, "no prompt: give -p TEXT or -f FILE; - is stdin");
}

GenerateOptions generate_options(const RunFlags& flags, const Model& model) {
  GenerateOptions options;
  options.max_tokens = flags.max_tokens;
  options.sampler = flags.sampler;
  for (const std::string& bias : flags.logit_bias) {
    options.logit_bias.push_back(parse_logit_bias(bias));
    if (options.logit_bias.back().token >= model.info().vocab_size) {
      fail(ErrorCode::usage, "--logit-bias '{}': token ids go to {}", bias,
           model.info().vocab_size - 1);
    }
  }
  options.stop = flags.stop;
  options.ignore_end_of_generation = flags.ignore_eos;
  options.emit_special = flags.special;
  options.cancel = &interrupted();
  return options;
}

std::string tokens_text(int64_t count) {
  return fmt::format("{} token{}", count, count == 1 ? "" : "s");
}

// "128 tokens, 105.2 tok/s, 9.51 ms/token, 10.2 GB/s, 38 % of the 26.9 GB/s measured here; prompt 5
// tokens, 90.1 tok/s; logits b539af3f108bf7b7".
std::string last_line(const RunStats& stats, const KeptCeiling& ceiling, size_t n_generated) {
  std::string line = tokens_text(static_cast<int64_t>(n_generated));
  if (stats.decode_tokens > 0 && stats.decode_s > 0) {
    const double tokens = static_cast<double>(stats.decode_tokens);
    const double gbps =
        static_cast<double>(stats.decode_cost.memory_bytes()) / stats.decode_s / 1e9;
    line += fmt::format(", {:.1f} tok/s, {:.2f} ms/token, {:.1f} GB/s", tokens / stats.decode_s,
                        1e3 * stats.decode_s / tokens, gbps);
    if (ceiling.gbps) {
      line += ", " + share_of_peak(gbps, *ceiling.gbps,
                                   stats.decode_cost.memory_bytes() / stats.decode_tokens,
                                   ceiling.cache_bytes, ceiling.command);
    } else {
      line += fmt::format(", % of peak unknown (run `{}` once)", ceiling.command);
    }
  }
  if (stats.prompt_tokens > 0 && stats.prefill_s > 0) {
    line += fmt::format("; prompt {}, {:.1f} tok/s", tokens_text(stats.prompt_tokens),
                        static_cast<double>(stats.prompt_tokens) / stats.prefill_s);
  }
  return line + fmt::format("; logits {:016x}", stats.logits_hash);
}

Json stats_json(const RunStats& stats, const KeptCeiling& ceiling) {
  return {{"prompt_tokens", stats.prompt_tokens},
          {"prefill_s", stats.prefill_s},
          {"first_token_s", stats.first_token_s},
          {"decode_tokens", stats.decode_tokens},
          {"decode_s", stats.decode_s},
          {"decode_bytes", stats.decode_cost.memory_bytes()},
          {"peak_gbps", ceiling.gbps ? Json(*ceiling.gbps) : Json(nullptr)},
          {"logits_hash", fmt::format("{:016x}", stats.logits_hash)}};
}

// In the order of StopReason.
constexpr const char* kStopReasons[] = {"end_of_generation", "stop_string", "max_tokens",
                                        "context_full", "callback"};

struct Generated {
  GenerateResult result;
  RunStats stats;
};

Generated generate_text(Model& model, const RunFlags& flags, const CommonFlags& common,
                        const std::string& prompt, const KeptCeiling& ceiling) {
  const std::vector<int32_t> tokens =
      model.tokenize(prompt, {.add_special = true, .parse_special = flags.special});
  if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
  Sequence sequence = model.sequence();
  GenerateOptions options = generate_options(flags, model);
  ProgressBar bar("prompt", common.quiet);
  options.on_prefill = [&bar](int64_t done, int64_t total) {
    bar.update(static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total)));
  };
  bool line_open = false;
  const auto emit = [&](std::string_view text) {
    if (text.empty()) return;
    bar.clear();
    if (!common.json) write_stdout(text);
    line_open = text.back() != '\n';
  };
  if (flags.echo) emit(prompt);
  options.on_text = [&](std::string_view text) {
    emit(text);
    return true;
  };
  const auto end_line = [&] {
    bar.clear();
    if (line_open && !common.json) write_stdout("\n");
  };
  const auto finish = [&](size_t n_generated) {
    end_line();
    say(common.quiet, "{}", last_line(sequence.stats(), ceiling, n_generated));
  };
  try {
    GenerateResult result = sequence.generate(tokens, options);
    finish(result.tokens.size());
    if (result.reason == StopReason::context_full) {
      say(common.quiet, "the context of {} tokens is full: a larger -c gives more text",
          model.info().n_ctx);
    }
    return {std::move(result), sequence.stats()};
  } catch (const Error& e) {
    if (e.code() == ErrorCode::cancelled && sequence.stats().prompt_tokens == 0) {
      end_line();  // during the prefill, which leaves no figures
    } else if (e.code() == ErrorCode::cancelled) {
      finish(static_cast<size_t>(sequence.size()) -
             std::min<size_t>(static_cast<size_t>(sequence.size()), tokens.size()));
    }
    throw;
  }
}

int cmd_run(const RunFlags& flags, const Context& context) {
  const CommonFlags& common = context.flags;
  const std::string prompt = prompt_text(flags);
  OpenOptions options = open_options(flags.model, common);
  std::vector<int64_t> depths;
  if (flags.profile) {
    depths = parse_number_list(flags.depths, "--depths");
    options.max_sequences = static_cast<int>(depths.size());
    if (options.n_ctx == 0) {
      options.n_ctx =
          std::max<int64_t>(kProfileContext, *std::max_element(depths.begin(), depths.end()) + 1);
    }
    require_depths(depths, options.n_ctx);
  }
  OpenedModel opened = open_model(flags.model.model, std::move(options), common);
  const measure::Machine machine = measure::inspect_machine();
  const KeptCeiling ceiling = kept_ceiling(opened.model.info(), machine, common);
  const Generated generated = generate_text(opened.model, flags, common, prompt, ceiling);

  report::Result document;
  document.command = context.arguments;
  document.machine = report::machine_json(machine);
  document.summary = {{"text", generated.result.text},
                      {"tokens", generated.result.tokens},
                      {"stop_reason", kStopReasons[static_cast<int>(generated.result.reason)]},
                      {"run", stats_json(generated.stats, ceiling)}};
  if (flags.profile) {
    const Profile profile = profile_decode(opened.model, machine, {.depths = depths}, common);
    if (!common.json) write_stderr_line(profile.text(stderr_colour()));
    profile.add_to(document);
  }
  if (common.json) write_stdout(dump_json(document.to_json(), 2) + "\n");
  return report_gates(document.gates);
}

}  // namespace

RunCommand add_run(CLI::App& app, Context& context) {
  auto flags = std::make_shared<RunFlags>();
  add_model_argument(app, flags->model.model);
  app.add_option("-p,--prompt", flags->prompt, "The prompt; - reads it from stdin")
      ->type_name("TEXT");
  app.add_option("-f,--file", flags->file, "A file with the prompt; - is stdin")->type_name("FILE");
  app.add_option("-n,--n-predict,--predict", flags->max_tokens,
                 "Most tokens to generate; -1 = until the model ends or the context is full")
      ->capture_default_str()
      ->check(CLI::Range(-1, std::numeric_limits<int>::max()))
      ->type_name("N");
  add_context_flag(app, flags->model.n_ctx);
  app.add_flag("--echo", flags->echo, "Print the prompt before the text");
  app.add_flag("--special", flags->special,
               "Control tokens: read them in the prompt and print them in the text");
  app.add_option("--stop,-r,--reverse-prompt", flags->stop,
                 "End before this text; may be given several times")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  app.add_flag("--ignore-eos", flags->ignore_eos, "Go on past end-of-generation tokens");

  const char* sampling = "Sampling";
  SamplerParams& sampler = flags->sampler;
  add_seed_flag(app, "-s,--seed", "Seed of the random draws", sampler.seed)->group(sampling);
  app.add_option("--temp", sampler.temperature, "Temperature; 0 = always the likeliest token")
      ->capture_default_str()
      ->type_name("X")
      ->group(sampling);
  app.add_option("--top-k", sampler.top_k, "Only the K likeliest tokens; 0 = all")
      ->capture_default_str()
      ->type_name("K")
      ->group(sampling);
  app.add_option("--top-p", sampler.top_p, "Only the likeliest tokens that add up to P; 1 = all")
      ->capture_default_str()
      ->type_name("P")
      ->group(sampling);
  app.add_option("--min-p", sampler.min_p, "Only tokens with at least P times the best one's share")
      ->capture_default_str()
      ->type_name("P")
      ->group(sampling);
  app.add_option("--repeat-penalty", sampler.repeat_penalty,
                 "Weakens tokens that stand in the recent text; 1 = off")
      ->capture_default_str()
      ->type_name("X")
      ->group(sampling);
  app.add_option("--repeat-last-n", sampler.repeat_last_n,
                 "How much text is recent, in tokens; -1 = all, 0 = none")
      ->capture_default_str()
      ->type_name("N")
      ->group(sampling);
  app.add_option("--logit-bias", flags->logit_bias,
                 "Add X to a token's logit, for instance 15043+1 or 2-inf")
      ->allow_extra_args(false)
      ->type_name("ID(+|-)X")
      ->group(sampling);

  const char* profile = "Profile";
  app.add_flag("--profile", flags->profile,
               "Afterwards show what each op of a decode step takes at --depths")
      ->group(profile);
  app.add_option("--depths", flags->depths, "Depths of the profile, in tokens")
      ->capture_default_str()
      ->type_name("A,B")
      ->group(profile);
  add_engine_flags(app, flags->model);
  return [flags, &context] { return cmd_run(*flags, context); };
}

}  // namespace fathom::cli
