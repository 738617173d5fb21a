// SPDX-License-Identifier: Apache-2.0
// The page: drawings, tables and the raw document in one file that needs no network.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/attribution_report.hpp"
#include "report/charts.hpp"
#include "report/time_text.hpp"

namespace fathom::report {
namespace {

constexpr size_t kMostSteps = 9;  // ops of the waterfall with a bar of their own
constexpr size_t kMostLayerRows = 8;

constexpr const char* kPageStyle = R"css(
*{box-sizing:border-box}
html{color-scheme:light dark}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:940px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px;letter-spacing:-.01em}h2{font-size:18px;margin:44px 0 6px}
p{margin:6px 0;max-width:72ch}.soft{color:var(--soft)}
.banner{margin:20px 0;padding:14px 18px;border-radius:8px;border-left:5px solid;background:var(--panel)}
.banner.good{border-color:var(--good)}.banner.bad{border-color:var(--bad)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px;margin:20px 0}
.card{background:var(--panel);border-radius:8px;padding:12px 16px}
.card b{display:block;font-size:22px;font-variant-numeric:tabular-nums;letter-spacing:-.01em}.card span{color:var(--soft);font-size:13px}
svg{display:block;width:100%;height:auto}
.scroll{overflow-x:auto}.scroll:focus-visible,summary:focus-visible{outline:2px solid var(--shrink);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px;text-align:right;border-bottom:1px solid var(--faint);white-space:nowrap}
th{color:var(--soft);font-weight:500;font-size:13px}th:first-child,td:first-child,.left{text-align:left}
td.wrap{white-space:normal;text-align:left}.gates th{text-align:left}tr.strong td{font-weight:600}
.diagnosis{background:var(--panel);border-radius:8px;padding:14px 18px;margin:12px 0}
.diagnosis h3{margin:0 0 4px;font-size:16px}.diagnosis ul{margin:4px 0;padding-left:20px}
.tag{display:inline-block;padding:1px 9px;border-radius:99px;font-size:13px;color:var(--paper);background:var(--shrink)}
.tag.undetermined{background:var(--soft)}.ok{color:var(--good);font-weight:600}.no{color:var(--bad);font-weight:600}
details{margin:10px 0}summary{cursor:pointer;color:var(--soft)}code{font:13px ui-monospace,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere}
@media print{body{font-size:12px}main{max-width:none;padding:0}h2{break-after:avoid}svg,.diagnosis,table{break-inside:avoid}details{display:none}}
)css";

std::string cells(const std::vector<std::string>& values, const char* tag = "td") {
  std::string out;
  for (const std::string& value : values) out += fmt::format("<{0}>{1}</{0}>", tag, escaped(value));
  return out;
}

std::string table(const std::string& label, const std::vector<std::string>& head,
                  const std::string& rows) {
  return fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table><thead><tr>{}"
      "</tr></thead><tbody>\n{}</tbody></table></div>\n",
      escaped(label), cells(head, "th"), rows);
}

std::string row(const std::vector<std::string>& values, bool strong = false) {
  return fmt::format("<tr{}>{}</tr>\n", strong ? " class=\"strong\"" : "", cells(values));
}

std::string interval_text(const measure::Estimate& e) {
  return fmt::format("{} ± {}", signed_time_text(e.value), time_text(e.half_width()));
}

std::string header(const AttributionReport& r) {
  return fmt::format(
      "<h1>Why a decode step{} slows down from {} to {} tokens</h1>\n"
      "<p class=\"soft\">{} · {}{} · {} cache{}</p>\n",
      r.n_parallel == 1 ? "" : fmt::format(" of {} sequences", r.n_parallel), r.depths.front(),
      r.depths.back(), escaped(r.model), escaped(r.device),
      r.backend == "cpu" ? fmt::format(", {} threads", r.threads) : "", escaped(r.kv_type),
      std::find(r.kv_fill.begin(), r.kv_fill.end(), "synthetic") != r.kv_fill.end()
          ? ", synthetically filled"
          : "");
}

std::string watermark(const AttributionReport& r) {
  if (r.watermark.empty()) return "";
  return fmt::format("<p class=\"banner bad\"><b>{}</b></p>\n", escaped(r.watermark));
}

std::string banner(const AttributionReport& r) {
  const measure::Closure& c = r.attribution.closure;
  if (r.trusted()) {
    return fmt::format(
        "<p class=\"banner good\"><b>The sum closes.</b> The ops and the idle time between them "
        "account for the growth up to {}, of {} allowed ({}).</p>\n",
        time_text(std::abs(c.residual.value)), time_text(c.limit_ns), escaped(c.limit_why));
  }
  std::string why;
  for (const Gate& gate : r.gates) {
    if (!gate.pass) why += fmt::format("<br>{}: {}", gate.id, escaped(gate.why));
  }
  if (!c.closes) {
    for (const measure::Term& term : c.terms) {
      why += fmt::format("<br>{}: {}", signed_time_text(term.ns), escaped(term.name));
    }
  }
  return fmt::format(
      "<p class=\"banner bad\"><b>These figures cannot be trusted, so there is no diagnosis.</b>{}"
      "</p>\n",
      why);
}

std::string cards(const AttributionReport& r) {
  const measure::Attribution& a = r.attribution;
  const auto card = [](const std::string& figure, const std::string& what) {
    return fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>", figure, escaped(what));
  };
  const measure::OpGrowth& top = a.ops.front();
  return fmt::format(
      "<div class=\"cards\">{}{}{}{}</div>\n",
      card(signed_time_text(a.closure.growth.value),
           fmt::format("± {} a step, unwatched", time_text(a.closure.growth.half_width()))),
      card(fmt::format("{:.0f} %", 100 * top.growth.value / a.closure.growth.value),
           fmt::format("of it in {}", top.op)),
      card(time_text(a.line.slope_ns * 1000), "every 1,000 tokens"),
      card(time_text(a.closure.aa_floor_ns), "what equal steps differ by (A/A)"));
}

Waterfall waterfall_of(const AttributionReport& r) {
  const measure::Attribution& a = r.attribution;
  const measure::Closure& c = a.closure;
  Waterfall out{.from = fmt::format("depth {}", r.depths.front()),
                .to = fmt::format("depth {}", r.depths.back()),
                .from_ns = c.unwatched_ns[0],
                .to_ns = c.unwatched_ns[0] + c.growth.value,
                .steps = {},
                .residue_ns = c.residual.value,
                .limit_ns = c.limit_ns,
                .closes = c.closes};
  std::vector<const measure::OpGrowth*> by_size;
  for (const measure::OpGrowth& op : a.ops) by_size.push_back(&op);
  std::stable_sort(by_size.begin(), by_size.end(), [](const auto* x, const auto* y) {
    return std::abs(x->growth.value) > std::abs(y->growth.value);
  });
  by_size.resize(std::min(by_size.size(), kMostSteps));
  double others = 0;
  bool some = false;
  for (const measure::OpGrowth& op : a.ops) {
    if (std::find(by_size.begin(), by_size.end(), &op) != by_size.end()) {
      out.steps.push_back({op.op, op.growth.value, op.growth.interval.lo, op.growth.interval.hi});
    } else {
      others += op.growth.value;
      some = true;
    }
  }
  if (some) out.steps.push_back({"other ops", others, others, others});
  out.steps.push_back({"idle between them", a.gaps.value, a.gaps.interval.lo, a.gaps.interval.hi});
  if (c.correction_ns != 0) {
    out.steps.push_back(
        {"watching more launches", -c.correction_ns, -c.correction_ns, -c.correction_ns});
  }
  return out;
}

std::string depth_drawing(const AttributionReport& r) {
  const measure::Attribution& a = r.attribution;
  std::vector<DepthPoint> points;
  for (size_t i = 0; i < r.depths.size(); ++i) {
    points.push_back({r.depths[i], a.untraced_ns[i], a.untraced_ci[i].lo, a.untraced_ci[i].hi,
                      i == 0 || i + 1 == r.depths.size()});
  }
  return draw_depths(points, a.line.intercept_ns, a.line.slope_ns).str();
}

std::string roofline_drawing(const AttributionReport& r) {
  Roofline data{
      .ops = {},
      .memory_gbps = r.peaks.memory_gbps,
      .cache_gbps = r.peaks.cache_gbps,
      .gflops = r.peaks.gflops,
      .depths = {fmt::format("{}", r.depths.front()), fmt::format("{}", r.depths.back())}};
  const auto cost_of = [](const std::vector<measure::OpCost>& costs, const std::string& op) {
    const auto found = std::find_if(costs.begin(), costs.end(),
                                    [&](const measure::OpCost& cost) { return cost.op == op; });
    return found == costs.end() ? measure::OpCost{} : *found;
  };
  for (const measure::OpGrowth& op : r.attribution.ops) {
    const measure::OpCost costs[] = {cost_of(r.costs_lo, op.op), cost_of(r.costs_hi, op.op)};
    const double ns[] = {op.lo_ns, op.hi_ns};
    RooflineOp out{.name = op.op, .grows = grows(op, r.attribution)};
    bool complete = true;
    for (int i : {0, 1}) {
      complete = complete && costs[i].bytes > 0 && costs[i].flops > 0 && ns[i] > 0;
      if (!complete) break;
      out.intensity[i] = static_cast<double>(costs[i].flops) / static_cast<double>(costs[i].bytes);
      out.gflops[i] = static_cast<double>(costs[i].flops) / ns[i];
    }
    if (complete) data.ops.push_back(std::move(out));
  }
  return data.ops.empty() || data.memory_gbps <= 0 ? "" : draw_roofline(data).str();
}

std::string parts_drawing(const AttributionReport& r) {
  std::vector<PartsBar> bars;
  for (const measure::Decomposition& d : r.decompositions) {
    for (int i : {0, 1}) {
      const measure::Parts& parts = i == 0 ? d.lo : d.hi;
      bars.push_back({fmt::format("{} @{}", d.op, i == 0 ? r.depths.front() : r.depths.back()),
                      std::min(parts.bytes_ns, parts.ns),
                      std::max(0.0, parts.floor_ns() - parts.bytes_ns), parts.exposed_ns()});
    }
  }
  return bars.empty() ? "" : draw_parts(bars).str();
}

std::string layer_drawing(const AttributionReport& r) {
  std::vector<LayerRow> rows;
  for (const measure::OpGrowth& op : r.attribution.ops) {
    const bool in_layers = std::any_of(op.layer_growth_ns.begin(), op.layer_growth_ns.end(),
                                       [](double ns) { return ns != 0; });
    if (in_layers && rows.size() < kMostLayerRows) rows.push_back({op.op, op.layer_growth_ns});
  }
  return rows.empty() ? "" : draw_layers(rows).str();
}

std::string growth_rows(const AttributionReport& r) {
  const measure::Attribution& a = r.attribution;
  const double total = a.closure.growth.value;
  const auto share = [&](double ns) {
    const double percent = 100 * ns / total;
    return fmt::format("{}{:.1f} %", percent <= -0.05 ? "−" : "", std::abs(percent));
  };
  std::string rows;
  for (const measure::OpGrowth& op : a.ops) {
    const double n = static_cast<double>(std::max(op.launches_lo, op.launches_hi));
    rows += row({op.op, fmt::format("{}", op.launches_hi), time_text(op.lo_ns), time_text(op.hi_ns),
                 interval_text(op.growth), signed_time_text(op.growth.value / n),
                 share(op.growth.value), measure::match_name(op.match)},
                grows(op, a));
  }
  rows += row({"idle between them", "", time_text(a.gaps_lo_ns), time_text(a.gaps_hi_ns),
               interval_text(a.gaps), "", share(a.gaps.value), ""});
  rows += row(
      {"step, unwatched", "", time_text(a.closure.unwatched_ns[0]),
       time_text(a.closure.unwatched_ns[1]), interval_text(a.closure.growth), "", "100.0 %", ""},
      true);
  rows += row({"left over", "", "", "", interval_text(a.closure.residual), "",
               share(a.closure.residual.value), ""});
  return rows;
}

std::string diagnosis_block(const measure::Diagnosis& d) {
  const auto list = [](const std::vector<std::string>& items) {
    std::string out = "<ul>";
    for (const std::string& item : items) out += fmt::format("<li>{}</li>", escaped(item));
    return out + "</ul>";
  };
  std::string out = fmt::format(
      "<div class=\"diagnosis\"><h3>{} <span class=\"tag {}\">{}</span></h3>{}", escaped(d.op),
      d.verdict == measure::Bottleneck::undetermined ? "undetermined" : "",
      measure::bottleneck_name(d.verdict), list(d.known));
  if (!d.missing.empty()) out += "<p class=\"soft\">What would decide:</p>" + list(d.missing);
  return out +
         fmt::format("<p><b>Lever:</b> {}</p></div>\n", escaped(measure::lever_of(d.verdict)));
}

std::string evidence(const AttributionReport& r) {
  const EvidenceTable data = evidence_table(r);
  std::vector<std::string> said = missing_evidence(r);
  for (std::string& why : said) why = "There are " + why;
  for (std::string& sentence : overlap_sentences(r)) said.push_back(std::move(sentence));
  if (const std::string eager = eager_sentence(r); !eager.empty()) said.push_back(eager);
  if (data.rows.empty() && said.empty()) return "";
  std::string out = "<h2>What counters and records say</h2>\n";
  std::string rows;
  for (const std::vector<std::string>& cells : data.rows) rows += row(cells);
  if (!rows.empty()) {
    out +=
        "<p class=\"soft\">Op by op, at the deeper anchor, in processes that count and sample and "
        "do nothing else; no time on this page is theirs.</p>\n" +
        table("Evidence", data.head, rows);
  }
  for (const std::string& sentence : said) out += fmt::format("<p>{}</p>\n", escaped(sentence));
  return out;
}

std::string diagnoses(const AttributionReport& r) {
  if (!r.trusted()) return "";
  std::string out = "<h2>Diagnosis</h2>\n";
  if (r.diagnoses.empty()) out += "<p>Nothing grows.</p>\n";
  for (const measure::Diagnosis& d : r.diagnoses) out += diagnosis_block(d);
  return out;
}

std::string confirmation(const Confirmation& c) {
  std::string out = fmt::format("<h2>Confirmation: {}</h2>\n", escaped(c.knob));
  if (!c.problem.empty()) return out + fmt::format("<p>{}</p>\n", escaped(c.problem));
  std::string rows;
  for (const Confirmation::Effect& e : c.effects) {
    rows += row({e.what, time_text(e.base_ns),
                 e.predicted_ns ? fmt::format("{} to {}", time_text((*e.predicted_ns)[0]),
                                              time_text((*e.predicted_ns)[1]))
                                : "–",
                 interval_text({e.changed_ns, e.changed_ci})});
  }
  out +=
      table("Prediction and measurement", {"growth of", "before", "predicted", "measured"}, rows);
  out += fmt::format("<p class=\"soft\">Predicted from {}.</p>\n", escaped(c.basis));
  std::string alone;
  for (const Confirmation::Probed& p : c.probed) {
    alone += row({p.memory, time_text(p.base_us * 1e3), time_text(p.changed_us * 1e3),
                  fmt::format("{:+.1f} %", 100 * (p.ratio() - 1))});
  }
  if (!alone.empty()) {
    out += table(fmt::format("{} alone", c.probed_op),
                 {fmt::format("{} alone", c.probed_op), "before", "after", "change"}, alone);
  }
  for (const std::string& gap : c.gaps) out += fmt::format("<p>{}</p>\n", escaped(gap));
  return out;
}

std::string gates(const AttributionReport& r) {
  std::string rows;
  for (const Gate& gate : r.all_gates()) {
    rows += fmt::format(
        "<tr><td>{}</td><td class=\"left {}\">{}</td><td class=\"wrap\">{}</td></tr>\n", gate.id,
        gate.pass ? "ok" : "no", gate.pass ? "✓ passed" : "✗ failed", escaped(gate.why));
  }
  return "<h2>Gates</h2>\n<div class=\"gates\">" + table("Gates", {"gate", "", "why"}, rows) +
         "</div>\n";
}

std::string method(const AttributionReport& r, const Json& document) {
  std::string command;
  for (const Json& word : document["command"]) {
    command += (command.empty() ? "" : " ") + word.get<std::string>();
  }
  return fmt::format(
      "<h2>How it was measured</h2>\n<p>{} rounds, stopped by {} (seed {}). A round runs every arm "
      "in random order and then in the reverse order: unwatched steps at every depth, watched ones "
      "at the first and the last. A step at depth d reads d + 1 tokens of the cache. Growth "
      "of the unwatched step: Hodges–Lehmann; of the ops: means over the same middle half of the "
      "rounds, so that they add up; intervals are of 95 %.{}</p>\n<p><code>{}</code></p>\n",
      r.rounds, escaped(r.stopped), r.seed, r.refused_windows > 0 ? " " + refused_text(r) : "",
      escaped(command));
}

// A page would grow by megabytes; --json has them.
Json without_launch_samples(Json document) {
  for (Json& sample : document["samples"]) {
    sample.erase("exclusive_ns");
    sample.erase("gap_ns");
  }
  return document;
}

// JSON that cannot end its script element.
std::string script_json(const Json& document) {
  std::string out;
  for (const char c : dump_json(document)) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

std::string section(const std::string& title, const std::string& text, const std::string& drawing) {
  if (drawing.empty()) return "";
  return fmt::format("<h2>{}</h2>\n<p class=\"soft\">{}</p>\n{}", title, text, drawing);
}

}  // namespace

std::string attribution_html(const AttributionReport& r, const Json& document) {
  std::string body = header(r) + watermark(r) + banner(r) + cards(r);
  body += section("What the growth consists of",
                  "From the shallow step to the deep one, op by op, in the time that no other "
                  "kernel covers.",
                  draw_waterfall(waterfall_of(r)).str());
  body += table("Growth by op",
                {"op", "launches", fmt::format("@{}", r.depths.front()),
                 fmt::format("@{}", r.depths.back()), "growth", "a launch", "share", ""},
                growth_rows(r));
  body += diagnoses(r) + evidence(r);
  body += section("What the time of growing ops is",
                  "Declared bytes and operations at the peaks measured in this run; the rest is "
                  "exposed: latency, waiting, work that is not declared.",
                  parts_drawing(r));
  for (const Confirmation& c : r.confirmations) body += confirmation(c);
  body += section("Time over depth",
                  "Unwatched steps with their 95 % intervals, and the straight "
                  "line through them.",
                  depth_drawing(r));
  body += section("Roofline",
                  "What the ops reach at both depths, below what the machine gave in the same run.",
                  roofline_drawing(r));
  body += section("Growth by layer", "Orange grew, blue shrank; pale cells did neither.",
                  layer_drawing(r));
  body += gates(r) + method(r, document);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<title>{}: growth from {} to {} tokens</title>\n<style>{}{}</style></head>\n"
      "<body><main>\n{}</main>\n<script type=\"application/json\" id=\"data\">{}</script>\n"
      "</body></html>\n",
      escaped(r.model), r.depths.front(), r.depths.back(), svg_style(), kPageStyle, body,
      script_json(without_launch_samples(document)));
}

}  // namespace fathom::report
