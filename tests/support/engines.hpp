// SPDX-License-Identifier: Apache-2.0
// What end-to-end tests share: the engines of this machine (backend x instruction set) and the tiny
// models of tests/fixtures.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/logits_hash.hpp"
#include "engine/sequence.hpp"
#include "kernels/common/cpu_kernels.hpp"

namespace fathom::test {

struct Target {
  std::string backend, isa;
};
inline void PrintTo(const Target& target, std::ostream* out) {
  *out << target.backend << (target.isa.empty() ? "" : "_") << target.isa;
}

inline std::vector<Target> cpu_targets() {
  std::vector<Target> out;
  for (const CpuKernels* kernels : available_cpu_kernels()) out.push_back({"cpu", kernels->isa});
  return out;
}
inline std::vector<Target> all_targets() {
  std::vector<Target> out = cpu_targets();
  out.push_back({"reference", ""});
  return out;
}

inline const std::vector<std::string>& tiny_models() {
  static const std::vector<std::string> kNames{"llama_plain",  "llama_rope_freqs", "llama_linear",
                                               "llama_yarn",   "llama_bias",       "qwen2_bias",
                                               "qwen3_qk_norm"};
  return kNames;
}
inline std::string fixture(const std::string& file) {
  return FATHOM_SOURCE_DIR "/tests/fixtures/" + file;
}

inline OpenOptions options_for(const Target& target) {
  OpenOptions options;
  options.backend = target.backend;
  options.isa = target.isa;
  options.threads = 1;  // a busy machine makes barriers slow; Invariance.Threads has others
  options.n_ctx = 512;
  return options;
}

// Hash of the logits of every token of `tokens`, one step each.
inline std::vector<uint64_t> decode_hashes(engine::Sequence& sequence,
                                           std::span<const int32_t> tokens) {
  std::vector<uint64_t> out;
  for (const int32_t token : tokens) {
    sequence.step(token);
    out.push_back(engine::logits_hash(sequence.logits()));
  }
  return out;
}

// The same through prefill.
inline std::vector<uint64_t> prefill_hashes(engine::Sequence& sequence,
                                            std::span<const int32_t> tokens) {
  std::vector<uint64_t> out;
  const size_t vocab_size = sequence.engine().info().vocab_size;
  sequence.prefill(tokens, LogitsMode::all, [&](int64_t, std::span<const float> rows) {
    for (size_t at = 0; at < rows.size(); at += vocab_size) {
      out.push_back(engine::logits_hash(rows.subspan(at, vocab_size)));
    }
  });
  return out;
}

// A reproducible text of token ids without meaning.
inline std::vector<int32_t> teacher_tokens(int64_t n, int64_t vocab_size) {
  std::vector<int32_t> out(n);
  uint32_t state = 12345;
  for (int32_t& token : out) {
    state = state * 1664525u + 1013904223u;
    token = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab_size));
  }
  return out;
}

}  // namespace fathom::test
