// SPDX-License-Identifier: Apache-2.0
// What is stored, then what the samples say instead.
#include "report/attribution_reader.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "measure/device_flops.hpp"
#include "measure/evidence.hpp"
#include "measure/observation_json.hpp"
#include "measure/spread.hpp"
#include "measure/statistics.hpp"
#include "report/attribution_gates.hpp"
#include "report/fields.hpp"
#include "report/time_text.hpp"

namespace fathom::report {
namespace {

using measure::Bottleneck;
using measure::Decomposition;

std::vector<std::string> texts(const Fields& list) {
  std::vector<std::string> out;
  const size_t n = list.size();
  for (size_t i = 0; i < n; ++i) out.push_back(list.at(i).text());
  return out;
}

// Two numbers of the same kind.
Fields pair_at(const Fields& at, const char* key) {
  const Fields pair = at.at(key);
  if (pair.size() != 2) pair.refuse("two values");
  return pair;
}

measure::Interval interval_at(const Fields& at, const char* key) {
  const Fields pair = pair_at(at, key);
  return {pair.at(size_t{0}).number(), pair.at(size_t{1}).number()};
}

std::vector<measure::OpCost> costs_of(const Fields& costs) {
  std::vector<measure::OpCost> out;
  const size_t n = costs.size();
  for (size_t i = 0; i < n; ++i) {
    const Fields cost = costs.at(i);
    out.push_back({cost.at("op").text(), cost.at("bytes").whole(0), cost.at("flops").whole(0)});
  }
  return out;
}

void read_depths(const Fields& depths, AttributionReport& r) {
  const size_t n = depths.size();
  for (size_t i = 0; i < n; ++i) {
    const Fields depth = depths.at(i);
    r.depths.push_back(depth.at("depth").whole(0));
    r.kv_fill.push_back(depth.at("kv_fill").text());
    r.kv_bytes.push_back(depth.at("kv_bytes").whole(0));
  }
}

Bottleneck verdict_of(const Fields& verdict) {
  for (int i = 0; i <= static_cast<int>(Bottleneck::undetermined); ++i) {
    if (verdict.text() == bottleneck_name(static_cast<Bottleneck>(i))) return Bottleneck{i};
  }
  verdict.refuse("a verdict");
}

std::vector<measure::Diagnosis> diagnoses_of(const Fields& list) {
  std::vector<measure::Diagnosis> out;
  const size_t n = list.size();
  for (size_t i = 0; i < n; ++i) {
    const Fields d = list.at(i);
    out.push_back({d.at("op").text(), verdict_of(d.at("verdict")), texts(d.at("known")),
                   texts(d.at("missing"))});
  }
  return out;
}

Confirmation confirmation_of(const Fields& stored) {
  Confirmation out;
  out.knob = stored.at("knob").text();
  out.basis = stored.at("basis").text();
  out.gaps = texts(stored.at("gaps"));
  out.problem = stored.text_at("problem");
  const Fields effects = stored.at("effects");
  for (size_t i = 0; i < effects.size(); ++i) {
    const Fields from = effects.at(i);
    Confirmation::Effect effect{.what = from.at("what").text(),
                                .base_ns = from.at("base_ns").number(),
                                .changed_ns = from.at("changed_ns").number(),
                                .predicted_ns = {},
                                .changed_ci = interval_at(from, "changed_ci_ns")};
    if (from.has("predicted_ns")) {
      const measure::Interval predicted = interval_at(from, "predicted_ns");
      effect.predicted_ns = {predicted.lo, predicted.hi};
    }
    out.effects.push_back(std::move(effect));
  }
  if (!stored.has("probed_op")) return out;
  out.probed_op = stored.at("probed_op").text();
  out.engine_ratio = stored.at("engine_ratio").number();
  const Fields probed = stored.at("probed");
  for (size_t i = 0; i < probed.size(); ++i) {
    const Fields from = probed.at(i), us = pair_at(from, "us");
    out.probed.push_back({.memory = from.at("memory").text(),
                          .base_us = us.at(size_t{0}).number(),
                          .changed_us = us.at(size_t{1}).number(),
                          .base_ci = interval_at(from, "base_ci_us"),
                          .changed_ci = interval_at(from, "changed_ci_us")});
  }
  return out;
}

// A list; files of earlier versions have one or null.
std::vector<Confirmation> confirmations_of(const Fields& stored) {
  std::vector<Confirmation> out;
  if (stored.has("confirmation")) out.push_back(confirmation_of(stored.at("confirmation")));
  if (!stored.has("confirmations")) return out;
  const Fields list = stored.at("confirmations");
  for (size_t i = 0; i < list.size(); ++i) out.push_back(confirmation_of(list.at(i)));
  return out;
}

// From steps that the document does not hold.
void read_overlaps(const Fields& list, AttributionReport& r) {
  for (size_t i = 0; i < list.size(); ++i) {
    const Fields from = list.at(i), ns = pair_at(from, "ns");
    r.overlaps.push_back({from.at("op").text(), from.at("under").text(), ns.at(size_t{0}).number(),
                          ns.at(size_t{1}).number()});
  }
}

// Of the runs that counted and sampled, as they came; on a host only why there are none.
void read_evidence(const Fields& summary, AttributionReport& r) {
  const Fields stored = summary.at("attribution");
  if (!stored.has("evidence")) return;
  measure::Counted counted;
  measure::Sampled sampled;
  const bool watched = summary.has("watched");
  if (watched) {
    counted = measure::counted_from_json(summary.at("watched").at("counters").json());
    sampled = measure::sampled_from_json(summary.at("watched").at("stalls").json());
  }
  const Fields list = stored.at("evidence");
  for (size_t i = 0; i < list.size(); ++i) {
    const Fields from = list.at(i);
    OpEvidence& to = r.evidence.emplace_back();
    to.op = from.at("op").text();
    to.declared_bytes = from.at("declared_bytes").whole(0);
    if (watched) {
      to.evidence = measure::evidence_of(to.op, counted, sampled, from.whole_at("units", 0));
    } else {
      to.evidence.why_no_counters = from.text_at("why_no_counters");
    }
  }
}

void read_stored(const Fields& stored, AttributionReport& r) {
  r.model = stored.at("model").text();
  r.backend = stored.at("backend").text();
  r.device = stored.at("device").text();
  r.kv_type = stored.at("kv_type").text();
  r.threads = static_cast<int>(stored.at("threads").whole(0));
  r.n_parallel = stored.has("n_parallel") ? static_cast<int>(stored.at("n_parallel").whole(1)) : 1;
  r.stopped = stored.at("stopped").text();
  r.seed = stored.at("seed").unsigned_whole();
  read_depths(stored.at("depths"), r);
  const Fields peaks = stored.at("peaks");
  r.peaks.cache_gbps = peaks.number_at("cache_gbps");
  r.peaks.gflops = peaks.number_at("gflops");
  r.peaks.cache_bytes = peaks.at("cache_bytes").whole(0);
  r.peaks.f16_tensor_gflops = peaks.number_at("f16_tensor_gflops");
  r.peaks.int8_tensor_gops = peaks.number_at("int8_tensor_gops");
  if (stored.has("eager_ns")) {
    const Fields eager = pair_at(stored, "eager_ns");
    r.eager = measure::EagerSteps{{eager.at(size_t{0}).number(), eager.at(size_t{1}).number()}};
  }
  if (stored.has("overlaps")) read_overlaps(stored.at("overlaps"), r);
  // Files of earlier versions have no costs: what needs them is not judged.
  if (stored.has("costs")) {
    const Fields costs = pair_at(stored, "costs");
    r.costs_lo = costs_of(costs.at(size_t{0}));
    r.costs_hi = costs_of(costs.at(size_t{1}));
    r.kv_token_bytes = stored.at("kv_token_bytes").whole(0);
  }
  r.diagnoses = diagnoses_of(stored.at("diagnoses"));
  r.confirmations = confirmations_of(stored);
}

// Between the rounds of the first configuration.
double memory_gbps_of(const Fields& samples) {
  std::vector<double> gbps;
  const size_t n = samples.size();
  for (size_t i = 0; i < n; ++i) {
    const Fields sample = samples.at(i);
    if (sample.at("arm").text() != "ceiling" || sample.whole_at("configuration", 0) != 0) continue;
    gbps.push_back(sample.at("gbps").positive());
  }
  return gbps.empty() ? 0 : measure::median(gbps);
}

measure::Residence residence_of(const Fields& stored, const AttributionReport& r) {
  if (!r.costs_hi.empty()) return measure::residence_of(total_bytes(r.costs_hi), r.peaks);
  for (int i = 0; i < 3; ++i) {
    const auto residence = static_cast<measure::Residence>(i);
    if (stored.at("read_from").text() == residence_name(residence)) return residence;
  }
  stored.at("read_from").refuse("a residence");
}

std::optional<Arithmetic> arithmetic_of(const Fields& stored) {
  const std::string name = stored.text_at("arithmetic");
  for (const Arithmetic kind : {Arithmetic::f32, Arithmetic::f16_tensor, Arithmetic::int8_tensor}) {
    if (name == measure::arithmetic_name(kind)) return kind;
  }
  return std::nullopt;
}

measure::Parts parts_of(double ns, const measure::OpCost& cost, double gbps,
                        std::optional<double> gflops) {
  measure::Parts parts{
      .ns = ns, .bytes_ns = static_cast<double>(cost.bytes) / gbps, .compute_ns = {}};
  if (gflops) parts.compute_ns = static_cast<double>(cost.flops) / *gflops;
  return parts;
}

// Bytes and operations are those declared, and their times follow from the peaks; files of earlier
// versions do not name the arithmetic, whose time is then as stored.
Decomposition decomposition_of(const measure::OpGrowth& growth, const Fields& stored,
                               const AttributionReport& r) {
  const Fields bytes = pair_at(stored, "bytes"), flops = pair_at(stored, "flops");
  Decomposition out{.op = growth.op,
                    .bytes_lo = bytes.at(size_t{0}).whole(0),
                    .bytes_hi = bytes.at(size_t{1}).whole(0),
                    .flops_lo = flops.at(size_t{0}).whole(0),
                    .flops_hi = flops.at(size_t{1}).whole(0),
                    .lo = {},
                    .hi = {},
                    .residence = residence_of(stored, r),
                    .arithmetic = arithmetic_of(stored)};
  for (const auto& [costs, to] :
       {std::pair(&r.costs_lo, &out.bytes_lo), std::pair(&r.costs_hi, &out.bytes_hi)}) {
    for (const measure::OpCost& cost : *costs) {
      if (cost.op == growth.op) *to = cost.bytes;
    }
  }
  const double gbps = out.residence == measure::Residence::memory
                          ? r.peaks.memory_gbps
                          : std::max(r.peaks.memory_gbps, r.peaks.cache_gbps.value_or(0));
  const auto gflops = out.arithmetic ? r.peaks.of(*out.arithmetic) : std::nullopt;
  out.lo = parts_of(growth.lo_ns, {growth.op, out.bytes_lo, out.flops_lo}, gbps, gflops);
  out.hi = parts_of(growth.hi_ns, {growth.op, out.bytes_hi, out.flops_hi}, gbps, gflops);
  if (!out.arithmetic) {
    const Fields parts = pair_at(stored, "parts");
    out.lo.compute_ns = parts.at(size_t{0}).number_at("compute_ns");
    out.hi.compute_ns = parts.at(size_t{1}).number_at("compute_ns");
  }
  return out;
}

// Of the ops that grow, in their order; one that the document does not decompose is left out, which
// makes the lists differ.
std::vector<Decomposition> decompositions_of(const Fields& stored, const AttributionReport& r) {
  std::vector<Decomposition> out;
  if (r.peaks.memory_gbps <= 0) return out;
  for (const measure::OpGrowth& op : r.attribution.ops) {
    if (!grows(op, r.attribution)) continue;
    for (size_t i = 0; i < stored.size(); ++i) {
      if (stored.at(i).at("op").text() != op.op) continue;
      out.push_back(decomposition_of(op, stored.at(i), r));
      break;
    }
  }
  return out;
}

// Those that no sample decides: `plan` and what later versions add.
void add_stored_gates(const Fields& stored, AttributionReport& r) {
  std::vector<Gate>& gates = r.gates;
  const size_t n_decided = gates.size();
  for (size_t i = 0; i < stored.size(); ++i) {
    const std::string id = stored.at(i).at("id").text();
    const bool decided =
        std::any_of(gates.begin(), gates.begin() + static_cast<ptrdiff_t>(n_decided),
                    [&](const Gate& gate) { return gate.id == id; });
    if (decided) continue;
    std::vector<Gate>& to = id == "gpu_idle"           ? r.machine_gates
                            : id == "verbatim_changed" ? r.confirmation_gates
                                                       : gates;
    to.push_back({.id = id,
                  .pass = stored.at(i).at("pass").boolean(),
                  .value = stored.at(i).number_at("value"),
                  .limit = stored.at(i).number_at("limit"),
                  .why = stored.at(i).at("why").text()});
  }
}

constexpr size_t kMostChanged = 256;
constexpr const char* kInTheEngine = " in the engine";

const measure::OpGrowth* op_named(const std::vector<measure::OpGrowth>& ops,
                                  const std::string& name) {
  const auto found = std::find_if(ops.begin(), ops.end(),
                                  [&](const measure::OpGrowth& op) { return op.op == name; });
  return found == ops.end() ? nullptr : &*found;
}

// Of steps at least, in windows that prove something.
void require_sound(const measure::Observation& observation) {
  if (!observation.problem.empty()) {
    fail(ErrorCode::bad_file, "an observation that proves nothing: {}", observation.problem);
  }
  measure::require_attributable(observation);
}

// By one op of `before` and `after`, or of the whole step; nothing where there is no such op.
std::optional<Confirmation::Effect> effect_of(const Confirmation::Effect& stored,
                                              const AttributionReport& before,
                                              const measure::Attribution& after) {
  Confirmation::Effect out = stored;
  const measure::Estimate* changed = &after.closure.growth;
  out.base_ns = before.attribution.closure.growth.value;
  if (out.what.ends_with(kInTheEngine)) {
    const std::string op = out.what.substr(0, out.what.size() - std::string(kInTheEngine).size());
    const auto base =
        std::find_if(before.decompositions.begin(), before.decompositions.end(),
                     [&](const Decomposition& decomposition) { return decomposition.op == op; });
    const measure::OpGrowth* const grown = op_named(after.ops, op);
    if (base == before.decompositions.end() || !grown) return std::nullopt;
    out.base_ns = base->growth_ns();
    changed = &grown->growth;
  }
  out.changed_ns = changed->value;
  out.changed_ci = changed->interval;
  return out;
}

// What the changed engines' blocks say. Predictions, probes and sentences stay as stored.
void recompute_confirmations(const Json& document, const std::vector<int64_t>& kv_tokens,
                             AttributionReport& r) {
  const Fields all(document, ""), headers = all.at("summary").at("changed_observations");
  const Json& depths = all.at("summary").at("observation").at("depths").json();
  if (headers.size() != r.confirmations.size() || headers.size() > kMostChanged) {
    fail(ErrorCode::bad_file, "summary.changed_observations: {} for {} confirmations, at most {}",
         headers.size(), r.confirmations.size(), kMostChanged);
  }
  for (size_t i = 0; i < r.confirmations.size(); ++i) {
    Confirmation& c = r.confirmations[i];
    if (!c.problem.empty()) continue;
    if (headers.at(i).at("depths").json() != depths)
      headers.at(i).at("depths").refuse("the base's");
    const measure::Observation observation = measure::observation_from_json(
        headers.at(i).json(), all.at("samples").json(), static_cast<int>(i + 1));
    require_sound(observation);
    const measure::Attribution after = measure::attribute(observation, kv_tokens);
    std::vector<Confirmation::Effect> effects;
    for (const Confirmation::Effect& stored : c.effects) {
      if (const auto effect = effect_of(stored, r, after)) effects.push_back(*effect);
    }
    c.effects = std::move(effects);
    const measure::OpGrowth* const op_before = op_named(r.attribution.ops, c.probed_op);
    const measure::OpGrowth* const op_after = op_named(after.ops, c.probed_op);
    if (op_before && op_after && op_before->hi_ns > 0) {
      c.engine_ratio = op_after->hi_ns / op_before->hi_ns;
    }
  }
}

// What a kernel that is not the engine's says of a knob is not shown, stored or not.
void withhold_confirmations(AttributionReport& r) {
  if (r.confirmation_gates.empty()) return;
  if (r.confirmation_gates.size() != r.confirmations.size()) {
    fail(ErrorCode::bad_file, "gates: {} verbatim_changed for {} confirmations",
         r.confirmation_gates.size(), r.confirmations.size());
  }
  for (size_t i = 0; i < r.confirmations.size(); ++i) {
    const Gate& gate = r.confirmation_gates[i];
    if (!gate.pass) withhold(r.confirmations[i], gate.why);
  }
}

// Of each op that grows, from its parts and its evidence; as stored where a file has no evidence.
void put_diagnoses_of_ops(AttributionReport& r) {
  const std::vector<measure::Diagnosis> stored = std::move(r.diagnoses);
  r.diagnoses.clear();
  for (const Decomposition& parts : r.decompositions) {
    const auto of =
        std::find_if(r.evidence.begin(), r.evidence.end(),
                     [&](const OpEvidence& evidence) { return evidence.op == parts.op; });
    if (of != r.evidence.end()) {
      r.diagnoses.push_back(measure::diagnose(parts, of->evidence, r.peaks));
      continue;
    }
    const auto as_stored =
        std::find_if(stored.begin(), stored.end(),
                     [&](const measure::Diagnosis& diagnosis) { return diagnosis.op == parts.op; });
    if (as_stored != stored.end()) r.diagnoses.push_back(*as_stored);
  }
}

// Idle time needs no counters: its diagnosis is there if and only if the samples say so.
void put_diagnosis_of_gaps(AttributionReport& r) {
  std::erase_if(r.diagnoses, [](const measure::Diagnosis& d) { return d.op == "gaps"; });
  if (const auto gaps = measure::diagnose_gaps(r.attribution, r.eager)) {
    r.diagnoses.insert(r.diagnoses.begin(), *gaps);
  }
}

// Unwatched steps of a depth, by round, block and step.
std::string depth_spread(int64_t depth, const measure::DepthSamples& samples) {
  const size_t n_steps = samples.untraced.front()[0].steps_ns.size();
  std::vector<double> ns;
  bool balanced = true;
  for (const measure::BlockPair<measure::UntracedBlock>& pair : samples.untraced) {
    for (const measure::UntracedBlock& block : pair) {
      ns.insert(ns.end(), block.steps_ns.begin(), block.steps_ns.end());
      balanced = balanced && block.steps_ns.size() == n_steps;
    }
  }
  std::string out = fmt::format("depth {}: {} unwatched steps, p50 {}", depth, ns.size(),
                                time_text(measure::harrell_davis(ns, 0.5)));
  for (const double p : {0.9, 0.99}) {
    const std::optional<double> tail = measure::tail_quantile(ns, p);
    out += tail ? fmt::format(", p{:.0f} {}", 100 * p, time_text(*tail))
                : fmt::format(", too few for p{:.0f}", 100 * p);
  }
  if (!balanced) return out + "\n";
  const size_t counts[] = {samples.untraced.size(), 2, n_steps};
  const std::vector<double> components = measure::variance_components(ns, counts);
  const double total = components[0] + components[1] + components[2];
  if (total <= 0) return out + "\n";
  constexpr const char* kMore[] = {"rounds", "blocks", "steps"};
  return out + fmt::format(
                   "; variance between rounds {:.0f} %, blocks {:.0f} %, steps {:.0f} %: of "
                   "the mean's, more {} would take most\n",
                   100 * components[0] / total, 100 * components[1] / total,
                   100 * components[2] / total, kMore[measure::level_to_raise(components, counts)]);
}

}  // namespace

std::string spread_text(const Json& document) {
  const Fields summary = Fields(document, "").at("summary");
  const measure::Observation observation = measure::observation_from_json(
      summary.at("observation").json(), Fields(document, "").at("samples").json());
  const Fields depths = summary.at("attribution").at("depths");
  std::string out;
  for (size_t i = 0; i < observation.depths.size(); ++i) {
    out += depth_spread(depths.at(i).at("depth").whole(), observation.depths[i]);
  }
  return out;
}

AttributionReport attribution_from_document(const Json& document) {
  const Fields all(document, ""), summary = all.at("summary");
  const Fields stored = summary.at("attribution"), samples = all.at("samples");
  AttributionReport r;
  read_stored(stored, r);
  r.peaks.memory_gbps = memory_gbps_of(samples);
  const measure::Observation observation =
      measure::observation_from_json(summary.at("observation").json(), samples.json());
  require_sound(observation);
  if (observation.depths.size() != r.depths.size()) {
    fail(ErrorCode::bad_file, "summary.attribution.depths: {} of the {} in the observation",
         r.depths.size(), observation.depths.size());
  }
  std::vector<int64_t> kv_tokens;
  for (size_t i = 0; i < r.depths.size(); ++i) {
    kv_tokens.push_back(r.depths[i] + 1);
    r.block_steps.push_back(
        static_cast<int64_t>(observation.depths[i].untraced.front()[0].steps_ns.size()));
  }
  r.rounds = observation.lo().untraced.size();
  r.refused_windows = observation.refused_windows;
  r.attribution = measure::attribute(observation, kv_tokens);
  r.decompositions = decompositions_of(stored.at("decompositions"), r);
  r.gates = attribution_gates(r);
  add_stored_gates(all.at("gates"), r);
  for (Gate& gate : device_ceiling_gates(r.device, r.peaks)) {
    r.machine_gates.push_back(std::move(gate));
  }
  read_evidence(summary, r);
  if (summary.has("watermark")) r.watermark = summary.at("watermark").text();
  if (r.trusted()) {
    put_diagnoses_of_ops(r);
    put_diagnosis_of_gaps(r);
    withhold_confirmations(r);
    if (summary.has("changed_observations")) recompute_confirmations(document, kv_tokens, r);
  } else {
    r.diagnoses.clear();
    r.confirmations.clear();
  }
  return r;
}

Json attribution_figures(const AttributionReport& r, const Json& document) {
  Json all = attribution_json(r);
  Json out;
  for (const char* key :
       {"rounds", "depths", "line", "closure", "aa", "overhead", "clock_drift", "idle",
        "overlap_ns", "ops", "launches", "decompositions", "evidence", "diagnoses"}) {
    out[key] = all.at(key);
  }
  out["peaks"]["memory_gbps"] = r.peaks.memory_gbps;
  if (!Fields(document, "").at("summary").has("changed_observations")) return out;
  out["confirmations"] = Json::array();
  for (const Json& c : all["confirmations"]) {
    Json& figures = out["confirmations"].emplace_back();
    figures["engine_ratio"] = c["engine_ratio"];
    figures["effects"] = c["effects"];
    for (Json& effect : figures["effects"]) effect.erase("predicted_ns");
  }
  return out;
}

}  // namespace fathom::report
