// SPDX-License-Identifier: Apache-2.0
// fathom attribute: which ops of a decode step grow with depth, by how much, and why. Unwatched and
// watched steps take turns; the sum of the differences must meet the unwatched difference, or there
// is no diagnosis and the exit status is 4.
#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/output_file.hpp"
#include "cli/arguments.hpp"
#include "cli/attribute_census.hpp"
#include "cli/attribute_confirm.hpp"
#include "cli/attribute_evidence.hpp"
#include "cli/attribute_program.hpp"
#include "cli/command.hpp"
#include "cli/confirm.hpp"
#include "cli/engine_kernels.hpp"
#include "cli/gpu_guard.hpp"
#include "cli/interrupt.hpp"
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

constexpr int kRoundsBetweenPeaks = 6;
constexpr int kMostSequences = 1024;  // of a step

struct AttributeFlags {
  ModelFlags model;
  std::string depths = "64,1641";
  std::string fill = "real";
  double seconds = 60;
  int rounds = 10;
  uint64_t seed = 1;
  std::string variant, html, perfetto;
  std::vector<std::string> confirm;
  int n_parallel = 1;
  bool separate = false;
  bool census_child = false;
  std::string evidence_child;
  bool allow_busy = false;
};

std::vector<int64_t> depths_of(const AttributeFlags& flags) {
  std::vector<int64_t> depths = parse_number_list(flags.depths, "--depths");
  std::sort(depths.begin(), depths.end());
  depths.erase(std::unique(depths.begin(), depths.end()), depths.end());
  if (depths.size() < 2) {
    fail(ErrorCode::usage, "--depths {}: growth needs two different depths at least", flags.depths);
  }
  return depths;
}

CacheFill fill_of(const AttributeFlags& flags) {
  return flags.fill == "synthetic" ? CacheFill::synthetic : CacheFill::real;
}

// A loaded model with its sequences at the depths.
struct Subject {
  std::unique_ptr<EngineKernels> kernels;  // null where another sink hears of captures
  std::unique_ptr<OpenedModel> opened;     // stays where it is, as the program refers to it
  std::unique_ptr<ModelProgram> program;
  std::vector<std::vector<measure::CostRecorder::Entry>> costs;  // [depth]
  uint64_t hash[2];                                              // of unwatched steps

  size_t n_ops() const { return costs.back().size() + costs.front().size(); }
};

Subject open_subject(const AttributeFlags& flags, const std::vector<int64_t>& depths,
                     const CommonFlags& common, const Knob* knob = nullptr,
                     OpScopeSink* capture_sink = nullptr) {
  OpenOptions options = open_options(flags.model, common);
  options.n_ctx = depths.back() + 1;
  options.max_sequences = static_cast<int>(depths.size()) * flags.n_parallel;
  options.variant = flags.variant;
  if (knob) knob->apply(options);
  Subject subject{
      nullptr,
      std::make_unique<OpenedModel>(open_model(flags.model.model, std::move(options), common)),
      nullptr,
      {},
      {}};
  if (const DeviceApi* device = device_of(common); device && !capture_sink) {
    subject.kernels = std::make_unique<EngineKernels>(*device);
    capture_sink = subject.kernels.get();
  }
  Model& model = subject.opened->model;
  model.set_capture_scope_sink(capture_sink);
  ProgressBar bar("filling", common.quiet);
  const auto fill = [&] {
    subject.program = std::make_unique<ModelProgram>(
        model, ModelProgram::Filling{depths, flags.n_parallel, fill_of(flags), flags.seed},
        [&](double share) { bar.update(share); });
  };
  if (subject.kernels) {
    subject.kernels->watch(fill);
  } else {
    fill();
  }
  for (size_t i = 0; i < depths.size(); ++i) subject.costs.push_back(subject.program->costs(i));
  subject.hash[0] = subject.program->logits_hash(0, nullptr);
  subject.hash[1] = subject.program->logits_hash(depths.size() - 1, nullptr);
  return subject;
}

// The engine as asked for, and those with a knob changed each.
struct Subjects {
  std::vector<Subject> all;  // the first is the base
  std::vector<Knob> knobs;
};

Subjects open_subjects(const AttributeFlags& flags, const std::vector<int64_t>& depths,
                       const CommonFlags& common, OpScopeSink* capture_sink = nullptr) {
  Subjects out;
  out.all.push_back(open_subject(flags, depths, common, nullptr, capture_sink));
  OpenOptions base = open_options(flags.model, common);
  base.variant = flags.variant;
  const Backend& backend = engine::select_backend(common.backend, common.backend_dir);
  for (const std::string& text : flags.confirm) {
    out.knobs.push_back(parse_knob(text, base, out.all.front().opened->model.info(), backend));
  }
  for (const Knob& knob : out.knobs) {
    try {
      out.all.push_back(open_subject(flags, depths, common, &knob, capture_sink));
    } catch (const Error& e) {
      if (e.code() != ErrorCode::out_of_memory) throw;
      fail(ErrorCode::out_of_memory,
           "--confirm has the engine and each changed one in memory at once; number {} of {} does "
           "not fit: {}",
           out.all.size() + 1, out.knobs.size() + 1, e.what());
    }
  }
  return out;
}

// What is left of a subject when its model is closed.
struct Facts {
  ModelInfo info;
  int64_t kv_token_bytes;
  std::vector<std::vector<measure::CostRecorder::Entry>> costs;
  uint64_t unwatched_hash[2], watched_hash[2] = {0, 0};
  std::vector<KernelLaunch> attn_kernels;  // of a call in the captured step

  explicit Facts(const Subject& subject)
      : info(subject.opened->model.info()),
        kv_token_bytes(subject.opened->model.memory().kv_token_bytes),
        costs(subject.costs),
        unwatched_hash{subject.hash[0], subject.hash[1]} {
    if (subject.kernels) attn_kernels = subject.kernels->call_of("attn");
  }
};

void hash_watched(Facts& facts, ModelProgram& program, TraceSource& source, size_t n_depths) {
  for (size_t i : {size_t{0}, size_t{1}}) {
    source.start();
    facts.watched_hash[i] = program.logits_hash(i == 0 ? 0 : n_depths - 1, &source.scopes());
    source.stop(1);
  }
}

measure::ObserveOptions observe_options(const AttributeFlags& flags, size_t n_depths,
                                        const std::function<void(double)>& progress) {
  measure::ObserveOptions options;
  options.n_depths = n_depths;
  options.min_rounds = flags.rounds;
  options.max_seconds = flags.seconds;
  options.seed = flags.seed;
  options.cancel = &interrupted();
  options.progress = progress;
  return options;
}

// --- The three ways to observe

struct Measured {
  Facts facts;
  Observation observation;
  measure::Peaks peaks;
  std::vector<double> memory_gbps;  // samples
  std::optional<EagerSamples> eager{};
};

Observation observe_all(const AttributeFlags& flags, measure::StepProgram& program,
                        measure::ObserveOptions options, std::vector<PeakSampler*> samplers,
                        const CommonFlags& common) {
  ProgressBar bar("measuring", common.quiet);
  options.progress = [&](double share) { bar.update(share); };
  options.between_rounds = [&](int round) {
    if (round % kRoundsBetweenPeaks != 0) return;
    for (PeakSampler* sampler : samplers) sampler->sample();
  };
  options.max_seconds = flags.seconds;
  return measure::observe(program, options);
}

// The samplers of the subjects; one on as many threads as the base has its peaks.
class Samplers {
 public:
  Samplers(const std::vector<Subject>& subjects, const measure::Machine& machine,
           const CommonFlags& common) {
    const int threads = subjects.front().opened->model.info().threads;
    for (const Subject& subject : subjects) {
      const ModelInfo& info = subject.opened->model.info();
      const bool own = all_.empty() || info.threads != threads;
      if (own) all_.push_back(std::make_unique<PeakSampler>(info, machine, common));
      of_.push_back(own ? all_.size() - 1 : 0);
    }
  }
  std::vector<PeakSampler*> all() const {
    std::vector<PeakSampler*> out;
    for (const auto& sampler : all_) out.push_back(sampler.get());
    return out;
  }
  void fill(std::vector<Measured>& measured) const {
    for (size_t s = 0; s < measured.size(); ++s) {
      measured[s].peaks = all_[of_[s]]->peaks();
      if (s == 0 || of_[s] != 0) measured[s].memory_gbps = all_[of_[s]]->memory_gbps();
    }
  }

 private:
  std::vector<std::unique_ptr<PeakSampler>> all_;
  std::vector<size_t> of_;  // of each subject
};

// The steps of all subjects in the same rounds, apart again.
std::vector<Observation> observe_subjects(const AttributeFlags& flags,
                                          std::vector<Subject>& subjects, size_t n_depths,
                                          measure::ObserveOptions options,
                                          bool (*precise)(const Observation&),
                                          const std::vector<PeakSampler*>& samplers,
                                          const CommonFlags& common) {
  const size_t n = n_depths;
  std::vector<measure::StepProgram*> programs;
  for (const Subject& subject : subjects) programs.push_back(subject.program.get());
  const auto of_subject = [n](const Observation& all, size_t s) {
    std::vector<size_t> indices(n);
    for (size_t i = 0; i < n; ++i) indices[i] = s * n + i;
    return measure::of_depths(all, indices);
  };
  options.n_depths = n * subjects.size();
  for (size_t s = 0; s < subjects.size(); ++s) {
    options.traced.insert(options.traced.end(), {s * n, s * n + n - 1});
  }
  options.precise_enough = [&](const Observation& all) {
    for (size_t s = 0; s < subjects.size(); ++s) {
      if (!precise(of_subject(all, s))) return false;
    }
    return true;
  };
  ProgramSeries series(programs, n);
  const Observation all = observe_all(flags, series, options, samplers, common);
  std::vector<Observation> out;
  for (size_t s = 0; s < subjects.size(); ++s) out.push_back(of_subject(all, s));
  return out;
}

std::vector<Measured> facts_of(const std::vector<Subject>& subjects) {
  std::vector<Measured> out;
  for (const Subject& subject : subjects) out.push_back({Facts(subject), {}, {}, {}});
  return out;
}

// Watched and unwatched steps in turn.
std::vector<Measured> measure_together(const AttributeFlags& flags,
                                       const std::vector<int64_t>& depths,
                                       std::vector<Subject> subjects,
                                       const measure::Machine& machine, const CommonFlags& common) {
  const auto source = make_trace_source(common, subjects.front().n_ops());
  std::vector<Measured> out = facts_of(subjects);
  for (size_t s = 0; s < subjects.size(); ++s) {
    hash_watched(out[s].facts, *subjects[s].program, *source, depths.size());
  }
  const Samplers samplers(subjects, machine, common);
  measure::ObserveOptions options = observe_options(flags, depths.size(), {});
  options.source = source.get();
  const std::vector<Observation> seen =
      observe_subjects(flags, subjects, depths.size(), options, measure::residual_is_precise,
                       samplers.all(), common);
  for (size_t s = 0; s < seen.size(); ++s) out[s].observation = seen[s];
  samplers.fill(out);
  return out;
}

// Unwatched steps here, watched ones in a process that starts when the models here are closed.
std::vector<Measured> measure_apart(const AttributeFlags& flags, const std::vector<int64_t>& depths,
                                    std::vector<Subject> subjects, const measure::Machine& machine,
                                    const Context& context) {
  const CommonFlags& common = context.flags;
  std::vector<Measured> out = facts_of(subjects);
  {
    const Samplers samplers(subjects, machine, common);
    const std::vector<Observation> seen =
        observe_subjects(flags, subjects, depths.size(), observe_options(flags, depths.size(), {}),
                         measure::growth_is_precise, samplers.all(), common);
    for (size_t s = 0; s < seen.size(); ++s) out[s].observation = seen[s];
    samplers.fill(out);
  }
  for (size_t s = 0; s < out.size(); ++s) {
    out[s].eager = time_eager_steps(subjects[s].opened->model, *subjects[s].program, depths.size());
  }
  subjects.clear();
  std::vector<CensusResult> censuses = census_in_child(context.arguments);
  if (censuses.size() != out.size()) {
    fail(ErrorCode::internal, "the process that watches saw {} engines, not {}", censuses.size(),
         out.size());
  }
  for (size_t s = 0; s < out.size(); ++s) {
    Observation& from = censuses[s].observation;
    Observation& to = out[s].observation;
    for (const bool last : {false, true}) {
      measure::DepthSamples& seen = last ? from.depths.back() : from.depths.front();
      measure::DepthSamples& depth = last ? to.depths.back() : to.depths.front();
      depth.traced = std::move(seen.traced);
      depth.plan = std::move(seen.plan);
      depth.shown = std::move(seen.shown);
      out[s].facts.watched_hash[last] = censuses[s].logits_hash[last];
    }
    to.problem = from.problem;
  }
  return out;
}

int census_child(const AttributeFlags& flags, const CommonFlags& common) {
  const std::vector<int64_t> all = depths_of(flags);
  const std::vector<int64_t> depths{all.front(), all.back()};
  // A device's source must be there before the device is used; the host's needs the ops' number.
  std::unique_ptr<TraceSource> source;
  if (is_watched_apart(common)) source = make_trace_source(common, 0);
  Subjects subjects = open_subjects(flags, depths, common, source ? &source->scopes() : nullptr);
  if (!source) source = make_trace_source(common, subjects.all.front().n_ops());
  std::vector<CensusResult> results;
  for (const Subject& subject : subjects.all) {
    Facts facts(subject);
    hash_watched(facts, *subject.program, *source, depths.size());
    results.push_back({{}, {facts.watched_hash[0], facts.watched_hash[1]}});
  }
  measure::ObserveOptions options = observe_options(flags, depths.size(), {});
  options.untraced = false;
  options.source = source.get();
  const std::vector<Observation> seen = observe_subjects(
      flags, subjects.all, depths.size(), options, measure::growth_is_precise, {}, common);
  for (size_t s = 0; s < seen.size(); ++s) results[s].observation = seen[s];
  write_stdout(dump_json(census_json(results, depths)));
  return 0;
}

int evidence_child(const AttributeFlags& flags, const CommonFlags& common) {
  const EvidenceSource source(flags.evidence_child, common);
  Json out = source.nothing();
  if (source.usable()) {
    const std::vector<int64_t> all = depths_of(flags);
    const Subject subject = open_subject(flags, {all.front(), all.back()}, common);
    out = source.watch(subject.opened->model, *subject.program, *device_of(common));
  }
  write_stdout(dump_json(out));
  return 0;
}

// --- The report

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

// What is known of an op's launches at the deeper anchor, beside what further processes saw.
measure::Evidence host_evidence(const measure::Machine& machine) {
  measure::Evidence evidence;
  evidence.why_no_counters =
      machine.counters.empty() ? "not read on the host by this command" : machine.counters;
  return evidence;
}

void add_evidence(AttributionReport& r, const EvidenceRuns* runs, const measure::Machine& machine,
                  const DeviceApi* device) {
  for (const measure::Decomposition& parts : r.decompositions) {
    r.evidence.push_back({parts.op, parts.bytes_hi,
                          runs ? measure::evidence_of(parts.op, runs->counted, runs->sampled,
                                                      device->info().compute_units)
                               : host_evidence(machine)});
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
  r.machine_gates = guard.gates();
  if (!guard.canary_us().empty()) {
    r.machine_gates.push_back(report::canary_gate(guard.canary_us()));
  }
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

report::Result document_of(const AttributionReport& r, const std::vector<Measured>& measured,
                           const EvidenceRuns* runs, const measure::Machine& machine,
                           const Context& context) {
  report::Result document;
  document.command = context.arguments;
  document.machine = report::machine_json(machine);
  for (size_t i = 0; i < measured.size(); ++i) {
    for (Json& sample :
         measure::observation_samples(measured[i].observation, r.depths, static_cast<int>(i))) {
      document.samples.push_back(std::move(sample));
    }
    for (size_t at = 0; at < measured[i].memory_gbps.size(); ++at) {
      document.samples.push_back({{"arm", "ceiling"},
                                  {"configuration", i},
                                  {"round", at * kRoundsBetweenPeaks},
                                  {"gbps", measured[i].memory_gbps[at]}});
    }
  }
  document.summary["observation"] =
      measure::observation_header(measured.front().observation, r.depths);
  document.summary["attribution"] = report::attribution_json(r);
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
         const EvidenceRuns* runs, const AttributeFlags& flags, const measure::Machine& machine,
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
int show_broken(const Measured& m, const std::vector<int64_t>& depths,
                const measure::Machine& machine, const Context& context) {
  report::Result document;
  document.command = context.arguments;
  document.machine = report::machine_json(machine);
  document.summary["observation"] = measure::observation_header(m.observation, depths);
  document.gates = {report::broken_window_gate(m.observation.problem)};
  if (context.flags.json) write_stdout(dump_json(document.to_json()) + "\n");
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
      r.gates.push_back(verbatim_gate(knobs[i].variant_before, measured.front().facts.attn_kernels,
                                      probes[i].nodes_before));
    }
    r.gates.push_back(
        verbatim_gate(knobs[i].variant_after, m.facts.attn_kernels, probes[i].nodes_after));
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
  Subjects subjects = open_subjects(flags, depths, common);
  const std::vector<Knob> knobs = std::move(subjects.knobs);
  std::vector<Measured> measured =
      on_host && !flags.separate
          ? measure_together(flags, depths, std::move(subjects.all), machine, common)
          : measure_apart(flags, depths, std::move(subjects.all), machine, context);
  for (const Measured& m : measured) {
    if (m.observation.problem.empty()) continue;
    return show_broken(m, depths, machine, context);
  }
  AttributionReport r = report_of(flags, depths, measured.front());
  decompose_ops(r, flags, growing_ops(r));
  std::optional<EvidenceRuns> runs;
  if (!on_host) runs = evidence_in_children(context.arguments, growing_ops(r));
  add_evidence(r, runs ? &*runs : nullptr, machine, device_of(common));
  judge_machine(r, guard);
  judge(r, measured.front());
  if (r.trusted()) confirm_all(r, knobs, measured, flags, machine, common);
  if (!r.trusted()) r.diagnoses.clear();  // a probe may have failed its gate
  return show(r, measured, runs ? &*runs : nullptr, flags, machine, context);
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
