// SPDX-License-Identifier: Apache-2.0
// One table of fields feeds csv, json, jsonl and sql. Fields of llama-bench that have no meaning
// here carry the value that its own CPU runs print.
#include "report/bench_rows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/json.hpp"
#include "measure/statistics.hpp"
#include "report/table.hpp"

namespace fathom::report {
namespace {

using measure::mean;
using measure::median;
using measure::quantile;
using measure::sample_stddev;

struct Field {
  const char* name;
  const char* sql_type;
  Json (*value)(const BenchRow&);
};

// What GB/s is, beside every one of them.
constexpr const char* kRateSource = "declared bytes / time";

Json number_or_null(double value) { return value > 0 ? Json(value) : Json(nullptr); }
Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

// Nanoseconds as whole numbers, as llama-bench has them.
Json whole(double value) { return static_cast<int64_t>(value + 0.5); }

constexpr Field kFields[] = {
    {"build_commit", "TEXT", [](const BenchRow& r) -> Json { return r.build_commit; }},
    {"build_number", "INTEGER", [](const BenchRow&) -> Json { return 0; }},
    {"cpu_info", "TEXT", [](const BenchRow& r) -> Json { return r.cpu_info; }},
    {"gpu_info", "TEXT", [](const BenchRow& r) -> Json { return r.gpu_info; }},
    {"backends", "TEXT", [](const BenchRow& r) -> Json { return r.backends; }},
    {"model_filename", "TEXT", [](const BenchRow& r) -> Json { return r.model_filename; }},
    {"model_type", "TEXT", [](const BenchRow& r) -> Json { return r.model_type; }},
    {"model_size", "INTEGER", [](const BenchRow& r) -> Json { return r.model_size; }},
    {"model_n_params", "INTEGER", [](const BenchRow& r) -> Json { return r.model_n_params; }},
    {"n_batch", "INTEGER", [](const BenchRow& r) -> Json { return r.n_batch; }},
    {"n_ubatch", "INTEGER", [](const BenchRow& r) -> Json { return r.n_ubatch; }},
    {"n_threads", "INTEGER", [](const BenchRow& r) -> Json { return r.n_threads; }},
    {"cpu_mask", "TEXT", [](const BenchRow&) -> Json { return "0x0"; }},
    {"cpu_strict", "INTEGER", [](const BenchRow&) -> Json { return false; }},
    {"poll", "INTEGER", [](const BenchRow&) -> Json { return 50; }},
    {"type_k", "TEXT", [](const BenchRow& r) -> Json { return r.type_k; }},
    {"type_v", "TEXT", [](const BenchRow& r) -> Json { return r.type_v; }},
    {"n_gpu_layers", "INTEGER", [](const BenchRow& r) -> Json { return r.n_gpu_layers; }},
    {"n_cpu_moe", "INTEGER", [](const BenchRow&) -> Json { return 0; }},
    {"split_mode", "TEXT", [](const BenchRow&) -> Json { return "layer"; }},
    {"main_gpu", "INTEGER", [](const BenchRow&) -> Json { return 0; }},
    {"no_kv_offload", "INTEGER", [](const BenchRow&) -> Json { return false; }},
    {"flash_attn", "INTEGER", [](const BenchRow&) -> Json { return true; }},
    {"devices", "TEXT", [](const BenchRow&) -> Json { return "auto"; }},
    {"tensor_split", "TEXT", [](const BenchRow&) -> Json { return "0.00"; }},
    {"tensor_buft_overrides", "TEXT", [](const BenchRow&) -> Json { return "none"; }},
    {"use_mmap", "INTEGER", [](const BenchRow& r) -> Json { return r.use_mmap; }},
    {"use_direct_io", "INTEGER", [](const BenchRow&) -> Json { return false; }},
    {"embeddings", "INTEGER", [](const BenchRow&) -> Json { return false; }},
    {"no_op_offload", "INTEGER", [](const BenchRow&) -> Json { return 0; }},
    {"no_host", "INTEGER", [](const BenchRow&) -> Json { return false; }},
    {"repack", "INTEGER", [](const BenchRow&) -> Json { return true; }},
    {"fit_target", "INTEGER", [](const BenchRow&) -> Json { return 0; }},
    {"fit_min_ctx", "INTEGER", [](const BenchRow&) -> Json { return 0; }},
    {"n_prompt", "INTEGER", [](const BenchRow& r) -> Json { return r.n_prompt; }},
    {"n_gen", "INTEGER", [](const BenchRow& r) -> Json { return r.n_gen; }},
    {"n_depth", "INTEGER", [](const BenchRow& r) -> Json { return r.n_depth; }},
    {"test_time", "TEXT", [](const BenchRow& r) -> Json { return r.test_time; }},
    {"avg_ns", "INTEGER", [](const BenchRow& r) { return whole(mean(r.samples_ns)); }},
    {"stddev_ns", "INTEGER", [](const BenchRow& r) { return whole(sample_stddev(r.samples_ns)); }},
    {"avg_ts", "REAL", [](const BenchRow& r) -> Json { return mean(r.samples_ts()); }},
    {"stddev_ts", "REAL", [](const BenchRow& r) -> Json { return sample_stddev(r.samples_ts()); }},
    // Ours.
    {"median_ns", "INTEGER", [](const BenchRow& r) { return whole(median(r.samples_ns)); }},
    {"p5_ns", "INTEGER", [](const BenchRow& r) { return whole(quantile(r.samples_ns, 0.05)); }},
    {"p95_ns", "INTEGER", [](const BenchRow& r) { return whole(quantile(r.samples_ns, 0.95)); }},
    {"median_ts", "REAL", [](const BenchRow& r) -> Json { return median(r.samples_ts()); }},
    {"p5_ts", "REAL", [](const BenchRow& r) -> Json { return quantile(r.samples_ts(), 0.05); }},
    {"p95_ts", "REAL", [](const BenchRow& r) -> Json { return quantile(r.samples_ts(), 0.95); }},
    {"gbps", "REAL", [](const BenchRow& r) { return number_or_null(r.gbps); }},
    {"peak_gbps", "REAL", [](const BenchRow& r) { return number_or_null(r.peak_gbps); }},
    {"pct_of_peak", "REAL", [](const BenchRow& r) { return number_or_null(r.pct_of_peak); }},
    {"logits_hash", "TEXT", [](const BenchRow& r) -> Json { return r.logits_hash; }},
    {"isa", "TEXT", [](const BenchRow& r) -> Json { return r.isa; }},
    {"kv_fill", "TEXT", [](const BenchRow& r) -> Json { return r.kv_fill; }},
    {"cpu_mhz", "REAL", [](const BenchRow& r) { return number_or_null(r.cpu_mhz); }},
    {"seed", "INTEGER", [](const BenchRow& r) -> Json { return r.seed; }},
    {"graph_captures", "INTEGER", [](const BenchRow& r) -> Json { return r.graph_captures; }},
    {"graph_replays", "INTEGER", [](const BenchRow& r) -> Json { return r.graph_replays; }},
    {"kernel_launches", "INTEGER", [](const BenchRow& r) -> Json { return r.kernel_launches; }},
    {"n_seqs", "INTEGER", [](const BenchRow& r) -> Json { return r.n_seqs; }},
    {"median_seq_ts", "REAL",
     [](const BenchRow& r) -> Json {
       return median(r.samples_ts()) / static_cast<double>(r.n_seqs);
     }},
    {"gbps_source", "TEXT", [](const BenchRow&) -> Json { return kRateSource; }},
    {"median_lo_ns", "INTEGER", [](const BenchRow& r) { return whole(r.median_lo_ns); }},
    {"median_hi_ns", "INTEGER", [](const BenchRow& r) { return whole(r.median_hi_ns); }},
    {"gflops", "REAL", [](const BenchRow& r) { return number_or_null(r.gflops); }},
    {"memory", "TEXT", [](const BenchRow& r) { return text_or_null(r.memory); }},
    {"gap_pct", "REAL",
     [](const BenchRow& r) { return r.gap_share ? Json(100 * *r.gap_share) : Json(nullptr); }},
    {"gap_why", "TEXT", [](const BenchRow& r) { return text_or_null(r.gap_why); }},
    {"clock_mhz", "REAL",
     [](const BenchRow& r) { return r.clock_mhz ? Json(*r.clock_mhz) : Json(nullptr); }},
    {"recaptures", "INTEGER", [](const BenchRow& r) -> Json { return r.recaptures; }},
    {"steady", "TEXT", [](const BenchRow& r) { return text_or_null(r.steady); }},
    {"steady_ns", "INTEGER",
     [](const BenchRow& r) { return r.steady_ns > 0 ? whole(r.steady_ns) : Json(nullptr); }},
    {"n_flagged", "INTEGER", [](const BenchRow& r) -> Json { return r.n_flagged; }},
    {"watermark", "TEXT", [](const BenchRow& r) { return text_or_null(r.watermark); }},
    {"expected_hash", "TEXT", [](const BenchRow& r) { return text_or_null(r.expected_hash); }},
    {"configuration", "INTEGER", [](const BenchRow& r) -> Json { return r.configuration; }},
    {"test_bytes", "INTEGER", [](const BenchRow& r) -> Json { return r.test_bytes; }},
    {"step_bytes", "INTEGER", [](const BenchRow& r) -> Json { return r.step_bytes; }},
    {"test_flops", "REAL", [](const BenchRow& r) -> Json { return r.test_flops; }},
};

// A value as csv and sql print it: no quotes around text, booleans as 0 and 1, null as nothing.
std::string plain(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_number_float()) return fmt::format("{:.6f}", value.get<double>());
  return dump_json(value);
}

std::string doubled(std::string text, char quote) {
  for (size_t at = 0; (at = text.find(quote, at)) != std::string::npos; at += 2) {
    text.insert(at, 1, quote);
  }
  return text;
}

std::string as_csv(const std::vector<BenchRow>& rows) {
  std::string out;
  for (const Field& field : kFields) out += fmt::format("{}{}", out.empty() ? "" : ",", field.name);
  out += "\n";
  for (const BenchRow& row : rows) {
    std::string line;
    for (const Field& field : kFields) {
      line +=
          fmt::format("{}\"{}\"", line.empty() ? "" : ",", doubled(plain(field.value(row)), '"'));
    }
    out += line + "\n";
  }
  return out;
}

std::string as_json(const std::vector<BenchRow>& rows) {
  Json array = Json::array();
  for (const BenchRow& row : rows) array.push_back(bench_row_json(row));
  return dump_json(array, 2) + "\n";
}

std::string as_jsonl(const std::vector<BenchRow>& rows) {
  std::string out;
  for (const BenchRow& row : rows) out += dump_json(bench_row_json(row)) + "\n";
  return out;
}

std::string as_sql(const std::vector<BenchRow>& rows) {
  std::string names, columns;
  for (const Field& field : kFields) {
    columns += fmt::format("{}  {} {}", columns.empty() ? "" : ",\n", field.name, field.sql_type);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", field.name);
  }
  std::string out = fmt::format("CREATE TABLE IF NOT EXISTS llama_bench (\n{}\n);\n\n", columns);
  for (const BenchRow& row : rows) {
    std::string values;
    for (const Field& field : kFields) {
      const Json value = field.value(row);
      values += values.empty() ? "" : ", ";
      values += value.is_null() ? "NULL" : fmt::format("'{}'", doubled(plain(value), '\''));
    }
    out += fmt::format("INSERT INTO llama_bench ({}) VALUES ({});\n", names, values);
  }
  return out;
}

std::string as_markdown(const std::vector<BenchRow>& rows) {
  const bool shows_type =
      std::any_of(rows.begin(), rows.end(), [](const BenchRow& r) { return r.type_k != "f16"; });
  const bool shows_fill = std::any_of(rows.begin(), rows.end(),
                                      [](const BenchRow& r) { return r.kv_fill == "synthetic"; });
  std::vector<Table::Column> columns{
      {"model", Align::left}, {"size"}, {"params"}, {"backend", Align::left}, {"threads"}};
  if (shows_type) columns.insert(columns.end(), {{"type_k"}, {"type_v"}});
  if (shows_fill) columns.push_back({"kv fill"});
  columns.insert(columns.end(), {{"test"},
                                 {"t/s"},
                                 {"median t/s"},
                                 {"p5"},
                                 {"p95"},
                                 {"GB/s*"},
                                 {"% of peak"},
                                 {"logits hash", Align::left}});
  Table table(columns);
  for (const BenchRow& row : rows) {
    const std::vector<double> ts = row.samples_ts();
    std::vector<std::string> cells{row.model_type, format_bytes(row.model_size),
                                   format_count(row.model_n_params), row.backends,
                                   fmt::format("{}", row.n_threads)};
    if (shows_type) cells.insert(cells.end(), {row.type_k, row.type_v});
    if (shows_fill) cells.push_back(row.kv_fill);
    cells.insert(cells.end(),
                 {row.test_name(), fmt::format("{:.2f} ± {:.2f}", mean(ts), sample_stddev(ts)),
                  fmt::format("{:.2f}", median(ts)), fmt::format("{:.2f}", quantile(ts, 0.05)),
                  fmt::format("{:.2f}", quantile(ts, 0.95)), format_figure(row.gbps),
                  row.pct_of_peak > 0 ? fmt::format("{:.1f}", row.pct_of_peak) : "-",
                  row.logits_hash.empty() ? "differs" : row.logits_hash});
    table.add(std::move(cells));
  }
  std::string text = table.markdown() + "\n* declared bytes ÷ time\n";
  for (const BenchRow& row : rows) {
    if (row.watermark.empty()) continue;
    return text + fmt::format("\n**NOT TO BE QUOTED: {}**\n", row.watermark);
  }
  return text;
}

struct FormatName {
  const char* name;
  BenchFormat format;
  std::string (*print)(const std::vector<BenchRow>&);
};
constexpr FormatName kFormats[] = {{"md", BenchFormat::markdown, as_markdown},
                                   {"csv", BenchFormat::csv, as_csv},
                                   {"json", BenchFormat::json, as_json},
                                   {"jsonl", BenchFormat::jsonl, as_jsonl},
                                   {"sql", BenchFormat::sql, as_sql}};

}  // namespace

Json bench_row_json(const BenchRow& row) {
  Json out = Json::object();
  for (const Field& field : kFields) out[field.name] = field.value(row);
  out["samples_ns"] = Json::array();
  for (double ns : row.samples_ns) out["samples_ns"].push_back(whole(ns));
  out["samples_ts"] = row.samples_ts();
  return out;
}

BenchRow bench_row_inputs(const Fields& row) {
  BenchRow out;
  out.build_commit = row.text_at("build_commit");
  out.cpu_info = row.text_at("cpu_info");
  out.gpu_info = row.text_at("gpu_info");
  out.backends = row.text_at("backends");
  out.model_filename = row.text_at("model_filename");
  out.model_type = row.text_at("model_type");
  out.model_size = row.whole_at("model_size", 0);
  out.model_n_params = row.whole_at("model_n_params", 0);
  out.n_batch = static_cast<int>(row.whole_at("n_batch", 0));
  out.n_ubatch = static_cast<int>(row.whole_at("n_ubatch", 0));
  out.n_threads = static_cast<int>(row.whole_at("n_threads", 0));
  out.type_k = row.text_at("type_k", "f16");
  out.type_v = row.text_at("type_v", "f16");
  out.n_gpu_layers = static_cast<int>(row.whole_at("n_gpu_layers", 0));
  out.n_prompt = row.at("n_prompt").whole(0);
  out.n_gen = row.at("n_gen").whole(0);
  out.n_depth = row.whole_at("n_depth", 0);
  out.n_seqs = row.whole_at("n_seqs", 1);
  if (out.n_seqs < 1) row.at("n_seqs").whole(1);
  out.test_time = row.text_at("test_time");
  out.isa = row.text_at("isa");
  out.kv_fill = row.text_at("kv_fill", "real");
  out.cpu_mhz = row.number_at("cpu_mhz").value_or(0);
  if (row.has("seed")) out.seed = row.at("seed").unsigned_whole();
  out.configuration = static_cast<size_t>(std::max<int64_t>(0, row.whole_at("configuration", 0)));
  out.test_bytes = row.whole_at("test_bytes", 0);
  out.step_bytes = row.whole_at("step_bytes", 0);
  out.test_flops = row.number_at("test_flops").value_or(0);
  if (const auto gap = row.number_at("gap_pct")) out.gap_share = *gap / 100;
  out.gap_why = row.text_at("gap_why");
  out.watermark = row.text_at("watermark");
  out.expected_hash = row.text_at("expected_hash");
  out.graph_captures = row.whole_at("graph_captures", 0);
  out.graph_replays = row.whole_at("graph_replays", 0);
  out.kernel_launches = row.whole_at("kernel_launches", 0);
  return out;
}

std::string BenchRow::test_name() const {
  std::string name;
  if (n_prompt > 0) name = fmt::format("pp{}", n_prompt);
  if (n_gen > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", n_gen);
  if (n_seqs > 1) name += fmt::format(" x{}", n_seqs);
  if (n_depth > 0) name += fmt::format(" @ d{}", n_depth);
  return name;
}

std::vector<double> BenchRow::samples_ts() const {
  std::vector<double> ts;
  const double tokens = static_cast<double>(n_seqs * (n_prompt + n_gen));
  for (double ns : samples_ns) ts.push_back(1e9 * tokens / ns);
  return ts;
}

BenchFormat bench_format_from_name(std::string_view name) {
  for (const FormatName& row : kFormats) {
    if (name == row.name) return row.format;
  }
  fail(ErrorCode::usage, "unknown output format '{}': use csv, json, jsonl, md or sql", name);
}

std::string format_bench_rows(const std::vector<BenchRow>& rows, BenchFormat format) {
  for (const FormatName& row : kFormats) {
    if (row.format == format) return row.print(rows);
  }
  FATHOM_CHECK(false, "a format without a printer");
  return "";
}

std::vector<std::string> bench_field_names() {
  std::vector<std::string> names;
  for (const Field& field : kFields) names.push_back(field.name);
  return names;
}

}  // namespace fathom::report
