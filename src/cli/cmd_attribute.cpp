// SPDX-License-Identifier: Apache-2.0
// fathom attribute: which ops of a decode step grow with depth, by how much, and why. Unwatched and
// watched steps take turns; the sum of the differences must meet the unwatched difference, or there
// is no diagnosis and the exit status is 4.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/output_file.hpp"
#include "cli/arguments.hpp"
#include "cli/attribute_census.hpp"
#include "cli/attribute_confirm.hpp"
#include "cli/attribute_evidence.hpp"
#include "cli/attribute_measure.hpp"
#include "cli/command.hpp"
#include "cli/gpu_guard.hpp"
#include "cli/model_flags.hpp"
#include "cli/profile.hpp"
#include "cli/terminal.hpp"
#include "engine/bind_model.hpp"
#include "measure/observation_json.hpp"
#include "report/attribution_gates.hpp"
#include "report/attribution_report.hpp"
#include "report/bench_summary.hpp"

namespace fathom::cli {
namespace {

using measure::Observation;
using report::AttributionReport;

constexpr int kMostSequences = 1024;  // of a step

// With what an op computes, if it does: on the host in f32, or in whatever instructions int8
// activations take; on a device on its tensor cores, but for the variants of attention.
std::optional<Arithmetic> arithmetic_of(const measure::OpCost& cost, const AttributeFlags& flags,
                                        bool on_device) {
  const bool attends = cost.op == "attn";
  const bool f32 =
      attends ? !on_device || !flags.variant.empty() : flags.model.activations == "f32";
  if (cost.flops == 0 || (!f32 && !on_device)) return std::nullopt;
  if (f32) return Arithmetic::f32;
  return attends ? Arithmetic::f16_tensor : Arithmetic::int8_tensor;
}

measure::OpCost cost_of(const std::vector<measure::OpCost>& costs, const std::string& op) {
  const auto found = std::find_if(costs.begin(), costs.end(),
                                  [&](const measure::OpCost& cost) { return cost.op == op; });
  return found == costs.end() ? measure::OpCost{op, 0, 0} : *found;
}

void decompose_ops(AttributionReport& r, const AttributeFlags& flags,
                   const std::vector<std::string>& ops) {
  if (r.peaks.memory_gbps <= 0) return;
  for (const measure::OpGrowth& op : r.attribution.ops) {
    if (std::find(ops.begin(), ops.end(), op.op) == ops.end()) continue;
    const measure::OpCost hi = cost_of(r.costs_hi, op.op);
    r.decompositions.push_back(measure::decompose(op, cost_of(r.costs_lo, op.op), hi,
                                                  arithmetic_of(hi, flags, r.on_device),
                                                  report::total_bytes(r.costs_hi), r.peaks));
  }
}

AttributionReport report_of(const AttributeFlags& flags, const std::vector<int64_t>& depths,
                            const Measured& m) {
  AttributionReport r;
  r.model = m.facts.info.name.empty()
                ? m.facts.info.path
                : fmt::format("{} {}", m.facts.info.name, m.facts.info.file_type);
  r.backend = m.facts.info.backend;
  r.device = m.facts.info.device;
  r.kv_type = kv_type_name(m.facts.info.kv_type);
  r.threads = m.facts.info.threads;
  r.n_parallel = flags.n_parallel;
  r.depths = depths;
  std::vector<int64_t> kv_tokens;
  for (size_t i = 0; i < depths.size(); ++i) {
    r.kv_fill.push_back(fill_name(fill_of(flags), depths[i]));
    r.kv_bytes.push_back(kv_bytes_of(m.facts.costs[i]));
    r.block_steps.push_back(
        static_cast<int64_t>(m.observation.depths[i].untraced.front()[0].steps_ns.size()));
    kv_tokens.push_back(depths[i] + 1);
  }
  r.rounds = m.observation.n_rounds();
  r.refused_windows = m.observation.refused_windows;
  r.stopped = m.observation.stopped;
  r.seed = m.observation.seed;
  r.attribution = measure::attribute(m.observation, kv_tokens);
  r.peaks = m.peaks;
  r.kv_token_bytes = m.facts.kv_token_bytes;
  r.on_device = !m.facts.info.in_host_memory;
  if (m.eager) r.eager = m.eager->quiet();
  r.overlaps = measure::overlaps_of(m.observation.lo().shown, m.observation.hi().shown);
  r.costs_lo = op_costs(m.facts.costs.front());
  r.costs_hi = op_costs(m.facts.costs.back());
  return r;
}

std::vector<std::string> growing_ops(const AttributionReport& r) {
  std::vector<std::string> ops;
  for (const measure::OpGrowth& op : r.attribution.ops) {
    if (report::grows(op, r.attribution)) ops.push_back(op.op);
  }
  return ops;
}

// What was counted in this process, where anything was; nothing samples the host's instructions.
std::optional<EvidenceRuns> runs_on_host(const measure::Counted& counted) {
  if (!counted.problem.empty()) return std::nullopt;
  EvidenceRuns runs;
  runs.counted = counted;
  runs.sampled.problem = "instructions that wait are not sampled on the host";
  return runs;
}

void add_evidence(AttributionReport& r, const EvidenceRuns* runs, const Measured& base,
                  const DeviceApi* device) {
  const int64_t units = device ? device->info().compute_units : 0;
  for (const measure::Decomposition& parts : r.decompositions) {
    measure::Evidence evidence;
    if (runs) {
      evidence = measure::evidence_of(parts.op, runs->counted, runs->sampled, units);
    } else {
      evidence.why_no_counters = base.counted->problem;
    }
    r.evidence.push_back({parts.op, parts.bytes_hi, std::move(evidence)});
  }
}

void judge(AttributionReport& r, const Measured& m) {
  report::LogitsHashes hashes;
  for (int i : {0, 1}) {
    hashes.unwatched[i] = m.facts.unwatched_hash[i];
    hashes.watched[i] = m.facts.watched_hash[i];
  }
  r.gates = report::attribution_gates(r);
  r.gates.push_back(report::plan_gate(r, hashes));
  if (!r.trusted()) return;
  if (const auto gaps = measure::diagnose_gaps(r.attribution, r.eager)) {
    r.diagnoses.push_back(*gaps);
  }
  for (const measure::Decomposition& parts : r.decompositions) {
    const auto of = std::find_if(r.evidence.begin(), r.evidence.end(),
                                 [&](const auto& evidence) { return evidence.op == parts.op; });
    r.diagnoses.push_back(measure::diagnose(
        parts, of == r.evidence.end() ? measure::Evidence{} : of->evidence, r.peaks));
  }
}

// What marks the result, and withholds nothing.
void judge_machine(AttributionReport& r, const GpuGuard& guard) {
  r.watermark = guard.watermark();
  r.machine_gates = guard.all_gates();
  for (report::Gate& gate : report::device_ceiling_gates(r.device, r.peaks)) {
    r.machine_gates.push_back(std::move(gate));
  }
}

// --- Output

void add_eager_samples(Json& samples, const EagerSamples& eager,
                       const std::vector<int64_t>& depths) {
  for (int i : {0, 1}) {
    samples.push_back({{"arm", "eager"},
                       {"depth", i == 0 ? depths.front() : depths.back()},
                       {"values", eager.steps_ns[i]}});
  }
}

// Before which round a sample of the peaks was taken.
size_t round_of_peak(const Observation& observation, size_t sample) {
  if (!observation.is_apart()) return sample * kRoundsBetweenPeaks;
  return sample < kPeaksAtEachEnd ? 0 : observation.n_rounds();
}

report::Result document_of(const AttributionReport& r, const std::vector<Measured>& measured,
                           const EvidenceRuns* runs, const Json& machine, const Context& context) {
  report::Result document;
  document.command = context.arguments;
  document.machine = machine;
  for (size_t i = 0; i < measured.size(); ++i) {
    for (Json& sample :
         measure::observation_samples(measured[i].observation, r.depths, static_cast<int>(i))) {
      document.samples.push_back(std::move(sample));
    }
    for (size_t at = 0; at < measured[i].memory_gbps.size(); ++at) {
      document.samples.push_back({{"arm", "ceiling"},
                                  {"configuration", i},
                                  {"round", round_of_peak(measured[i].observation, at)},
                                  {"gbps", measured[i].memory_gbps[at]}});
    }
  }
  document.summary["observation"] =
      measure::observation_header(measured.front().observation, r.depths);
  document.summary["attribution"] = report::attribution_json(r);
  for (size_t i = 1; i < measured.size(); ++i) {
    document.summary["changed_observations"].push_back(
        measure::observation_header(measured[i].observation, r.depths));
  }
  document.summary["watermark"] = r.watermark.empty() ? Json(nullptr) : Json(r.watermark);
  if (runs) {
    document.summary["watched"] = {{"counters", measure::counted_json(runs->counted)},
                                   {"stalls", measure::sampled_json(runs->sampled)}};
  }
  if (const auto& eager = measured.front().eager) {
    add_eager_samples(document.samples, *eager, r.depths);
  }
  document.gates = r.all_gates();
  return document;
}

int show(const AttributionReport& r, const std::vector<Measured>& measured,
         const EvidenceRuns* runs, const AttributeFlags& flags, const Json& machine,
         const Context& context) {
  const Json document = document_of(r, measured, runs, machine, context).to_json();
  if (!flags.html.empty()) {
    write_text_file(flags.html, report::attribution_html(r, document));
    say(context.flags.quiet, "wrote {}", flags.html);
  }
  if (!flags.perfetto.empty()) {
    write_text_file(flags.perfetto, report::perfetto_trace(report::attribution_tracks(
                                        measured.front().observation, r.depths)));
    say(context.flags.quiet, "wrote {}: open it in ui.perfetto.dev", flags.perfetto);
  }
  if (context.flags.json) {
    write_stdout(dump_json(document) + "\n");
  } else {
    write_stdout(report::attribution_text(r, stdout_colour()));
  }
  return report_gates(r.all_gates());
}

// Windows that prove nothing: what was seen, and no attribution.
int show_broken(const Measured& m, const std::vector<int64_t>& depths, const GpuGuard& guard,
                const Json& machine, const Context& context) {
  report::Result document;
  document.command = context.arguments;
  document.machine = machine;
  document.summary["observation"] = measure::observation_header(m.observation, depths);
  document.summary["watermark"] =
      guard.watermark().empty() ? Json(nullptr) : Json(guard.watermark());
  document.gates = guard.all_gates();
  document.gates.push_back(report::broken_window_gate(m.observation.problem));
  if (context.flags.json) {
    write_stdout(dump_json(document.to_json()) + "\n");
  } else if (!guard.watermark().empty()) {
    write_stdout(guard.watermark() + "\n");
  }
  return report_gates(document.gates);
}

// What each knob changed beside what was predicted of it and what its op does alone.
void confirm_all(AttributionReport& r, const std::vector<Knob>& knobs,
                 const std::vector<Measured>& measured, const AttributeFlags& flags,
                 const measure::Machine& machine, const CommonFlags& common) {
  const ConfirmSetting setting{.info = measured.front().facts.info,
                               .page_tokens = flags.model.page_tokens,
                               .n_parallel = flags.n_parallel,
                               .kv_tokens = {r.depths.front() + 1, r.depths.back() + 1},
                               .seed = flags.seed};
  const Backend& backend = engine::select_backend(common.backend, common.backend_dir);
  const std::vector<KnobProbe> probes = probe_knobs(knobs, backend, setting, machine, common);
  for (size_t i = 0; i < knobs.size(); ++i) {
    const Measured& m = measured[i + 1];
    AttributionReport changed = report_of(flags, r.depths, m);
    decompose_ops(changed, flags, growing_ops(r));
    judge(changed, m);
    report::Confirmation& confirmation = r.confirmations.emplace_back(
        confirmation_of(knobs[i], r, changed, probes[i].launches(setting)));
    confirmation.probed_op = knobs[i].op;
    confirmation.probed = probes[i].probed;
    name_gaps(confirmation, r, changed);
    if (probes[i].nodes_before.kernels.empty()) continue;  // of a host
    if (i == 0) {
      r.gates.push_back(verbatim_gate("verbatim", knobs[i].variant_before,
                                      measured.front().facts.attn_kernels, probes[i].nodes_before));
    }
    report::add_confirmation_gate(r, verbatim_gate("verbatim_changed", knobs[i].variant_after,
                                                   m.facts.attn_kernels, probes[i].nodes_after));
  }
}

int cmd_attribute(const AttributeFlags& flags, const Context& context) {
  const CommonFlags& common = context.flags;
  if (flags.census_child) return census_child(flags, common);
  if (!flags.evidence_child.empty()) return evidence_child(flags, common);
  const std::vector<int64_t> depths = depths_of(flags);
  const bool on_host = !is_watched_apart(common);
  require_trace_source(common);  // refuses now, not after minutes
  if (!flags.html.empty()) require_writable(flags.html);
  if (!flags.perfetto.empty()) require_writable(flags.perfetto);
  const measure::Machine machine = measure::inspect_machine();
  GpuGuard guard(common, flags.allow_busy);
  guard.run_canary();
  Json machine_json = report::machine_json(machine);
  machine_json["state"]["before"] = guard.state();
  Subjects subjects = open_subjects(flags, depths, common);
  const std::vector<Knob> knobs = std::move(subjects.knobs);
  std::vector<Measured> measured =
      on_host && !flags.separate
          ? measure_together(flags, depths, std::move(subjects.all), machine, common)
          : measure_apart(depths, std::move(subjects.all), machine, context);
  machine_json["state"]["after"] = guard.state();
  for (const Measured& m : measured) {
    if (m.observation.problem.empty()) continue;
    return show_broken(m, depths, guard, machine_json, context);
  }
  AttributionReport r = report_of(flags, depths, measured.front());
  decompose_ops(r, flags, growing_ops(r));
  const std::optional<EvidenceRuns> runs =
      on_host ? runs_on_host(*measured.front().counted)
              : evidence_in_children(context.arguments, growing_ops(r));
  add_evidence(r, runs ? &*runs : nullptr, measured.front(), device_of(common));
  judge_machine(r, guard);
  judge(r, measured.front());
  if (r.trusted()) confirm_all(r, knobs, measured, flags, machine, common);
  if (!r.trusted()) {  // the base's probe may have failed its gate
    r.diagnoses.clear();
    r.confirmations.clear();
  }
  return show(r, measured, runs ? &*runs : nullptr, flags, machine_json, context);
}

}  // namespace

RunCommand add_attribute(CLI::App& app, Context& context) {
  auto flags = std::make_shared<AttributeFlags>();
  add_model_argument(app, flags->model.model);
  app.add_option("--depths", flags->depths,
                 "Tokens in the cache before the step; growth is from the least to the most, those "
                 "between only join the line over depth")
      ->capture_default_str()
      ->type_name("A,B");
  app.add_option("--n-parallel", flags->n_parallel,
                 "(-npl) Sequences of that depth side by side, one token of each in a step")
      ->capture_default_str()
      ->check(CLI::Range(1, kMostSequences))
      ->type_name("N");
  app.add_option("--seconds", flags->seconds,
                 "Most time to measure; it ends before when the intervals are narrow enough")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 36000.0))
      ->type_name("S");
  app.add_option("-r,--rounds", flags->rounds, "Least number of rounds")
      ->capture_default_str()
      ->check(CLI::Range(6, 2000))
      ->type_name("N");
  app.add_option("--fill", flags->fill,
                 "How the caches are filled: real prefill, or synthetic keys and values behind 256 "
                 "real tokens")
      ->capture_default_str()
      ->check(CLI::IsMember({"real", "synthetic"}))
      ->type_name("HOW");
  add_seed_flag(app, "-s,--seed", "Seed of the tokens and of the order of the rounds", flags->seed);
  app.add_option("--variant", flags->variant,
                 "A variant of an op that runs in its place, by the name that probe has for it")
      ->type_name("NAME");
  app.add_option("--confirm", flags->confirm,
                 "Change one thing and compare with the prediction, again for each: threads=N, "
                 "cache-type=TYPE, variant=NAME, or knobs of the --variant: warps=8,window=256")
      ->allow_extra_args(false)
      ->type_name("KNOB=VALUE");
  app.add_option("--html", flags->html, "Write the report as one page")->type_name("FILE");
  app.add_option("--perfetto", flags->perfetto, "Write a step of both depths as a Perfetto trace")
      ->type_name("FILE");
  app.add_flag("--separate", flags->separate,
               "Watch steps in a process of its own, as is done on devices always");
  app.add_flag("--allow-busy", flags->allow_busy,
               "Measure on a GPU that is not idle, and mark the result");
  app.add_flag(kCensusChildFlag, flags->census_child)->group("");
  app.add_option(kEvidenceChildFlag, flags->evidence_child)->group("");
  add_engine_flags(app, flags->model);
  return [flags, &context] { return cmd_attribute(*flags, context); };
}

}  // namespace fathom::cli
