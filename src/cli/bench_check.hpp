// SPDX-License-Identifier: Apache-2.0
// Are the outputs of a benchmark right? --check-output sets the last logits of each test against a
// file: an earlier result, by hash (equal bit for bit), or logits that --save-logits wrote, perhaps
// with another backend, by divergence.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "report/bench_rows.hpp"

namespace fathom::cli {

inline constexpr const char* kLogitsSchema = "fathom-logits/1";

// What has the same logits on every machine: one test of one model. Fields that only change speed
// stay out of it.
std::string output_key(const report::BenchRow& row, int64_t vocab_size);

// The logits of each test's first sequence.
class LogitsFile {
 public:
  void add(const std::string& key, std::span<const float> logits);
  // Throws Error{bad_file} when it cannot be written.
  void save(const std::string& path) const;

 private:
  Json rows_ = Json::array();
};

class OutputCheck {
 public:
  // Throws Error{bad_file}.
  explicit OutputCheck(const std::string& path);

  // The hash that a row must end with; nothing when the file has no such row, or has logits.
  std::optional<std::string> hash(const report::BenchRow& row) const;
  // Divergence of `logits` from the stored ones, in nats, and whether the likeliest token is the
  // same; nothing when the file has none of them.
  struct Divergence {
    double kl;
    bool same_top;
  };
  std::optional<Divergence> divergence(const std::string& key, std::span<const float> logits) const;

  bool has_logits() const { return logits_.is_array(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<report::BenchRow> rows_;
  Json logits_;  // an array of {key, logits}; null when the file has hashes
};

}  // namespace fathom::cli
