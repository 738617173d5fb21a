// SPDX-License-Identifier: Apache-2.0
// The two kinds of files, and the Kullback-Leibler divergence of two rows of logits.
#include "cli/bench_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/error.hpp"
#include "cli/arguments.hpp"
#include "report/fields.hpp"
#include "report/recompute.hpp"

namespace fathom::cli {
namespace {

using report::BenchRow;
using report::Fields;

double log_sum_exp(std::span<const double> x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double value : x) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

size_t top_of(std::span<const double> x) {
  return static_cast<size_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

bool same_output(const BenchRow& a, const BenchRow& b) {
  return a.test_name() == b.test_name() && a.kv_fill == b.kv_fill && a.type_k == b.type_k &&
         a.type_v == b.type_v && a.seed == b.seed && a.model_size == b.model_size &&
         a.model_n_params == b.model_n_params;
}

}  // namespace

std::string output_key(const BenchRow& row, int64_t vocab_size) {
  return fmt::format("{} fill={} k={} v={} seed={} params={} vocab={}", row.test_name(),
                     row.kv_fill, row.type_k, row.type_v, row.seed, row.model_n_params, vocab_size);
}

void LogitsFile::add(const std::string& key, std::span<const float> logits) {
  rows_.push_back({{"key", key}, {"logits", std::vector<float>(logits.begin(), logits.end())}});
}

void LogitsFile::save(const std::string& path) const {
  std::ofstream file(path);
  file << dump_json({{"schema", kLogitsSchema}, {"rows", rows_}}) << "\n";
  if (!file.flush()) {
    fail(ErrorCode::bad_file, "cannot write {}: is the folder there and the disk not full?", path);
  }
}

OutputCheck::OutputCheck(const std::string& path) : path_(path) {
  const Json json = parse_json(read_text(path, report::kLargestDocument), path);
  try {
    if (json.is_array()) {
      const Fields rows(json, "rows");
      for (size_t i = 0; i < rows.size(); ++i) {
        rows_.push_back(report::bench_row_inputs(rows.at(i)));
        rows_.back().logits_hash = rows.at(i).at("logits_hash").text();
      }
      return;
    }
    const Fields document(json, "");
    if (document.at("schema").text() == kLogitsSchema) {
      document.at("rows").size();
      logits_ = json["rows"];
      return;
    }
    const Fields rows = document.at("summary").at("rows");
    for (size_t i = 0; i < rows.size(); ++i) {
      rows_.push_back(report::bench_row_inputs(rows.at(i)));
      rows_.back().logits_hash = rows.at(i).at("logits_hash").text();
    }
  } catch (const Error& e) {
    fail(e.code(), "{}: {}", path, e.what());
  }
}

std::optional<std::string> OutputCheck::hash(const BenchRow& row) const {
  for (const BenchRow& stored : rows_) {
    if (same_output(stored, row) && !stored.logits_hash.empty()) return stored.logits_hash;
  }
  return {};
}

std::optional<OutputCheck::Divergence> OutputCheck::divergence(
    const std::string& key, std::span<const float> logits) const {
  for (size_t i = 0; i < logits_.size(); ++i) {
    const Fields row(logits_[i], fmt::format("{}: rows[{}]", path_, i));
    if (row.at("key").text() != key) continue;
    const std::vector<double> base = row.at("logits").numbers();
    if (base.size() != logits.size()) {
      fail(ErrorCode::bad_file, "{}: {} logits, the model has {}", row.path(), base.size(),
           logits.size());
    }
    const std::vector<double> ours(logits.begin(), logits.end());
    const double base_norm = log_sum_exp(base), norm = log_sum_exp(ours);
    double kl = 0;
    for (size_t token = 0; token < base.size(); ++token) {
      const double log_p = base[token] - base_norm;
      kl += std::exp(log_p) * (log_p - (ours[token] - norm));
    }
    return Divergence{std::max(kl, 0.0), top_of(base) == top_of(ours)};
  }
  return {};
}

}  // namespace fathom::cli
