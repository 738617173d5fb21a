// SPDX-License-Identifier: Apache-2.0
// Sequences filled once, arms warmed up, rounds run, and what is known of each arm beside its
// times.
#include "cli/bench_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <memory>

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/utf8.hpp"
#include "cli/interrupt.hpp"
#include "cli/read_ceiling.hpp"
#include "cli/terminal.hpp"
#include "measure/limits.hpp"
#include "measure/machine_state.hpp"
#include "measure/rounds.hpp"
#include "measure/statistics.hpp"
#include "report/bench_rows.hpp"

namespace fathom::cli {
namespace {

constexpr uint64_t kSeedsApart = 1'000'003;  // of the sequences of a batch

// The sequences that the tests of one start share: as many as the widest batch has.
std::map<Start, int64_t> sequences_needed(const std::vector<Test>& tests) {
  std::map<Start, int64_t> needed;
  for (const Test& test : tests) {
    int64_t& n = needed[test.start];
    n = std::max(n, test.n_seqs);
  }
  return needed;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

report::BenchRow row_of(const Model& model, const Configuration& configuration,
                        const Session& session, const TestArm& arm) {
  const BenchFlags& flags = session.flags;
  const measure::Machine& machine = session.machine;
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
  const StepCounters& counters = arm.runs().back().counters;
  row.graph_captures = counters.graph_captures;
  row.graph_replays = counters.graph_replays;
  row.kernel_launches = counters.kernel_launches;
  row.test_bytes = arm.bytes();
  row.step_bytes = arm.step_bytes();
  row.test_flops = arm.flops();
  row.watermark = session.guard.watermark();
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

void add_gap(Output& out, size_t row, TestArm& arm) {
  if (!arm.is_decode()) {
    out.rows[row].gap_why = "of decode steps only";
    return;
  }
  Json sample = arm.gap_sample();
  sample["arm"] = "gap";
  sample["row"] = row;
  out.samples.push_back(std::move(sample));
}

// Sets the row's last logits against the file of --check-output, and keeps them for --save-logits.
void check_output(Output& out, report::BenchRow& row, const TestArm& arm, const ModelInfo& info,
                  Session& session) {
  const std::string key = output_key(row, info.vocab_size);
  if (!session.flags.save_logits.empty()) session.logits.add(key, arm.logits());
  if (!session.check) return;
  const auto absent = [&] {
    fail(ErrorCode::usage, "--check-output {} has no row '{}': make it with the same flags",
         session.check->path(), key);
  };
  if (!session.check->has_logits()) {
    const std::optional<std::string> hash = session.check->hash(row);
    if (!hash) absent();
    row.expected_hash = *hash;
    return;
  }
  const auto divergence = session.check->divergence(key, arm.logits());
  if (!divergence) absent();
  out.samples.push_back({{"arm", "logits"},
                         {"row", out.rows.size()},
                         {"kl", divergence->kl},
                         {"same_top", divergence->same_top}});
}

// The samples of a configuration as the document has them. `first_row` is that of its first arm.
void add_samples(Output& out, const measure::Rounds& rounds,
                 const std::vector<std::unique_ptr<TestArm>>& arms, size_t first_row,
                 size_t configuration) {
  std::vector<size_t> ran(arms.size(), 0);  // runs of each test so far
  for (const measure::Sample& sample : rounds.samples) {
    size_t arm = static_cast<size_t>(sample.arm);
    const bool is_twin = rounds.aa_twin == arm;
    if (is_twin) arm = *rounds.aa_arm;
    if (arm >= arms.size()) {
      Json json = report::sample_json("ceiling", sample, "gbps");
      json["configuration"] = configuration;
      out.samples.push_back(std::move(json));
      continue;
    }
    const report::BenchRow& row = out.rows[first_row + arm];
    const TestArm::Run& run = arms[arm]->runs().at(ran[arm]++);
    Json json = report::sample_json(row.test_name() + (is_twin ? " (A/A)" : ""), sample, "ns");
    json["kv_fill"] = row.kv_fill;
    json["configuration"] = configuration;
    json[is_twin ? "twin_of" : "row"] = first_row + arm;
    json["logits_hash"] = run.logits_hash;
    json["graph_captures"] = run.counters.graph_captures;
    json["graph_replays"] = run.counters.graph_replays;
    json["kernel_launches"] = run.counters.kernel_launches;
    out.samples.push_back(std::move(json));
  }
}

std::string stop_rule_text(const BenchFlags& flags) {
  if (flags.stop_within_pct <= 0) return fmt::format("{} rounds", flags.repetitions);
  return fmt::format("half-width of every 95 % interval <= {} %, or {} s, or {} rounds",
                     flags.stop_within_pct, flags.time_cap_s, report::kMostRounds);
}

// The most arithmetic that what runs the model can do.
std::optional<double> most_gops_of(const ModelInfo& info, const measure::Rounds& rounds,
                                   const Session& session) {
  if (info.in_host_memory) {
    std::vector<double> clocks;
    for (const measure::Sample& sample : rounds.samples) {
      if (sample.clock_mhz) clocks.push_back(*sample.clock_mhz);
    }
    if (clocks.empty()) return {};
    return measure::most_gops(info.isa, info.threads,
                              *std::max_element(clocks.begin(), clocks.end()));
  }
  const std::vector<measure::GpuState> gpus = session.guard.nvml().read();
  const std::optional<size_t> gpu = session.guard.gpu();
  if (!gpu || *gpu >= gpus.size() || !gpus[*gpu].max_sm_clock_mhz) return {};
  return measure::most_gops(info.isa, device_of(session.common)->info().compute_units,
                            *gpus[*gpu].max_sm_clock_mhz);
}

void add_results(Output& out, const Model& model, const Configuration& configuration,
                 const std::vector<std::unique_ptr<TestArm>>& arms, const measure::Rounds& rounds,
                 Session& session) {
  const ModelInfo& info = model.info();
  const size_t index = out.configurations.size(), first_row = out.rows.size();
  for (const auto& arm : arms) {
    report::BenchRow row = row_of(model, configuration, session, *arm);
    row.configuration = index;
    check_output(out, row, *arm, info, session);
    out.rows.push_back(std::move(row));
  }
  add_samples(out, rounds, arms, first_row, index);
  out.orders.push_back(rounds.order);
  out.configurations.push_back(
      {.device = info.device,
       .cache_bytes = cache_bytes_of(info, session.machine, session.common),
       .most_gops = most_gops_of(info, rounds, session),
       .stop_rule = stop_rule_text(session.flags),
       .stop = measure::stop_reason_name(rounds.stop),
       .warm = !session.flags.no_warmup});
  for (size_t i = 0; i < arms.size(); ++i) add_gap(out, first_row + i, *arms[i]);
}

// The test that gets a twin: the quickest, as warming up found, or else the first.
size_t quickest(const std::vector<double>& warm_ns) {
  return static_cast<size_t>(std::min_element(warm_ns.begin(), warm_ns.end()) - warm_ns.begin());
}

measure::RoundsOptions rounds_options(const Session& session, const std::vector<double>& warm_ns,
                                      ProgressBar& bar) {
  const BenchFlags& flags = session.flags;
  measure::RoundsOptions options;
  options.n_rounds = flags.repetitions;
  options.seed = flags.seed;
  options.cancel = &interrupted();
  options.progress = [&bar](int done, int total) { bar.update(static_cast<double>(done) / total); };
  if (flags.has_twin()) options.aa_arm = quickest(warm_ns);
  if (flags.stop_within_pct > 0) {
    options.until = measure::StopRule{.half_width = flags.stop_within_pct / 100,
                                      .max_seconds = flags.time_cap_s,
                                      .most_rounds = static_cast<int>(report::kMostRounds)};
  }
  options.state = [&session] {
    return measure::sample_state(session.guard.nvml(), session.guard.gpu());
  };
  return options;
}

OpenOptions options_of(const Configuration& configuration, const std::vector<Test>& tests,
                       const Session& session) {
  ModelFlags model_flags = session.flags.model;
  model_flags.type_k = configuration.type_k;
  model_flags.type_v = configuration.type_v;
  model_flags.n_ubatch = configuration.n_ubatch;
  OpenOptions options = open_options(model_flags, session.common);
  options.threads = configuration.threads;
  for (const Test& test : tests) {
    options.n_ctx = std::max(options.n_ctx, test.start.depth + test.n_prompt + test.n_gen);
  }
  options.max_sequences = 0;
  for (const auto& [start, n_seqs] : sequences_needed(tests)) {
    options.max_sequences += static_cast<int>(n_seqs);
  }
  return options;
}

}  // namespace

void measure_configuration(Output& out, const Configuration& configuration,
                           const std::vector<Test>& tests, Session& session) {
  const BenchFlags& flags = session.flags;
  OpenedModel opened =
      open_model(flags.model.model, options_of(configuration, tests, session), session.common);
  Model& model = opened.model;
  Sequences sequences = fill_sequences(model, sequences_needed(tests), flags.seed, session.common);
  std::vector<std::unique_ptr<TestArm>> test_arms;
  std::vector<measure::Arm> arms;
  std::vector<double> warm_ns;
  for (const Test& test : tests) {
    const std::span<Sequence> of_start(sequences.at(test.start));
    test_arms.push_back(std::make_unique<TestArm>(model,
                                                  of_start.first(static_cast<size_t>(test.n_seqs)),
                                                  test, configuration.n_ubatch, flags.seed));
    TestArm& arm = *test_arms.back();
    if (session.check || !flags.save_logits.empty()) arm.keep_logits();
    arms.push_back({"", [&arm] { return arm.run(); }});
    warm_ns.push_back(0);
    if (flags.no_warmup) continue;
    const measure::WarmUp warm =
        measure::warm_up(arms.back().run, {.max_runs = 5, .tolerance = 0.1, .max_seconds = 2});
    warm_ns.back() = measure::median(warm.values);
    arm.forget_runs();
  }
  ReadCeiling ceiling(model.info(), session.common);
  if (ceiling) {
    arms.push_back({"ceiling", [&] { return ceiling.sample_gbps(); }, /*control=*/true});
  }
  ProgressBar bar("measuring", session.common.quiet);
  const measure::Rounds rounds = measure::run_rounds(arms, rounds_options(session, warm_ns, bar));
  bar.clear();
  add_results(out, model, configuration, test_arms, rounds, session);
}

}  // namespace fathom::cli
