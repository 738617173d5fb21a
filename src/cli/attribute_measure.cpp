// SPDX-License-Identifier: Apache-2.0
// Opening, filling, and the rounds in which all engines take turns.
#include "cli/attribute_measure.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "cli/arguments.hpp"
#include "cli/attribute_census.hpp"
#include "cli/interrupt.hpp"
#include "cli/profile.hpp"
#include "cli/terminal.hpp"
#include "engine/bind_model.hpp"

namespace fathom::cli {
namespace {

using measure::Observation;

Subject open_subject(const AttributeFlags& flags, const std::vector<int64_t>& depths,
                     const CommonFlags& common, const Knob* knob = nullptr) {
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
  Model& model = subject.opened->model;
  if (const DeviceApi* device = device_of(common)) {
    subject.kernels = std::make_unique<EngineKernels>(*device);
    model.set_capture_scope_sink(subject.kernels.get());
  }
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
  void sample(int times) const {
    for (int i = 0; i < times; ++i) {
      for (const auto& sampler : all_) sampler->sample();
    }
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

// The steps of all programs in the same rounds, apart again.
std::vector<Observation> observe_programs(const AttributeFlags& flags,
                                          const std::vector<measure::StepProgram*>& programs,
                                          size_t n_depths, measure::ObserveOptions options,
                                          bool (*precise)(const Observation&),
                                          const std::vector<PeakSampler*>& samplers,
                                          const CommonFlags& common) {
  const size_t n = n_depths;
  const auto of_program = [n](const Observation& all, size_t s) {
    std::vector<size_t> indices(n);
    for (size_t i = 0; i < n; ++i) indices[i] = s * n + i;
    return measure::of_depths(all, indices);
  };
  options.n_depths = n * programs.size();
  for (size_t s = 0; s < programs.size(); ++s) {
    options.traced.insert(options.traced.end(), {s * n, s * n + n - 1});
  }
  options.precise_enough = [&](const Observation& all) {
    for (size_t s = 0; s < programs.size(); ++s) {
      if (!precise(of_program(all, s))) return false;
    }
    return true;
  };
  ProgramSeries series(programs, n);
  const Observation all = observe_all(flags, series, options, samplers, common);
  std::vector<Observation> out;
  for (size_t s = 0; s < programs.size(); ++s) out.push_back(of_program(all, s));
  return out;
}

std::vector<measure::StepProgram*> programs_of(const std::vector<Subject>& subjects) {
  std::vector<measure::StepProgram*> out;
  for (const Subject& subject : subjects) out.push_back(subject.program.get());
  return out;
}

std::vector<Measured> facts_of(const std::vector<Subject>& subjects) {
  std::vector<Measured> out;
  for (const Subject& subject : subjects) out.push_back({Facts(subject), {}, {}, {}});
  return out;
}

void count_base(std::vector<Measured>& measured, const std::vector<Subject>& subjects,
                size_t n_depths) {
  const Subject& base = subjects.front();
  measured.front().counted = count_on_host(base.opened->model, *base.program, n_depths);
}

}  // namespace

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

Subjects open_subjects(const AttributeFlags& flags, const std::vector<int64_t>& depths,
                       const CommonFlags& common) {
  Subjects out;
  out.all.push_back(open_subject(flags, depths, common));
  OpenOptions base = open_options(flags.model, common);
  base.variant = flags.variant;
  const Backend& backend = engine::select_backend(common.backend, common.backend_dir);
  for (const std::string& text : flags.confirm) {
    out.knobs.push_back(parse_knob(text, base, out.all.front().opened->model.info(), backend));
  }
  for (const Knob& knob : out.knobs) {
    try {
      out.all.push_back(open_subject(flags, depths, common, &knob));
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
      observe_programs(flags, programs_of(subjects), depths.size(), options,
                       measure::residual_is_precise, samplers.all(), common);
  for (size_t s = 0; s < seen.size(); ++s) out[s].observation = seen[s];
  samplers.fill(out);
  count_base(out, subjects, depths.size());
  return out;
}

std::vector<Measured> measure_apart(const std::vector<int64_t>& depths,
                                    std::vector<Subject> subjects, const measure::Machine& machine,
                                    const Context& context) {
  const CommonFlags& common = context.flags;
  std::vector<Measured> out = facts_of(subjects);
  for (size_t s = 0; s < out.size(); ++s) {
    out[s].eager = time_eager_steps(subjects[s].opened->model, *subjects[s].program, depths.size());
  }
  if (!is_watched_apart(common)) count_base(out, subjects, depths.size());
  std::vector<CensusResult> censuses;
  {
    const Samplers samplers(subjects, machine, common);
    subjects.clear();
    samplers.sample(kPeaksAtEachEnd);
    censuses = census_in_child(context.arguments);
    samplers.sample(kPeaksAtEachEnd);
    samplers.fill(out);
  }
  if (censuses.size() != out.size()) {
    fail(ErrorCode::internal, "the process that measures saw {} engines, not {}", censuses.size(),
         out.size());
  }
  for (size_t s = 0; s < out.size(); ++s) {
    out[s].observation = std::move(censuses[s].observation);
    for (const int i : {0, 1}) out[s].facts.watched_hash[i] = censuses[s].logits_hash[i];
  }
  return out;
}

int census_child(const AttributeFlags& flags, const CommonFlags& common) {
  const std::vector<int64_t> depths = depths_of(flags);
  std::vector<Subject> subjects = open_subjects(flags, depths, common).all;
  std::vector<Measured> measured = facts_of(subjects);
  const std::vector<measure::StepProgram*> programs = programs_of(subjects);
  // Nothing but steps runs here, now and later.
  std::vector<Observation> unwatched =
      observe_programs(flags, programs, depths.size(), observe_options(flags, depths.size(), {}),
                       measure::part_is_precise, {}, common);
  // Until here nothing that watches was in this process; from here on memory is the same.
  const auto source = make_trace_source(common, subjects.front().n_ops());
  std::vector<AnchorsOf> anchors;
  std::vector<measure::StepProgram*> ends;
  for (size_t s = 0; s < subjects.size(); ++s) {
    if (is_watched_apart(common)) {
      subjects[s].opened->model.set_capture_scope_sink(&source->scopes());
    }
    hash_watched(measured[s].facts, *subjects[s].program, *source, depths.size());
    anchors.emplace_back(*subjects[s].program, depths.size());
  }
  for (AnchorsOf& program : anchors) ends.push_back(&program);
  measure::ObserveOptions options = observe_options(flags, 2, {});
  options.source = source.get();
  options.untraced = false;
  std::vector<Observation> watched =
      observe_programs(flags, ends, 2, options, measure::part_is_precise, {}, common);
  std::vector<CensusResult> results;
  for (size_t s = 0; s < subjects.size(); ++s) {
    measure::add_watched(unwatched[s], std::move(watched[s]));
    const uint64_t* const hash = measured[s].facts.watched_hash;
    results.push_back({std::move(unwatched[s]), {hash[0], hash[1]}});
  }
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

}  // namespace fathom::cli
