// SPDX-License-Identifier: Apache-2.0
// fathom bench: llama-bench's tests, flags and rows, and text of several sequences side by side.
// The tests of one configuration and the read ceiling take turns in random order; every row carries
// the hash of its last logits.
#include <algorithm>
#include <compare>
#include <ctime>
#include <map>
#include <memory>
#include <optional>

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/finite.hpp"
#include "base/fnv1a.hpp"
#include "base/thread_pool.hpp"
#include "base/utf8.hpp"
#include "cli/arguments.hpp"
#include "cli/cache_fill.hpp"
#include "cli/ceiling.hpp"
#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "cli/model_flags.hpp"
#include "cli/profile.hpp"
#include "cli/read_ceiling.hpp"
#include "cli/terminal.hpp"
#include "measure/clock.hpp"
#include "measure/rounds.hpp"
#include "measure/statistics.hpp"
#include "report/bench_rows.hpp"
#include "report/result.hpp"

namespace fathom::cli {
namespace {

constexpr int64_t kMostSequences = 1024;
constexpr uint64_t kSeedsApart = 1'000'003;  // of the sequences of a batch

struct BenchFlags {
  ModelFlags model;
  std::string n_prompt = "512", n_gen = "128", depths = "0", threads = "0";
  std::string types_k = "f16", types_v = "f16", ubatch = "512", n_seqs = "1";
  std::vector<std::string> prompt_gen;
  int repetitions = 5;
  std::optional<std::string> output;  // md
  bool no_warmup = false;
  bool profile = false;
  std::string profile_depths = "64,1641";
  std::string fills = "real";
  uint64_t seed = 1;
};

// What lies in the cache when a test begins.
struct Start {
  int64_t depth;
  CacheFill fill;
  auto operator<=>(const Start&) const = default;
};

struct Test {
  int64_t n_prompt;
  int64_t n_gen;
  int64_t n_seqs;
  Start start;
};

// One loaded model's worth of settings.
struct Configuration {
  int threads;
  std::string type_k, type_v;
  int n_ubatch;
};

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

// The sequences that the tests of one start share: as many as the widest batch has.
std::map<Start, int64_t> sequences_needed(const std::vector<Test>& tests) {
  std::map<Start, int64_t> needed;
  for (const Test& test : tests) {
    int64_t& n = needed[test.start];
    n = std::max(n, test.n_seqs);
  }
  return needed;
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

// Of the logits of all sequences, one after the other.
uint64_t hash_of(std::span<const Sequence> sequences) {
  Fnv1a hash;
  for (const Sequence& sequence : sequences) {
    for (const float value : sequence.logits()) hash.add(std::bit_cast<uint32_t>(value));
  }
  return hash.value();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

class TestArm {
 public:
  // REQUIRES: as many sequences as the test has, at its depth.
  TestArm(Model& model, std::span<Sequence> sequences, const Test& test, int n_ubatch,
          uint64_t seed)
      : model_(model),
        sequences_(sequences),
        test_(test),
        tokens_(random_tokens(model, test.n_prompt + test.n_gen * test.n_seqs, seed + 1)),
        batch_(sequences.size()) {
    for (int64_t done = 0; done < test.n_prompt; done += n_ubatch) {
      bytes_ +=
          model
              .step_cost(test.start.depth + done, std::min<int64_t>(n_ubatch, test.n_prompt - done))
              .memory_bytes();
    }
    for (int64_t i = 0; i < test.n_gen; ++i) {
      bytes_ += batch_bytes(test.start.depth + test.n_prompt + i);
    }
    if (test.n_prompt == 0) step_bytes_ = batch_bytes(test.start.depth);
  }

  // Nanoseconds of the whole test.
  double run() {
    for (Sequence& sequence : sequences_) sequence.truncate(test_.start.depth);
    const StepCounters before = model_.step_counters();
    const std::span<const int32_t> tokens(tokens_);
    const size_t n_prompt = static_cast<size_t>(test_.n_prompt);
    const int64_t start = measure::now_ns();
    if (n_prompt > 0) {
      sequences_[0].prefill(tokens.first(n_prompt), LogitsMode::last, {}, &interrupted());
    }
    for (size_t at = n_prompt; at < tokens.size(); at += sequences_.size()) {
      if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
      step(tokens.subspan(at, sequences_.size()));
    }
    const int64_t ns = measure::now_ns() - start;
    for (const Sequence& sequence : sequences_) {
      if (all_finite(sequence.logits())) continue;
      fail(ErrorCode::bad_file,
           "the logits at position {} are not finite, so nothing is measured: check the model file",
           sequence.size() - 1);
    }
    hashes_.push_back(hash_of(sequences_));
    const StepCounters after = model_.step_counters();
    counters_ = {.graph_captures = after.graph_captures - before.graph_captures,
                 .graph_replays = after.graph_replays - before.graph_replays,
                 .kernel_launches = after.kernel_launches - before.kernel_launches};
    return static_cast<double>(ns);
  }

  const Test& test() const { return test_; }
  double gbps(double ns) const { return static_cast<double>(bytes_) / ns; }
  bool is_decode() const { return test_.n_prompt == 0; }
  int64_t step_bytes() const { return step_bytes_; }
  const StepCounters& counters() const { return counters_; }  // of the last run
  bool hashes_agree() const {
    return std::all_of(hashes_.begin(), hashes_.end(), [&](uint64_t h) { return h == hashes_[0]; });
  }
  std::string hash_text() const { return fmt::format("{:016x}", hashes_.front()); }

 private:
  // What one step of all sequences reads: the weights once, the cache of each.
  int64_t batch_bytes(int64_t n_past) const {
    return model_.step_cost(n_past, test_.n_seqs).weight_bytes +
           test_.n_seqs * model_.step_cost(n_past).kv_bytes;
  }

  void step(std::span<const int32_t> tokens) {
    if (sequences_.size() == 1) {
      sequences_[0].step(tokens[0], LogitsMode::last);
      return;
    }
    for (size_t i = 0; i < batch_.size(); ++i) batch_[i] = {&sequences_[i], tokens[i]};
    model_.step(batch_);
  }

  Model& model_;
  std::span<Sequence> sequences_;
  Test test_;
  std::vector<int32_t> tokens_;  // of the prompt, then [n_gen, n_seqs]
  std::vector<Model::BatchEntry> batch_;
  int64_t bytes_ = 0;       // of the whole test
  int64_t step_bytes_ = 0;  // of one decode step
  std::vector<uint64_t> hashes_;
  StepCounters counters_;
};

// The result document as it grows over the configurations.
struct Output {
  std::vector<report::BenchRow> rows;
  report::Result document;
};

report::BenchRow row_of(const Model& model, const Configuration& configuration,
                        const BenchFlags& flags, const measure::Machine& machine,
                        const TestArm& arm) {
  const ModelInfo& info = model.info();
  report::BenchRow row;
  row.build_commit = build_info().commit;
  row.cpu_info = machine.cpu;
  for (const measure::Gpu& gpu : machine.gpus) {
    row.gpu_info += (row.gpu_info.empty() ? "" : ", ") + gpu.name;
  }
  row.backends = info.backend == "cpu" ? "CPU" : info.backend;
  row.model_filename = info.path;
  row.model_type = fmt::format(
      "{} {}", printable(info.name.empty() ? info.architecture : info.name), info.file_type);
  row.model_size = model.memory().file_bytes;
  row.model_n_params = info.n_params;
  row.n_batch = flags.model.n_batch;
  row.n_ubatch = configuration.n_ubatch;
  row.n_threads = info.threads;
  row.type_k = configuration.type_k;
  row.type_v = configuration.type_v;
  row.n_gpu_layers = flags.model.n_gpu_layers;
  row.n_prompt = arm.test().n_prompt;
  row.n_gen = arm.test().n_gen;
  row.n_depth = arm.test().start.depth;
  row.n_seqs = arm.test().n_seqs;
  row.test_time = utc_now();
  row.isa = info.isa;
  row.kv_fill = fill_name(arm.test().start.fill, arm.test().start.depth);
  row.cpu_mhz = machine.cpu_mhz.value_or(0);
  row.seed = flags.seed;
  row.graph_captures = arm.counters().graph_captures;
  row.graph_replays = arm.counters().graph_replays;
  row.kernel_launches = arm.counters().kernel_launches;
  return row;
}

using Sequences = std::map<Start, std::vector<Sequence>>;

// The sequences of each start, filled once and returned to by truncation. Those of a batch differ.
Sequences fill_sequences(Model& model, const std::map<Start, int64_t>& needed, uint64_t seed,
                         const CommonFlags& common) {
  ProgressBar bar("filling", common.quiet);
  Sequences filled;
  for (const auto& [start, n_seqs] : needed) {
    std::vector<Sequence>& sequences = filled[start];
    for (int64_t i = 0; i < n_seqs; ++i) {
      sequences.push_back(model.sequence());
      fill_to_depth(model, sequences.back(), start.depth, start.fill,
                    seed + static_cast<uint64_t>(i) * kSeedsApart, [&](double share) {
                      bar.update((static_cast<double>(i) + share) / static_cast<double>(n_seqs));
                    });
    }
  }
  return filled;
}

void add_results(Output& out, const Model& model, const Configuration& configuration,
                 const BenchFlags& flags, const measure::Machine& machine,
                 const std::vector<std::unique_ptr<TestArm>>& arms, const measure::Rounds& rounds,
                 bool has_ceiling, int64_t cache_bytes, size_t configuration_index) {
  const std::vector<double> none;
  const std::vector<double>& ceiling = has_ceiling ? rounds.values.back() : none;
  for (size_t i = 0; i < arms.size(); ++i) {
    const TestArm& arm = *arms[i];
    report::BenchRow row = row_of(model, configuration, flags, machine, arm);
    row.samples_ns = rounds.values[i];
    row.gbps = arm.gbps(measure::median(row.samples_ns));
    if (has_ceiling) {
      std::vector<double> ratios;
      for (size_t round = 0; round < ceiling.size(); ++round) {
        ratios.push_back(arm.gbps(row.samples_ns[round]) / ceiling[round]);
      }
      const double ratio = measure::median(ratios);
      row.peak_gbps = measure::median(ceiling);
      row.pct_of_peak = 100 * ratio;
      if (arm.is_decode()) {
        out.document.gates.push_back(
            ceiling_gate(row.test_name(), arm.step_bytes(), ratio, cache_bytes));
      }
    }
    if (arm.hashes_agree()) row.logits_hash = arm.hash_text();
    out.document.gates.push_back(
        {.id = "output_hash",
         .pass = arm.hashes_agree(),
         .value = {},
         .limit = {},
         .why = arm.hashes_agree()
                    ? fmt::format("{}: every repetition ends with logits {}", row.test_name(),
                                  arm.hash_text())
                    : fmt::format("{}: repetitions end with different logits", row.test_name())});
    for (size_t round = 0; round < row.samples_ns.size(); ++round) {
      out.document.samples.push_back({{"arm", row.test_name()},
                                      {"kv_fill", row.kv_fill},
                                      {"configuration", configuration_index},
                                      {"round", round},
                                      {"ns", row.samples_ns[round]}});
    }
    out.rows.push_back(std::move(row));
  }
  for (size_t round = 0; round < ceiling.size(); ++round) {
    out.document.samples.push_back({{"arm", "ceiling"},
                                    {"configuration", configuration_index},
                                    {"round", round},
                                    {"gbps", ceiling[round]}});
  }
  const std::string& device = model.info().device;
  if (has_ceiling && least_ceiling_gbps(device) > 0) {
    out.document.gates.push_back(least_ceiling_gate(device, measure::median(ceiling)));
  }
  out.document.summary["orders"].push_back(rounds.order);
}

void measure_configuration(Output& out, const Configuration& configuration,
                           const std::vector<Test>& tests, const BenchFlags& flags,
                           const measure::Machine& machine, const CommonFlags& common,
                           size_t configuration_index) {
  ModelFlags model_flags = flags.model;
  model_flags.type_k = configuration.type_k;
  model_flags.type_v = configuration.type_v;
  model_flags.n_ubatch = configuration.n_ubatch;
  OpenOptions options = open_options(model_flags, common);
  options.threads = configuration.threads;
  const std::map<Start, int64_t> needed = sequences_needed(tests);
  for (const Test& test : tests) {
    options.n_ctx = std::max(options.n_ctx, test.start.depth + test.n_prompt + test.n_gen);
  }
  options.max_sequences = 0;
  for (const auto& [start, n_seqs] : needed) options.max_sequences += static_cast<int>(n_seqs);

  OpenedModel opened = open_model(flags.model.model, std::move(options), common);
  Model& model = opened.model;
  Sequences sequences = fill_sequences(model, needed, flags.seed, common);
  std::vector<std::unique_ptr<TestArm>> test_arms;
  std::vector<measure::Arm> arms;
  for (const Test& test : tests) {
    const std::span<Sequence> of_start(sequences.at(test.start));
    test_arms.push_back(std::make_unique<TestArm>(model,
                                                  of_start.first(static_cast<size_t>(test.n_seqs)),
                                                  test, configuration.n_ubatch, flags.seed));
    TestArm& arm = *test_arms.back();
    arms.push_back({"", [&arm] { return arm.run(); }});
    if (!flags.no_warmup) {
      measure::warm_up(arms.back().run, {.max_runs = 5, .tolerance = 0.1, .max_seconds = 2});
    }
  }
  ReadCeiling ceiling(model.info(), common);
  if (ceiling) arms.push_back({"ceiling", [&] { return ceiling.sample_gbps(); }});
  ProgressBar bar("measuring", common.quiet);
  const measure::Rounds rounds = measure::run_rounds(
      arms,
      {.n_rounds = flags.repetitions,
       .seed = flags.seed,
       .cancel = &interrupted(),
       .progress = [&](int done, int total) { bar.update(static_cast<double>(done) / total); }});
  bar.clear();
  add_results(out, model, configuration, flags, machine, test_arms, rounds,
              static_cast<bool>(ceiling), cache_bytes_of(model.info(), machine, common),
              configuration_index);
}

int profile_command(const BenchFlags& flags, const Context& context,
                    const measure::Machine& machine) {
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
  const Profile profile = profile_decode(opened.model, machine,
                                         {.depths = depths,
                                          .rounds = kProfileRounds,
                                          .seed = flags.seed,
                                          .fill = fills_of(flags).front()},
                                         context.flags);
  if (context.flags.json) {
    report::Result document;
    document.command = context.arguments;
    document.machine = report::machine_json(machine);
    profile.add_to(document);
    write_stdout(dump_json(document.to_json(), 2) + "\n");
  } else {
    write_stdout(profile.text(stdout_colour()) + "\n");
  }
  return report_gates(profile.gates);
}

int cmd_bench(const BenchFlags& flags, const Context& context) {
  if (flags.output && context.flags.json) {
    fail(ErrorCode::usage, "--json prints a document and -o {} rows: give one of them",
         *flags.output);
  }
  const report::BenchFormat format = report::bench_format_from_name(flags.output.value_or("md"));
  const std::vector<Test> tests = tests_of(flags);
  const std::vector<Configuration> configurations = configurations_of(flags);
  const measure::Machine machine = measure::inspect_machine();
  if (flags.profile) return profile_command(flags, context, machine);

  Output out;
  out.document.command = context.arguments;
  out.document.machine = report::machine_json(machine);
  out.document.summary = {{"seed", flags.seed}, {"orders", Json::array()}};
  for (size_t i = 0; i < configurations.size(); ++i) {
    measure_configuration(out, configurations[i], tests, flags, machine, context.flags, i);
  }
  if (context.flags.json) {
    out.document.summary["rows"] =
        parse_json(report::format_bench_rows(out.rows, report::BenchFormat::json), "rows");
    write_stdout(dump_json(out.document.to_json(), 2) + "\n");
  } else {
    write_stdout(report::format_bench_rows(out.rows, format));
  }
  if (out.rows.front().peak_gbps > 0) {
    say(context.flags.quiet,
        "peak {:.1f} GB/s: our read stream between the same {} rounds in random order (seed {}); "
        "build {}",
        out.rows.front().peak_gbps, flags.repetitions, flags.seed, build_info().commit);
  }
  return report_gates(out.document.gates);
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
  app.add_option("-r,--repetitions", flags->repetitions, "Rounds; each runs every test once")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000))
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
  app.add_flag("--profile", flags->profile,
               "Instead of tests: what each op of a decode step takes at --depths");
  app.add_option("--depths", flags->profile_depths, "Depths of the profile, in tokens")
      ->capture_default_str()
      ->type_name("A,B");
  return [flags, &context] { return cmd_bench(*flags, context); };
}

}  // namespace fathom::cli
