// SPDX-License-Identifier: Apache-2.0
// Samples by size and arm, the figures they give, and the tables.
#include "report/probe_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>

#include "base/error.hpp"
#include "measure/statistics.hpp"
#include "report/ceiling.hpp"
#include "report/fields.hpp"
#include "report/kernel_name.hpp"
#include "report/table.hpp"

namespace fathom::report {
namespace {

constexpr const char* kMemories[] = {"hot", "cold"};
bool is_cold(const std::string& memory) { return memory == "cold"; }

// The values of each arm of each size, by round.
class Samples {
 public:
  explicit Samples(const Fields& samples) {
    const size_t n = samples.size();
    for (size_t i = 0; i < n; ++i) {
      const Fields sample = samples.at(i);
      std::vector<double>& values = values_[key(sample, sample.at("arm").text())];
      // Rounds of an arm stand in their order.
      if (sample.at("round").whole(0) != static_cast<int64_t>(values.size())) {
        fail(ErrorCode::bad_file, "{}.round: expected {}, found {}", sample.path(), values.size(),
             sample.at("round").whole(0));
      }
      values.push_back(sample.has("gbps") ? sample.at("gbps").positive()
                                          : sample.at("launch_ns").number() * 1e-3);
    }
  }

  // Empty: the arm did not run. Microseconds, or GB/s of a ceiling.
  std::span<const double> of(const Fields& size, const std::string& arm) const {
    const auto found = values_.find(key(size, arm));
    return found == values_.end() ? std::span<const double>() : found->second;
  }

 private:
  static std::string key(const Fields& at, const std::string& arm) {
    return fmt::format("{} {} {} {} {}", at.at("batch").whole(1), at.at("depth").whole(1),
                       at.at("type").text(), at.at("cache").text(), arm);
  }
  std::map<std::string, std::vector<double>> values_;
};

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// Of times over the base's, round by round.
Json ratio_json(std::span<const double> us, std::span<const double> base) {
  std::vector<double> logs;
  for (size_t i = 0; i < std::min(us.size(), base.size()); ++i) {
    if (us[i] > 0 && base[i] > 0) logs.push_back(std::log(us[i] / base[i]));
  }
  if (logs.empty()) return nullptr;
  const measure::Interval ci = measure::hodges_lehmann_interval(logs);
  return {{"value", std::exp(measure::hodges_lehmann(logs))},
          {"ci", {std::exp(ci.lo), std::exp(ci.hi)}}};
}

double declared_bytes(const Fields& size) {
  const Fields declared = size.at("declared");
  double bytes = 0;
  for (const char* key : {"weight_bytes", "kv_bytes", "act_read_bytes", "act_written_bytes"}) {
    bytes += static_cast<double>(declared.at(key).whole(0));
  }
  return bytes;
}

// Of one variant in one kind of memory, beside the read ceiling of that memory.
Json figures_json(std::span<const double> us, std::span<const double> peaks, double bytes,
                  uint64_t seed) {
  if (!peaks.empty() && peaks.size() != us.size()) {
    fail(ErrorCode::bad_file, "samples: {} rounds of a ceiling, {} of the variant beside it",
         peaks.size(), us.size());
  }
  const double median = measure::median(us);
  const measure::Interval ci = measure::bootstrap_median(us, seed);
  std::vector<double> shares;
  for (size_t i = 0; i < peaks.size(); ++i) {
    const double share = bytes / us[i] * 1e-3 / peaks[i];
    if (std::isfinite(share)) shares.push_back(share);  // a difference of times may be 0
  }
  return {{"us", median},
          {"ci", {ci.lo, ci.hi}},
          {"gbps", finite_or_null(bytes / median * 1e-3)},
          {"peak_gbps", peaks.empty() ? Json(nullptr) : Json(measure::median(peaks))},
          {"pct_of_peak",
           shares.empty() ? Json(nullptr) : finite_or_null(100 * measure::median(shares))}};
}

// Those of a call's kernels apart, which keep their samples beside them; null where there are none.
Json kernels_figures(const Fields& stored, uint64_t seed) {
  if (!stored.has("kernels")) return nullptr;
  const Fields kernels = stored.at("kernels");
  Json out = Json::array();
  for (size_t i = 0; i < kernels.size(); ++i) {
    const std::vector<double> us = kernels.at(i).at("values_us").numbers();
    if (us.empty()) kernels.at(i).at("values_us").refuse("one value at least");
    const measure::Interval ci = measure::bootstrap_median(us, seed);
    out.push_back({{"us", measure::median(us)}, {"ci", {ci.lo, ci.hi}}});
  }
  return out;
}

std::string name_of(const Fields& size, size_t variant) {
  return size.at("variants").at(variant).at("name").text();
}

Json size_figures(const Fields& size, const Samples& samples, uint64_t seed) {
  Json variants = Json::array();
  const size_t n = size.at("variants").size();
  for (size_t i = 0; i < n; ++i) {
    Json& variant = variants.emplace_back(Json{{"hot", nullptr}, {"cold", nullptr}});
    for (const char* memory : kMemories) {
      const std::string base = fmt::format("{} {}", name_of(size, 0), memory);
      const auto us = samples.of(size, fmt::format("{} {}", name_of(size, i), memory));
      if (us.empty()) continue;
      // The first variant's ratio is that of its second arm: what noise looks like.
      const auto compared =
          i == 0 ? samples.of(size, fmt::format("{} again {}", name_of(size, 0), memory)) : us;
      const auto peaks = samples.of(size, is_cold(memory) ? "ceiling" : "cached_ceiling");
      variant[memory] = figures_json(us, peaks, declared_bytes(size), seed);
      variant[memory]["over_first"] = ratio_json(compared, samples.of(size, base));
      const Fields stored = size.at("variants").at(i);
      if (stored.json().contains(memory) && stored.at(memory).json().contains("kernels")) {
        variant[memory]["kernels"] = kernels_figures(stored.at(memory), seed);
      }
    }
  }
  return {{"variants", std::move(variants)}};
}

// The place of the variant one knob away from the first, or nothing.
std::optional<size_t> changed_variant(const Fields& size, const Fields& row) {
  const size_t n = size.at("variants").size();
  if (n == 0) return {};
  const Fields knobs = size.at("variants").at(size_t{0}).at("knobs");
  knobs.has("");  // an object
  Json wanted = knobs.json();
  wanted[row.at("knob").text()] = row.at("to").text();
  for (size_t i = 0; i < n; ++i) {
    if (size.at("variants").at(i).at("knobs").json() == wanted) return i;
  }
  return {};
}

bool is_timed(const Fields& size) { return size.has("declared"); }

Json row_figures(const Fields& row, const Fields& sizes, const Samples& samples) {
  Json times = Json::array();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Fields size = sizes.at(i);
    const std::optional<size_t> variant = changed_variant(size, row);
    if (!is_timed(size) || !variant) continue;
    for (const char* memory : kMemories) {
      const auto us = samples.of(size, fmt::format("{} {}", name_of(size, *variant), memory));
      const auto base = samples.of(size, fmt::format("{} {}", name_of(size, 0), memory));
      if (us.empty()) continue;
      times.push_back({{"batch", size.at("batch").whole()},
                       {"depth", size.at("depth").whole()},
                       {"memory", memory},
                       {"ratio", ratio_json(us, base)}});
    }
  }
  return {{"times", std::move(times)}};
}

}  // namespace

Json probe_figures(const Json& document) {
  const Fields summary = Fields(document, "").at("summary"), sizes = summary.at("sizes");
  const Samples samples(Fields(document, "").at("samples"));
  const uint64_t seed = summary.at("seed").unsigned_whole();
  Json out{{"sizes", Json::array()}};
  for (size_t i = 0; i < sizes.size(); ++i) {
    out["sizes"].push_back(size_figures(sizes.at(i), samples, seed));
  }
  if (!summary.has("freedom_map")) return out;
  const Fields map = summary.at("freedom_map");
  out["freedom_map"] = Json::array();
  for (size_t i = 0; i < map.size(); ++i) {
    out["freedom_map"].push_back(row_figures(map.at(i), sizes, samples));
  }
  return out;
}

// The worst share of the memory's peak among cold times, and whether that peak is credible.
std::vector<Gate> probe_gates(const Json& samples_json, const Json& summary) {
  Gate ceiling{.id = "ceiling",
               .pass = true,
               .value = {},
               .limit = kCeilingRatio,
               .why = "no cold times beside a read ceiling"};
  const Fields sizes = Fields(summary, "summary").at("sizes");
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Fields size = sizes.at(i), variants = size.at("variants");
    for (size_t v = 0; v < variants.size(); ++v) {
      if (!variants.at(v).has("cold")) continue;
      const std::optional<double> pct = variants.at(v).at("cold").number_at("pct_of_peak");
      if (!pct || (ceiling.value && *ceiling.value >= *pct / 100)) continue;
      ceiling.value = *pct / 100;
      ceiling.why = fmt::format(
          "batch {}, {} tokens, {}: cold, the declared bytes come at {:.3f} of the read ceiling",
          size.at("batch").whole(), size.at("depth").whole(), name_of(size, v), *ceiling.value);
    }
  }
  ceiling.pass = !ceiling.value || *ceiling.value <= kCeilingRatio;
  std::vector<double> peaks;
  const Fields samples(samples_json, "samples");
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples.at(i).at("arm").text() == "ceiling")
      peaks.push_back(samples.at(i).at("gbps").positive());
  }
  std::vector<Gate> gates{ceiling};
  const std::string device = Fields(summary, "summary").at("device").text();
  if (!peaks.empty() && least_ceiling_gbps(device) > 0) {
    gates.push_back(least_ceiling_gate(device, measure::median(peaks)));
  }
  return gates;
}

namespace {

std::string ratio_text(const Fields& at, const char* key) {
  if (!at.has(key)) return "";
  const Fields ratio = at.at(key);
  const std::vector<double> ci = ratio.at("ci").numbers();
  return fmt::format("{:.3f} ({:.3f}..{:.3f})", ratio.at("value").number(), ci.at(0), ci.at(1));
}

// Those in which the size was timed.
std::vector<const char*> memories_of(const Fields& size) {
  std::vector<const char*> out;
  if (!is_timed(size) || size.at("variants").size() == 0) return out;
  for (const char* memory : kMemories) {
    if (size.at("variants").at(size_t{0}).has(memory)) out.push_back(memory);
  }
  return out;
}

std::string class_text(const Fields& variant) {
  const std::string out = variant.at("class").text(), why = variant.text_at("why");
  if (!why.empty()) return out + ": " + why;
  const Fields d = variant.at("difference");
  const double n = d.at("n_different").number();
  if (n <= 0) return out;
  return fmt::format("{}, {:.1e} differ, {:.0f} ulp", out, n / d.at("n_values").positive(),
                     d.at("max_ulp").number());
}

std::string figure_at(const Fields& at, const char* key) {
  return at.has(key) ? format_figure(at.at(key).number()) : "";
}

std::string size_table(const Fields& size, bool colour) {
  const std::vector<const char*> memories = memories_of(size);
  std::vector<Table::Column> columns{{"variant", Align::left}, {"bits", Align::left}};
  for (const char* memory : memories) {
    columns.push_back({fmt::format("{} us", memory)});
    columns.push_back({"95 %"});
    columns.push_back({"GB/s"});
    columns.push_back({is_cold(memory) ? "% of memory" : "% of cache"});
    columns.push_back({"over the first"});
  }
  Table table(columns);
  const Fields variants = size.at("variants");
  for (size_t i = 0; i < variants.size(); ++i) {
    std::vector<std::string> cells{variants.at(i).at("name").text(), class_text(variants.at(i))};
    for (const char* memory : memories) {
      const Fields f = variants.at(i).at(memory);
      const std::vector<double> ci = f.at("ci").numbers();
      const std::optional<double> pct = f.number_at("pct_of_peak");
      cells.push_back(format_figure(f.at("us").number()));
      cells.push_back(fmt::format("{}..{}", format_figure(ci.at(0)), format_figure(ci.at(1))));
      cells.push_back(figure_at(f, "gbps"));
      cells.push_back(pct ? fmt::format("{:.0f}", *pct) : "");
      cells.push_back(ratio_text(f, "over_first"));
    }
    table.add(std::move(cells));
  }
  return table.text(colour);
}

std::string kernels_text(const Fields& kernels) {
  std::string out;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const Fields k = kernels.at(i);
    const std::vector<double> grid = k.at("grid").numbers(), block = k.at("block").numbers();
    double threads = 1;
    for (const double n : block) threads *= n;
    out += fmt::format("{}{} of {} threads, {} registers, {:.0f} % occupancy, {:.2f} waves",
                       i ? "; " : "", fmt::join(grid, "x"), threads, k.at("registers").whole(),
                       100 * k.at("occupancy").number(), k.at("waves").number());
  }
  return out;
}

// The kernels of a variant's call apart, hot and cold.
std::string apart_text(const Fields& variant) {
  std::string out;
  for (const char* memory : kMemories) {
    if (!variant.has(memory) || !variant.at(memory).has("kernels")) continue;
    const Fields kernels = variant.at(memory).at("kernels");
    if (kernels.size() < 2) continue;
    out += fmt::format("  {}:", memory);
    for (size_t i = 0; i < kernels.size(); ++i) {
      out += fmt::format("{} {} {:.2f} us", i > 0 ? "," : "",
                         short_kernel_name(kernels.at(i).at("kernel").text()),
                         kernels.at(i).at("us").number());
    }
    out += "\n";
  }
  return out;
}

std::string rotation_text(const Fields& rotation) {
  return fmt::format(
      ": {} declared; cold: {} sets, {:.1f} caches between two visits{}; hot: {}\n",
      format_bytes(rotation.at("set_bytes").whole()), rotation.at("n_sets").whole(),
      rotation.at("distinct_bytes").number() / rotation.at("cache_bytes").positive(),
      rotation.at("cold").boolean() ? "" : " (WARM: fewer than 3)",
      rotation.at("hot").boolean() ? "fits half the cache" : "NOT HOT, more than half the cache");
}

std::string size_text(const Fields& summary, const Fields& size, bool colour) {
  std::string out =
      fmt::format("{} of {}, {} weights, {} cache, batch {}, {} tokens", summary.at("op").text(),
                  summary.at("shape").text(), size.at("type").text(), size.at("cache").text(),
                  size.at("batch").whole(), size.at("depth").whole());
  out += is_timed(size) ? rotation_text(size.at("rotation")) : "\n";
  out += size_table(size, colour);
  if (summary.has("freedom_map")) return out;
  const Fields variants = size.at("variants");
  for (size_t i = 0; i < variants.size(); ++i) {
    if (!variants.at(i).has("kernels")) continue;
    out += fmt::format("{}: {}\n", variants.at(i).at("name").text(),
                       kernels_text(variants.at(i).at("kernels")));
    out += apart_text(variants.at(i));
  }
  return out;
}

// Of the deepest size of the first batch, where growth shows most.
std::optional<Fields> deepest(const Fields& sizes) {
  std::optional<Fields> out;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Fields size = sizes.at(i);
    if (!is_timed(size) || size.at("batch").whole() != sizes.at(size_t{0}).at("batch").whole())
      continue;
    if (!out || size.at("depth").whole() > out->at("depth").whole()) out = size;
  }
  return out;
}

std::string freedom_class(const Fields& row) {
  const std::string name = row.at("class").text();
  if (name == "B0") return "B0 free";
  return name == "F" ? "F: " + row.text_at("why") : name + " tolerance";
}

std::string help_text(const Fields& time) {
  if (!time.has("ratio")) return "";
  const std::vector<double> ci = time.at("ratio").at("ci").numbers();
  return ci.at(1) < 1 ? "helps" : ci.at(0) > 1 ? "hurts" : "no change seen";
}

// The row's time of this size and memory.
std::optional<Fields> time_of(const Fields& row, const Fields& size, const std::string& memory) {
  const Fields times = row.at("times");
  for (size_t i = 0; i < times.size(); ++i) {
    const Fields time = times.at(i);
    if (time.at("batch").whole() == size.at("batch").whole() &&
        time.at("depth").whole() == size.at("depth").whole() &&
        time.at("memory").text() == memory) {
      return time;
    }
  }
  return {};
}

std::vector<std::string> row_cells(const Fields& row, const std::optional<Fields>& timed) {
  const Fields d = row.at("difference");
  const double n = d.at("n_different").number();
  std::vector<std::string> cells{
      row.at("knob").text(),
      row.at("from").text() + " -> " + row.at("to").text(),
      freedom_class(row),
      std::to_string(row.at("n_pairs").whole()),
      row.has("least_depth") ? std::to_string(row.at("least_depth").whole()) : "",
      n > 0 ? fmt::format("{:.1e}", n / d.at("n_values").positive()) : "0",
      n <= 0             ? "0"
      : d.has("max_abs") ? fmt::format("{:.1e}", d.at("max_abs").number())
                         : "inf",
      fmt::format("{:.0f}", d.at("max_ulp").number()),
      std::to_string(d.at("argmax_flips").whole())};
  if (!timed) return cells;
  for (const char* memory : memories_of(*timed)) {
    const std::optional<Fields> time = time_of(row, *timed, memory);
    cells.push_back(time ? ratio_text(*time, "ratio") : "not alone");
    cells.push_back(time ? help_text(*time) : "");
  }
  return cells;
}

std::string map_text(const Fields& summary, bool colour) {
  const Fields sizes = summary.at("sizes"), map = summary.at("freedom_map");
  std::vector<Table::Column> columns{{"knob", Align::left},
                                     {"change", Align::left},
                                     {"class", Align::left},
                                     {"pairs"},
                                     {"differ from"},
                                     {"share"},
                                     {"max |d|"},
                                     {"max ulp"},
                                     {"argmax flips"}};
  const std::optional<Fields> timed = deepest(sizes);
  if (timed) {
    for (const char* memory : memories_of(*timed)) {
      columns.push_back({fmt::format("{} time", memory)});
      columns.push_back({"", Align::left});
    }
  }
  Table table(columns);
  for (size_t i = 0; i < map.size(); ++i) table.add(row_cells(map.at(i), timed));
  std::string out = fmt::format("freedom map of {}", summary.at("op").text());
  if (sizes.size() > 0 && sizes.at(size_t{0}).at("variants").size() > 0) {
    out += fmt::format(": {} variants from {}", sizes.at(size_t{0}).at("variants").size(),
                       name_of(sizes.at(size_t{0}), 0));
  }
  // Neighbours of the sizes are classed too, but not listed.
  if (summary.has("n_classed")) {
    out += fmt::format(", the worst class over {} sizes and all settings of the other knobs",
                       summary.at("n_classed").whole());
  }
  out += "\n";
  if (timed) {
    out += fmt::format("times: batch {}, {} tokens, over the base's\n", timed->at("batch").whole(),
                       timed->at("depth").whole());
  }
  return out + table.text(colour);
}

}  // namespace

std::string probe_text(const Json& summary_json, bool colour) {
  const Fields summary(summary_json, "summary");
  const Fields sizes = summary.at("sizes");
  std::string out;
  if (const std::string mark = summary.text_at("watermark"); !mark.empty()) {
    out += painted(mark, Paint::bad, colour) + "\n";
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    out += (i ? "\n" : "") + size_text(summary, sizes.at(i), colour);
  }
  if (summary.has("freedom_map")) out += "\n" + map_text(summary, colour);
  return out;
}

}  // namespace fathom::report
