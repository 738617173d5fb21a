// SPDX-License-Identifier: Apache-2.0
// llama-bench's fields stand first and in its order in all five formats, and each format is quoted
// as its readers expect.
#include "report/bench_rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/error.hpp"
#include "base/json.hpp"

namespace fathom::report {
namespace {

BenchRow example() {
  BenchRow row;
  row.model_filename = "it's \"quoted\".gguf";
  row.model_type = "llama Q4_1";
  row.backends = "CPU";
  row.model_size = 98'000'000;
  row.model_n_params = 134'515'008;
  row.n_threads = 2;
  row.type_k = row.type_v = "f16";
  row.n_gen = 100;
  row.n_depth = 4096;
  row.samples_ns = {1e9, 2e9, 4e9};
  row.kv_fill = "real";
  row.gbps = 12.5;
  row.peak_gbps = 25;
  row.pct_of_peak = 50;
  row.logits_hash = "00ff";
  return row;
}

// A reader of quoted csv: cells of the lines of a text without line breaks in cells.
std::vector<std::vector<std::string>> read_csv(const std::string& text) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> cells(1);
    bool quoted = false;
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
        cells.back() += line[i++];
      } else if (line[i] == '"') {
        quoted = !quoted;
      } else if (line[i] == ',' && !quoted) {
        cells.emplace_back();
      } else {
        cells.back() += line[i];
      }
    }
    lines.push_back(std::move(cells));
  }
  return lines;
}

TEST(BenchRows, LlamaBenchFieldsComeFirstInItsOrder) {
  const std::vector<std::string> names = bench_field_names();
  const std::vector<std::string> theirs{"build_commit",   "build_number",
                                        "cpu_info",       "gpu_info",
                                        "backends",       "model_filename",
                                        "model_type",     "model_size",
                                        "model_n_params", "n_batch",
                                        "n_ubatch",       "n_threads",
                                        "cpu_mask",       "cpu_strict",
                                        "poll",           "type_k",
                                        "type_v",         "n_gpu_layers",
                                        "n_cpu_moe",      "split_mode",
                                        "main_gpu",       "no_kv_offload",
                                        "flash_attn",     "devices",
                                        "tensor_split",   "tensor_buft_overrides",
                                        "use_mmap",       "use_direct_io",
                                        "embeddings",     "no_op_offload",
                                        "no_host",        "repack",
                                        "fit_target",     "fit_min_ctx",
                                        "n_prompt",       "n_gen",
                                        "n_depth",        "test_time",
                                        "avg_ns",         "stddev_ns",
                                        "avg_ts",         "stddev_ts"};
  ASSERT_GT(names.size(), theirs.size());
  EXPECT_TRUE(std::equal(theirs.begin(), theirs.end(), names.begin()));
}

TEST(BenchRows, JsonHasFiguresSamplesAndOurs) {
  const Json rows =
      parse_json(format_bench_rows({example(), example()}, BenchFormat::json), "rows");
  ASSERT_EQ(rows.size(), 2u);
  const Json& row = rows[0];
  EXPECT_EQ(row["avg_ns"], 2333333333);
  EXPECT_EQ(row["median_ns"], 2000000000);
  EXPECT_DOUBLE_EQ(row["median_ts"].get<double>(), 50);
  EXPECT_DOUBLE_EQ(row["avg_ts"].get<double>(), (100 + 50 + 25) / 3.0);
  EXPECT_EQ(row["samples_ns"], Json({1000000000, 2000000000, 4000000000}));
  EXPECT_EQ(row["samples_ts"].size(), 3u);
  EXPECT_DOUBLE_EQ(row["pct_of_peak"].get<double>(), 50);
  EXPECT_EQ(row["logits_hash"], "00ff");
  EXPECT_TRUE(row["cpu_mhz"].is_null()) << "an unknown clock is not 0";
}

TEST(BenchRows, JsonlIsOneRowALine) {
  std::istringstream in(format_bench_rows({example(), example()}, BenchFormat::jsonl));
  int lines = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    EXPECT_EQ(parse_json(line, "line")["n_depth"], 4096);
  }
  EXPECT_EQ(lines, 2);
}

TEST(BenchRows, CsvSurvivesQuotes) {
  const auto lines = read_csv(format_bench_rows({example()}, BenchFormat::csv));
  ASSERT_EQ(lines.size(), 2u);
  ASSERT_EQ(lines[0], bench_field_names());
  ASSERT_EQ(lines[1].size(), lines[0].size());
  const auto cell = [&](const char* name) {
    return lines[1][static_cast<size_t>(std::find(lines[0].begin(), lines[0].end(), name) -
                                        lines[0].begin())];
  };
  EXPECT_EQ(cell("model_filename"), "it's \"quoted\".gguf");
  EXPECT_EQ(cell("use_mmap"), "1");
  EXPECT_EQ(cell("avg_ns"), "2333333333");
  EXPECT_EQ(cell("cpu_mhz"), "");
}

TEST(BenchRows, SqlQuotesText) {
  const std::string sql = format_bench_rows({example()}, BenchFormat::sql);
  EXPECT_THAT(sql, testing::StartsWith("CREATE TABLE IF NOT EXISTS llama_bench (\n"));
  EXPECT_THAT(sql, testing::HasSubstr("'it''s \"quoted\".gguf'"));
  EXPECT_THAT(sql, testing::HasSubstr("NULL"));
  EXPECT_EQ(std::count(sql.begin(), sql.end(), ';'), 2);
}

TEST(BenchRows, MarkdownShowsTestAndMarksSyntheticFill) {
  const std::string plain = format_bench_rows({example()}, BenchFormat::markdown);
  EXPECT_THAT(plain, testing::HasSubstr("tg100 @ d4096"));
  EXPECT_THAT(plain, testing::HasSubstr("58.33 ± 38.19"));
  EXPECT_THAT(plain, testing::Not(testing::HasSubstr("kv fill")));
  BenchRow synthetic = example();
  synthetic.kv_fill = "synthetic";
  synthetic.logits_hash = "";
  const std::string marked = format_bench_rows({synthetic}, BenchFormat::markdown);
  EXPECT_THAT(marked, testing::HasSubstr("synthetic"));
  EXPECT_THAT(marked, testing::HasSubstr("differs"));
}

TEST(BenchRows, TestNames) {
  BenchRow row;
  row.n_prompt = 512;
  EXPECT_EQ(row.test_name(), "pp512");
  row.n_gen = 128;
  EXPECT_EQ(row.test_name(), "pp512+tg128");
  row.n_prompt = 0;
  row.n_depth = 512;
  EXPECT_EQ(row.test_name(), "tg128 @ d512");
  row.n_seqs = 8;
  EXPECT_EQ(row.test_name(), "tg128 x8 @ d512");
}

TEST(BenchRows, SpeedOfABatchIsOfAllSequencesAndOfEach) {
  BenchRow batch = example();
  batch.n_seqs = 8;
  const Json row = parse_json(format_bench_rows({batch}, BenchFormat::json), "rows")[0];
  EXPECT_EQ(row["n_seqs"], 8);
  EXPECT_DOUBLE_EQ(row["median_ts"].get<double>(), 8 * 50);
  EXPECT_DOUBLE_EQ(row["median_seq_ts"].get<double>(), 50);
}

TEST(BenchRows, UnknownFormatListsTheKnown) {
  EXPECT_EQ(bench_format_from_name("sql"), BenchFormat::sql);
  try {
    bench_format_from_name("xml");
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_THAT(e.what(), testing::HasSubstr("csv, json, jsonl, md or sql"));
  }
}

}  // namespace
}  // namespace fathom::report
