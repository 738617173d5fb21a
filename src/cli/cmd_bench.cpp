// SPDX-License-Identifier: Apache-2.0
// fathom bench: llama-bench's tests, flags and rows, and text of several sequences side by side.
// The tests of one configuration, a twin of one of them (A/A) and the read ceiling take turns in
// random order; every row carries the hash of its last logits. What the samples say is computed by
// report/bench_summary, which `fathom report` calls again.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/thread_pool.hpp"
#include "cli/arguments.hpp"
#include "cli/bench_against.hpp"
#include "cli/bench_baseline.hpp"
#include "cli/bench_run.hpp"
#include "cli/cache_fill.hpp"
#include "cli/command.hpp"
#include "cli/gpu_guard.hpp"
#include "cli/model_flags.hpp"
#include "cli/profile.hpp"
#include "cli/terminal.hpp"
#include "measure/clock.hpp"
#include "measure/machine_state.hpp"
#include "report/bench_rows.hpp"
#include "report/bench_summary.hpp"
#include "report/result.hpp"
#include "report/table.hpp"

namespace fathom::cli {
namespace {

constexpr int64_t kMostSequences = 1024;

std::vector<CacheFill> fills_of(const BenchFlags& flags) {
  std::vector<CacheFill> fills;
  for (const std::string& name : split(flags.fills, ',')) {
    if (name != "real" && name != "synthetic") {
      fail(ErrorCode::usage, "--fill '{}': use real, synthetic or real,synthetic", name);
    }
    fills.push_back(name == "real" ? CacheFill::real : CacheFill::synthetic);
  }
  return fills;
}

std::vector<Start> starts_of(const BenchFlags& flags) {
  std::vector<Start> starts;
  for (const int64_t depth : parse_number_list(flags.depths, "-d")) {
    for (const CacheFill fill : fills_of(flags)) starts.push_back({depth, fill});
  }
  return starts;
}

std::vector<int64_t> batches_of(const BenchFlags& flags) {
  std::vector<int64_t> batches = parse_number_list(flags.n_seqs, "-npl");
  for (const int64_t n : batches) {
    if (n < 1 || n > kMostSequences) {
      fail(ErrorCode::usage, "-npl {}: a step takes 1 to {} sequences", n, kMostSequences);
    }
  }
  return batches;
}

// Prompts are of one sequence; text is of each number of sequences.
std::vector<Test> tests_of(const BenchFlags& flags) {
  std::vector<Test> tests;
  for (const Start& start : starts_of(flags)) {
    for (int64_t n : parse_number_list(flags.n_prompt, "-p")) {
      if (n > 0) tests.push_back({n, 0, 1, start});
    }
    for (int64_t n : parse_number_list(flags.n_gen, "-n")) {
      for (int64_t n_seqs : batches_of(flags)) {
        if (n > 0) tests.push_back({0, n, n_seqs, start});
      }
    }
    for (const std::string& pair : flags.prompt_gen) {
      const auto [n_prompt, n_gen] = parse_pair(pair, "-pg");
      if (n_prompt + n_gen > 0) tests.push_back({n_prompt, n_gen, 1, start});
    }
  }
  if (tests.empty()) fail(ErrorCode::usage, "nothing to measure: -p, -n and -pg are all 0");
  return tests;
}

std::vector<Configuration> configurations_of(const BenchFlags& flags) {
  const std::vector<std::string> types_k = split(flags.types_k, ',');
  std::vector<std::string> types_v = split(flags.types_v, ',');
  if (types_v.size() == 1) types_v.resize(types_k.size(), types_v.front());
  if (types_v.size() != types_k.size()) {
    fail(ErrorCode::usage, "-ctk names {} types and -ctv {}: give as many", types_k.size(),
         types_v.size());
  }
  std::vector<Configuration> out;
  for (int64_t threads : parse_number_list(flags.threads, "-t")) {
    ThreadPool::choose_threads(threads);  // refuses now, not when its turn comes
    for (size_t i = 0; i < types_k.size(); ++i) {
      parse_kv_types(types_k[i], types_v[i]);
      for (int64_t n_ubatch : parse_number_list(flags.ubatch, "-ub")) {
        if (n_ubatch < 1 || n_ubatch > 65536) fail(ErrorCode::usage, "-ub goes from 1 to 65536");
        out.push_back(
            {static_cast<int>(threads), types_k[i], types_v[i], static_cast<int>(n_ubatch)});
      }
    }
  }
  return out;
}

int profile_command(const BenchFlags& flags, const Context& context,
                    const measure::Machine& machine, const GpuGuard& guard) {
  const std::vector<int64_t> depths = parse_number_list(flags.profile_depths, "--depths");
  const Configuration configuration = configurations_of(flags).front();
  ModelFlags model_flags = flags.model;
  model_flags.type_k = configuration.type_k;
  model_flags.type_v = configuration.type_v;
  model_flags.n_ubatch = configuration.n_ubatch;
  OpenOptions options = open_options(model_flags, context.flags);
  options.threads = configuration.threads;
  options.n_ctx = *std::max_element(depths.begin(), depths.end()) + 1;
  options.max_sequences = static_cast<int>(depths.size());
  OpenedModel opened = open_model(flags.model.model, std::move(options), context.flags);
  Profile profile = profile_decode(opened.model, machine,
                                   {.depths = depths,
                                    .rounds = flags.profile_rounds.value_or(kProfileRounds),
                                    .seed = flags.seed,
                                    .fill = fills_of(flags).front()},
                                   context.flags);
  profile.gates.insert(profile.gates.begin(), guard.gates().begin(), guard.gates().end());
  if (!guard.canary_us().empty()) {
    profile.gates.push_back(report::canary_gate(guard.canary_us()));
  }
  if (context.flags.json) {
    report::Result document;
    document.command = context.arguments;
    document.machine = report::machine_json(machine);
    if (!guard.watermark().empty()) document.summary["watermark"] = guard.watermark();
    profile.add_to(document);
    write_stdout(dump_json(document.to_json(), 2) + "\n");
  } else {
    write_stdout(profile.text(stdout_colour()) + "\n");
  }
  return report_gates(profile.gates);
}

report::Result document_of(const Output& out, const report::BenchSummary& summary,
                           const Session& session, const Context& context) {
  report::Result document;
  document.command = context.arguments;
  document.machine = report::machine_json(session.machine);
  document.samples = out.samples;
  const measure::ClockQuality clock = measure::clock_quality();
  Json configurations = Json::array(), rows = Json::array();
  for (const report::BenchConfiguration& configuration : out.configurations) {
    configurations.push_back(report::configuration_json(configuration));
  }
  for (const report::BenchRow& row : summary.rows) rows.push_back(report::bench_row_json(row));
  const std::string& watermark = session.guard.watermark();
  document.summary = {{"seed", session.flags.seed},
                      {"orders", out.orders},
                      {"timing",
                       {{"clock", "CLOCK_MONOTONIC around a whole test, logits included"},
                        {"resolution_ns", clock.resolution_ns},
                        {"call_ns", clock.call_ns}}},
                      {"watermark", watermark.empty() ? Json(nullptr) : Json(watermark)},
                      {"configurations", configurations},
                      {"noise", summary.noise},
                      {"fills", summary.fills},
                      {"rows", rows}};
  document.gates = session.guard.gates();
  document.gates.insert(document.gates.end(), summary.gates.begin(), summary.gates.end());
  return document;
}

// What a synthetic cache changes, where both were measured.
void say_fills(const report::BenchSummary& summary, bool quiet) {
  for (const Json& fill : summary.fills) {
    say(quiet,
        "{}: behind a synthetic cache it takes {:+.2f} % of the time, 95 % {:+.2f} to {:+.2f} %",
        fill["test"].get<std::string>(), 100 * (fill["time_ratio"].get<double>() - 1),
        100 * (fill["ci"][0].get<double>() - 1), 100 * (fill["ci"][1].get<double>() - 1));
  }
}

// Sets the rows against the baseline's: the comparison's text, and whether a row is slower.
struct Compared {
  Json json;
  std::string text;
  bool slower = false;
};
Compared compare(const report::BenchSummary& summary, const Output& out,
                 const BenchBaseline& baseline) {
  const std::vector<report::RowComparison> rows =
      compare_rows(summary, report::ceilings_of(report::Fields(out.samples, "samples")), baseline);
  Compared compared{Json::object(), report::comparison_text(rows) + unpaired_note(baseline), false};
  compared.json = {{"baseline", baseline.path},
                   {"baseline_command", baseline.command},
                   {"paired", false},
                   {"rows", Json::array()}};
  for (const report::RowComparison& row : rows) {
    compared.json["rows"].push_back(row.json());
    compared.slower = compared.slower || row.time.verdict == measure::Verdict::slower;
  }
  return compared;
}

int finish(const report::Result& document, bool slower) {
  const int status = report_gates(document.gates);
  if (status != 0) return status;
  return slower ? exit_status(ErrorCode::internal) : 0;
}

int against_command(const BenchFlags& flags, const Context& context) {
  const report::Result document = bench_against({.program = flags.against,
                                                 .rounds = std::max(flags.repetitions, kTwinRounds),
                                                 .seed = flags.seed},
                                                context);
  const std::vector<report::RowComparison> rows =
      report::compare_processes(report::Fields(document.samples, "samples"));
  write_stdout(context.flags.json ? dump_json(document.to_json(), 2) + "\n"
                                  : report::comparison_text(rows));
  bool slower = false;
  for (const report::RowComparison& row : rows) {
    slower = slower || row.time.verdict == measure::Verdict::slower;
  }
  return finish(document, slower);
}

// Flags that exclude each other.
void check_flags(const BenchFlags& flags, bool json) {
  if (flags.output && json) {
    fail(ErrorCode::usage, "--json prints a document and -o {} rows: give one of them",
         *flags.output);
  }
  if (!flags.against.empty() && (!flags.compare.empty() || flags.output)) {
    fail(ErrorCode::usage, "--against prints its own table: without --compare and -o");
  }
  const bool of_rows = !flags.compare.empty() || !flags.against.empty() ||
                       !flags.check_output.empty() || !flags.save_logits.empty();
  if (flags.profile && of_rows) {
    fail(ErrorCode::usage,
         "--profile has no rows: without --compare, --against, --check-output and --save-logits");
  }
}

int cmd_bench(const BenchFlags& flags, const Context& context) {
  check_flags(flags, context.flags.json);
  const report::BenchFormat format = report::bench_format_from_name(flags.output.value_or("md"));
  const std::vector<Test> tests = tests_of(flags);
  const std::vector<Configuration> configurations = configurations_of(flags);
  std::optional<BenchBaseline> baseline;
  if (!flags.compare.empty()) baseline = load_baseline(flags.compare);
  if (!flags.against.empty()) return against_command(flags, context);
  std::optional<OutputCheck> check;
  if (!flags.check_output.empty()) check.emplace(flags.check_output);
  const measure::Machine machine = measure::inspect_machine();
  GpuGuard guard(context.flags, flags.allow_busy);
  guard.run_canary();
  if (flags.profile) return profile_command(flags, context, machine, guard);
  Session session{flags, context.flags, machine, guard, std::move(check), {}};
  Output out;
  if (!guard.canary_us().empty()) {
    out.samples.push_back({{"arm", "canary"}, {"values", guard.canary_us()}});
  }
  const measure::MachineState before = measure::read_machine_state(guard.nvml());
  for (const Configuration& configuration : configurations) {
    measure_configuration(out, configuration, tests, session);
  }
  const measure::MachineState after = measure::read_machine_state(guard.nvml());
  if (!flags.save_logits.empty()) session.logits.save(flags.save_logits);
  const report::BenchSummary summary = report::summarise_bench(
      out.rows, report::Fields(out.samples, "samples"), out.configurations, flags.seed);
  report::Result document = document_of(out, summary, session, context);
  document.machine["state"] = {{"before", report::state_json(before)},
                               {"after", report::state_json(after)}};
  Compared compared;
  if (baseline) {
    compared = compare(summary, out, *baseline);
    document.summary["comparison"] = compared.json;
  }
  if (context.flags.json) {
    write_stdout(dump_json(document.to_json(), 2) + "\n");
  } else {
    write_stdout(report::format_bench_rows(summary.rows, format));
    // Readers of rows get nothing but rows.
    if (format == report::BenchFormat::markdown) {
      if (baseline) write_stdout("\n" + compared.text);
    } else if (baseline) {
      write_stderr_line(compared.text);
    }
  }
  if (summary.rows.front().peak_gbps > 0) {
    say(context.flags.quiet,
        "peak {:.1f} GB/s: our read stream between the same {} rounds in random order (seed {}); "
        "build {}",
        summary.rows.front().peak_gbps, out.orders[0].size(), flags.seed, build_info().commit);
  }
  say_fills(summary, context.flags.quiet);
  if (!guard.watermark().empty()) {
    write_stderr_line(report::painted(guard.watermark(), report::Paint::bad, stderr_colour()));
  }
  return finish(document, compared.slower);
}

// The flags that say when rounds end, what they are set against, and what makes them trusted.
void add_trust_flags(CLI::App& app, BenchFlags& flags) {
  app.add_flag(
      "--no-aa", flags.no_aa,
      "No twin: from 6 rounds on the quickest test runs twice a round, and what the two differ "
      "by is the noise floor");
  app.add_option("--stop-within", flags.stop_within_pct,
                 "Instead of -r rounds (then the fewest): until the 95 % interval of every test is "
                 "within this many percent of it, or --time-cap ends it")
      ->check(CLI::Range(0.01, 50.0))
      ->type_name("PCT");
  app.add_option("--time-cap", flags.time_cap_s, "Seconds after which --stop-within gives up")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 86400.0))
      ->type_name("S");
  app.add_option(
         "--compare", flags.compare,
         "Set every row against the same row of an earlier result (--json, or -o json, also "
         "llama-bench's): interval and verdict; exit status 1 when a row is slower")
      ->type_name("FILE");
  app.add_option(
         "--against", flags.against,
         "Run another fathom and this one in turns, a process each time (at least 6 rounds of "
         "-r 1), and compare their rows in pairs")
      ->type_name("PROGRAM");
  app.add_option(
         "--check-output", flags.check_output,
         "The last logits of each test must be those of this file: an earlier result (hash), "
         "or what --save-logits wrote, also of another backend (at most 0.01 nats apart)")
      ->type_name("FILE");
  app.add_option("--save-logits", flags.save_logits,
                 "Store the last logits of each test, of its first sequence")
      ->type_name("FILE");
  app.add_flag(
      "--allow-busy", flags.allow_busy,
      "Measure on a GPU that is not idle, and mark the result; else that is refused with exit "
      "status 3");
}

}  // namespace

RunCommand add_bench(CLI::App& app, Context& context) {
  auto flags = std::make_shared<BenchFlags>();
  add_model_argument(app, flags->model.model);
  const auto list = [&](const char* names, std::string& value, const char* text) {
    app.add_option(names, value, text)->capture_default_str()->type_name("LIST");
  };
  list("-p,--n-prompt", flags->n_prompt, "Prompt lengths: pp tests; 0 = none");
  list("-n,--n-gen", flags->n_gen, "Tokens to generate: tg tests; 0 = none");
  app.add_option("--prompt-gen", flags->prompt_gen, "(-pg) A prompt and a generation in one test")
      ->allow_extra_args(false)
      ->type_name("PP,TG");
  list("-d,--n-depth", flags->depths, "Tokens in the cache before the test");
  list("--n-parallel", flags->n_seqs,
       "(-npl) Sequences side by side, one token of each in a step: tg tests of each number");
  app.add_option("--fill", flags->fills,
                 "How the cache gets there: real prefill, or synthetic keys and values behind 256 "
                 "real tokens, for great depths; real,synthetic measures both")
      ->capture_default_str()
      ->type_name("HOW");
  list("-t,--threads", flags->threads, "CPU threads; 0 = the cores this process may use");
  list("--cache-type-k", flags->types_k,
       "(-ctk) Types of cached keys: f16, bf16, f32, q8_0, fp8-e4m3");
  list("--cache-type-v", flags->types_v,
       "(-ctv) Types of cached values; must be those of the keys");
  list("--ubatch-size", flags->ubatch, "(-ub) Most tokens of one prefill step");
  app.add_option("-b,--batch-size", flags->model.n_batch,
                 "Accepted; a prompt runs in chunks of -ub")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  const CLI::Option* rounds =
      app.add_option("-r,--repetitions", flags->repetitions,
                     "Rounds; each runs every test once. Of --profile 15 unless given")
          ->capture_default_str()
          ->check(CLI::Range(1, static_cast<int>(report::kMostRounds)))
          ->type_name("N");
  app.add_option("-o,--output", flags->output, "csv, json, jsonl, md or sql: llama-bench's rows")
      ->default_str("md")
      ->type_name("FORMAT");
  app.add_flag("--no-warmup", flags->no_warmup, "Do not run each test until its time is stable");
  add_seed_flag(app, "--seed", "Seed of the tokens and of the order of the rounds", flags->seed);
  app.add_option("--page-tokens", flags->model.page_tokens,
                 "Tokens of a cache page: 16, 64 or 256; 0 = one page per sequence")
      ->capture_default_str()
      ->check(CLI::IsMember({0, 16, 64, 256}))
      ->type_name("N");
  app.add_option("--activations", flags->model.activations,
                 "int8, or f32 for comparisons (slow, exact weights)")
      ->capture_default_str()
      ->type_name("TYPE");
  app.add_option("--n-gpu-layers", flags->model.n_gpu_layers,
                 "(-ngl) Accepted; the whole model runs on the backend")
      ->type_name("N");
  app.add_option("--flash-attn", flags->model.flash_attn,
                 "(-fa) Accepted; attention is always fused")
      ->type_name("0|1");
  add_trust_flags(app, *flags);
  app.add_flag("--profile", flags->profile,
               "Instead of tests: what each op of a decode step takes at --depths");
  app.add_option("--depths", flags->profile_depths, "Depths of the profile, in tokens")
      ->capture_default_str()
      ->type_name("A,B");
  return [flags, &context, rounds] {
    if (rounds->count() > 0) flags->profile_rounds = flags->repetitions;
    return cmd_bench(*flags, context);
  };
}

}  // namespace fathom::cli
