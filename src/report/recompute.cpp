// SPDX-License-Identifier: Apache-2.0
// The table of recomputers, and the comparison with what a document stores.
#include "report/recompute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "measure/statistics.hpp"
#include "report/attribution_gates.hpp"
#include "report/attribution_reader.hpp"
#include "report/bench_comparison.hpp"
#include "report/bench_summary.hpp"
#include "report/fields.hpp"
#include "report/probe_report.hpp"
#include "report/profile_figures.hpp"

namespace fathom::report {
namespace {

constexpr double kSameDigits = 1e-9;  // relative
constexpr size_t kMostDifferences = 100;
constexpr size_t kMostOfAMessage = 500;  // bytes

// Is there something under `summary` by this name?
bool has_summary(const Json& document, const char* key) {
  const Fields summary = Fields(document, "").at("summary");
  return summary.has(key);
}

// Was it made by `fathom NAME ...`? Other commands have rows of their own.
bool made_by(const Json& document, const std::string& name) {
  const Fields words = Fields(document, "").at("command");
  return words.size() > 1 && words.at(1).text() == name;
}

bool is_bench(const Json& document) {
  return made_by(document, "bench") && has_summary(document, "rows");
}

// Of documents without configurations: what samples alone give.
constexpr const char* kPlainFields[] = {
    "avg_ns",    "stddev_ns", "avg_ts", "stddev_ts",  "median_ns",  "p5_ns",    "p95_ns",
    "median_ts", "p5_ts",     "p95_ts", "samples_ns", "samples_ts", "peak_gbps"};

Recomputed recompute_bench(const Json& document) {
  const BenchDocument stored = bench_document_of(document);
  const BenchSummary summary = summarise_bench(stored.rows, Fields(document, "").at("samples"),
                                               stored.configurations, stored.seed);
  Recomputed out;
  out.text = format_bench_rows(summary.rows, BenchFormat::markdown);
  out.summary["rows"] = Json::array();
  const bool whole = has_summary(document, "configurations");
  for (const BenchRow& row : summary.rows) {
    const Json json = bench_row_json(row);
    Json kept = Json::object();
    for (const char* name : kPlainFields) kept[name] = json[name];
    out.summary["rows"].push_back(whole ? json : kept);
  }
  if (!whole) {
    out.notes.push_back(
        "made by an earlier version, whose samples have no declared bytes, hashes or clocks: rates "
        "and gates stay as stored");
    return out;
  }
  out.summary["noise"] = summary.noise;
  out.summary["fills"] = summary.fills;
  out.gates = summary.gates;
  return out;
}

bool is_profile(const Json& document) { return has_summary(document, "profile"); }

Recomputed recompute_profile(const Json& document) {
  const Fields samples = Fields(document, "").at("samples");
  const Fields stored = Fields(document, "").at("summary").at("profile");
  const std::vector<DepthProfile> depths = stored_depths(stored, samples);
  const std::vector<double> ceiling = ceilings_of(samples);
  if (!ceiling.empty() && ceiling.size() != depths.front().untraced_ns.size()) {
    fail(ErrorCode::bad_file, "samples: {} rounds of the ceiling, {} of the steps", ceiling.size(),
         depths.front().untraced_ns.size());
  }
  const double peak_gbps = ceiling.empty() ? 0 : measure::median(ceiling);
  Recomputed out;
  Json& profile = out.summary["profile"];
  profile["peak_gbps"] = peak_gbps > 0 ? Json(peak_gbps) : Json(nullptr);
  profile["depths"] = Json::array();
  for (const DepthProfile& depth : depths) {
    profile["depths"].push_back(depth_json(depth, peak_gbps));
    out.text += fmt::format("depth {}: the ops add up to {:.3f} ms of a step of {:.3f} ms\n",
                            depth.depth, depth.sum_ns * 1e-6, depth.wall_ns * 1e-6);
  }
  if (stored.has("cache_bytes")) {
    out.gates = profile_gates(depths, ceiling, stored.at("cache_bytes").whole(0));
  } else {
    out.notes.push_back("made by an earlier version, which kept no cache size: gates as stored");
  }
  return out;
}

bool is_against(const Json& document) {
  return made_by(document, "bench") && has_summary(document, "against");
}

Recomputed recompute_against(const Json& document) {
  const std::vector<RowComparison> rows = compare_processes(Fields(document, "").at("samples"));
  Recomputed out;
  out.summary["against"]["rows"] = Json::array();
  for (const RowComparison& row : rows) out.summary["against"]["rows"].push_back(row.json());
  out.gates = process_gates(rows);
  out.text = comparison_text(rows);
  return out;
}

std::vector<double> values_of_arm(const Json& document, const std::string& arm) {
  const Fields samples = Fields(document, "").at("samples");
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples.at(i).at("arm").text() == arm) return samples.at(i).at("values").numbers();
  }
  return {};
}

bool is_perplexity(const Json& document) {
  return made_by(document, "perplexity") && has_summary(document, "nll");
}

Recomputed recompute_perplexity(const Json& document) {
  const std::vector<double> nll = values_of_arm(document, "nll");
  if (nll.empty()) fail(ErrorCode::bad_file, "samples: no values of arm 'nll'");
  const Json spread = spread_json(nll);
  const double perplexity = std::exp(spread["mean"].get<double>());
  Recomputed out;
  out.summary = {{"perplexity", perplexity},
                 {"perplexity_stderr", perplexity * spread["stderr"].get<double>()},
                 {"nll", spread},
                 {"scored_tokens", nll.size()}};
  const std::vector<double> kl = values_of_arm(document, "kl");
  if (!kl.empty()) out.summary["kl"] = spread_json(kl);
  out.text = fmt::format("perplexity {:.4f} ± {:.4f} over {} tokens\n", perplexity,
                         out.summary["perplexity_stderr"].get<double>(), nll.size());
  return out;
}

bool is_doctor(const Json& document) {
  return made_by(document, "doctor") && has_summary(document, "read_gbps");
}

Json bandwidth_json(const std::vector<double>& gbps) {
  const measure::Summary s = measure::summarise(gbps, 1);
  return {{"median", s.median},
          {"min", s.min},
          {"max", s.max},
          {"ci", {s.median_ci.lo, s.median_ci.hi}}};
}

Recomputed recompute_doctor(const Json& document) {
  Recomputed out;
  const std::vector<double> host = values_of_arm(document, "ceiling");
  if (host.empty()) fail(ErrorCode::bad_file, "samples: no values of arm 'ceiling'");
  out.summary["read_gbps"] = bandwidth_json(host);
  out.text = fmt::format("memory {:.1f} GB/s\n", measure::median(host));
  const std::vector<double> device = values_of_arm(document, "device_ceiling");
  if (!device.empty()) {
    out.summary["device_read_gbps"] = bandwidth_json(device);
    out.text += fmt::format("device memory {:.1f} GB/s\n", measure::median(device));
  }
  return out;
}

bool is_probe(const Json& document) {
  return made_by(document, "probe") && has_summary(document, "sizes");
}

// `summary` with the figures in their places; arrays of other lengths are replaced.
void put_figures(Json& summary, const Json& figures) {
  if (summary.is_object() && figures.is_object()) {
    for (const auto& [key, value] : figures.items()) put_figures(summary[key], value);
  } else if (summary.is_array() && figures.is_array() && summary.size() == figures.size()) {
    for (size_t i = 0; i < figures.size(); ++i) put_figures(summary[i], figures[i]);
  } else {
    summary = figures;
  }
}

Recomputed recompute_probe(const Json& document) {
  Recomputed out;
  out.summary = probe_figures(document);
  Json summary = document["summary"];
  put_figures(summary, out.summary);
  out.gates = probe_gates(document["samples"], summary);
  out.text = probe_text(summary, false);
  out.notes.push_back("of bits no samples are kept: their classes are as stored");
  return out;
}

bool is_attribution(const Json& document) {
  return made_by(document, "attribute") && has_summary(document, "attribution");
}

Recomputed recompute_attribution(const Json& document) {
  const AttributionReport report = attribution_from_document(document);
  Recomputed out;
  out.summary["attribution"] = attribution_figures(report, document);
  out.gates = attribution_gates(report);
  const std::vector<Gate> of_device = device_ceiling_gates(report.device, report.peaks);
  out.gates.insert(out.gates.begin(), of_device.begin(), of_device.end());
  out.text = attribution_text(report, false) + "\n" + spread_text(document);
  out.notes.push_back(
      "as stored, since no samples of them are kept: what the ops declare, the peaks of cache and "
      "arithmetic, what counters say, and of confirmations what was predicted and probed");
  if (!report.confirmations.empty() && !has_summary(document, "changed_observations")) {
    out.notes.push_back(
        "made by an earlier version, which kept no launches of changed engines: confirmations as "
        "stored");
  }
  if (report.costs_hi.empty()) {
    out.notes.push_back(
        "made by an earlier version, which kept no costs: gates anchor and ceiling "
        "as stored");
  }
  return out;
}

constexpr Recomputer kRecomputers[] = {
    {"bench", is_bench, recompute_bench},
    {"bench --against", is_against, recompute_against},
    {"profile", is_profile, recompute_profile},
    {"perplexity", is_perplexity, recompute_perplexity},
    {"doctor", is_doctor, recompute_doctor},
    {"probe", is_probe, recompute_probe},
    {"attribute", is_attribution, recompute_attribution},
};

std::string shown(const Json& value) {
  const std::string text = dump_json(value);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

// Every leaf of `given` that is stored must be stored alike; what else is stored is no business of
// the samples. A key that is missing claims nothing: another version made the file.
void differ(const Json& stored, const Json& given, const std::string& path, Reviewed& out) {
  if (out.differences.size() >= kMostDifferences) return;
  if (given.is_object() && stored.is_object()) {
    for (const auto& [key, value] : given.items()) {
      const auto found = stored.find(key);
      if (found != stored.end()) {
        differ(*found, value, path + "." + key, out);
      } else {
        ++out.n_missing;
      }
    }
    return;
  }
  if (given.is_array() && stored.is_array() && given.size() == stored.size()) {
    for (size_t i = 0; i < given.size(); ++i) {
      differ(stored[i], given[i], fmt::format("{}[{}]", path, i), out);
    }
    return;
  }
  if (same_json(stored, given)) return;
  out.differences.push_back(
      fmt::format("{}: stored {}, the samples give {}", path, shown(stored), shown(given)));
}

Gate gate_of(const Fields& json) {
  return {.id = json.at("id").text(),
          .pass = json.at("pass").boolean(),
          .value = json.number_at("value"),
          .limit = json.number_at("limit"),
          .why = json.at("why").text()};
}

bool same_number(const std::optional<double>& a, const std::optional<double>& b) {
  return a.has_value() == b.has_value() && (!a || same_json(Json(*a), Json(*b)));
}

bool same_gate(const Gate& a, const Gate& b) {
  return a.id == b.id && a.pass == b.pass && same_number(a.value, b.value) &&
         same_number(a.limit, b.limit);
}

// Each recomputed gate must stand among the stored ones, and none of its kind beside them.
void review_gates(const Fields& stored_json, Reviewed& out) {
  std::vector<Gate> stored;
  for (size_t i = 0; i < stored_json.size(); ++i) stored.push_back(gate_of(stored_json.at(i)));
  out.gates = out.recomputed.gates;
  for (const Gate& gate : out.recomputed.gates) {
    const auto found = std::find_if(stored.begin(), stored.end(),
                                    [&](const Gate& g) { return same_gate(g, gate); });
    if (found != stored.end()) {
      stored.erase(found);
    } else {
      out.differences.push_back(fmt::format("gates: not stored, the samples give {} {} ({})",
                                            gate.id, gate.pass ? "passed" : "failed", gate.why));
    }
  }
  for (const Gate& gate : stored) {
    const bool decided = gate.id != "gpu_idle" &&
                         std::any_of(out.recomputed.gates.begin(), out.recomputed.gates.end(),
                                     [&](const Gate& g) { return g.id == gate.id; });
    if (decided) {
      out.differences.push_back(
          fmt::format("gates: stored {} {} ({}), which the samples do not give", gate.id,
                      gate.pass ? "passed" : "failed", gate.why));
      continue;
    }
    out.gates.push_back(gate);
    ++out.n_stored;
  }
}

std::string command_of(const Fields& words) {
  if (words.size() == 0) fail(ErrorCode::bad_file, "command: expected the arguments, found none");
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i ? " " : "") + words.at(i).text();
  return text;
}

// What scripts and other flags write is told apart from a damaged result.
void require_result(const Json& document) {
  if (document.is_array()) {
    fail(
        ErrorCode::bad_file,
        "the document: expected an object as --json prints it, found an array, as of the rows that "
        "bench -o json prints");
  }
  if (document.is_object() && !document.contains("schema")) {
    fail(ErrorCode::bad_file, "schema is missing: this is not what --json of a command prints");
  }
}

}  // namespace

std::span<const Recomputer> recomputers() { return kRecomputers; }

bool Reviewed::trusted() const {
  return differences.empty() &&
         std::all_of(gates.begin(), gates.end(), [](const Gate& gate) { return gate.pass; });
}

std::string page_of(const Json& document) {
  if (is_attribution(document)) {
    return attribution_html(attribution_from_document(document), document);
  }
  fail(ErrorCode::bad_file, "there are pages of results of attribute alone");
}

Json spread_json(const std::vector<double>& values) {
  const double count = static_cast<double>(values.size());
  return {{"mean", measure::mean(values)},
          {"stderr", measure::sample_stddev(values) / std::sqrt(count)},
          {"median", measure::median(values)},
          {"p95", measure::quantile(values, 0.95)},
          {"p99", measure::quantile(values, 0.99)},
          {"max", *std::max_element(values.begin(), values.end())}};
}

bool same_json(const Json& stored, const Json& recomputed) {
  if (stored.is_number() && recomputed.is_number()) {
    const double a = stored.get<double>(), b = recomputed.get<double>();
    return a == b || std::abs(a - b) <= kSameDigits * std::max(std::abs(a), std::abs(b));
  }
  return stored == recomputed;
}

namespace {

Reviewed reviewed(const Json& document) {
  require_result(document);
  const Fields fields(document, "");
  const std::string schema = fields.at("schema").text();
  if (schema != kResultSchema) {
    fail(ErrorCode::bad_file, "schema: expected {}, found '{}'", kResultSchema,
         schema.substr(0, 60));
  }
  Reviewed out;
  out.command = command_of(fields.at("command"));
  fields.at("samples").size();  // an array
  for (const Recomputer& recomputer : recomputers()) {
    if (!recomputer.applies(document)) continue;
    out.recomputed = recomputer.run(document);
    differ(fields.at("summary").json(), out.recomputed.summary, "summary", out);
    if (out.n_missing > 0) {
      out.recomputed.notes.push_back(fmt::format(
          "{} figures are not stored, so another version made the file", out.n_missing));
    }
    review_gates(fields.at("gates"), out);
    return out;
  }
  out.recomputed.notes.push_back("its summary is not made of samples: nothing to recompute");
  review_gates(fields.at("gates"), out);
  return out;
}

}  // namespace

Reviewed review(const Json& document) {
  try {
    return reviewed(document);
  } catch (const Error& e) {
    fail(e.code(), "{}", printable(e.what(), kMostOfAMessage));  // it may quote the document
  }
}

}  // namespace fathom::report
