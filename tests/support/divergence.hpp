// SPDX-License-Identifier: Apache-2.0
// How far the next-token distributions of one engine are from those of another, over the tokens of
// a text that both are given.
//   KL = sum over tokens of p log(p / q),  p of the oracle, in nats
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "tests/support/engines.hpp"

namespace fathom::test {

inline std::vector<double> log_softmax(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - largest);
  std::vector<double> out(logits.begin(), logits.end());
  for (double& x : out) x -= largest + std::log(sum);
  return out;
}

// Every row of logits of a text.
inline std::vector<float> all_logits(const std::string& path, const OpenOptions& options,
                                     std::span<const int32_t> tokens) {
  engine::Sequence sequence(engine::Engine::open(path, options));
  std::vector<float> out;
  sequence.prefill(tokens, LogitsMode::all, [&](int64_t, std::span<const float> rows) {
    out.insert(out.end(), rows.begin(), rows.end());
  });
  return out;
}

struct Divergence {
  double mean_kl = 0;
  double same_top = 0;  // share of the rows whose most likely token is the oracle's
  double entropy = 0;   // mean, of the oracle
  int64_t n_rows = 0;
};

inline Divergence divergence(std::span<const float> oracle, std::span<const float> engine,
                             size_t vocab_size) {
  Divergence out;
  const auto top = [](const std::vector<double>& row) {
    return std::max_element(row.begin(), row.end()) - row.begin();
  };
  for (size_t at = 0; at + vocab_size <= std::min(oracle.size(), engine.size());
       at += vocab_size, ++out.n_rows) {
    const std::vector<double> p = log_softmax(oracle.subspan(at, vocab_size));
    const std::vector<double> q = log_softmax(engine.subspan(at, vocab_size));
    for (size_t i = 0; i < vocab_size; ++i) {
      out.mean_kl += std::exp(p[i]) * (p[i] - q[i]);
      out.entropy -= std::exp(p[i]) * p[i];
    }
    out.same_top += top(p) == top(q) ? 1 : 0;
  }
  out.mean_kl /= static_cast<double>(out.n_rows);
  out.entropy /= static_cast<double>(out.n_rows);
  out.same_top /= static_cast<double>(out.n_rows);
  return out;
}

}  // namespace fathom::test
