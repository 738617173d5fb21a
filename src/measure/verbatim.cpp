// SPDX-License-Identifier: Apache-2.0
// Field by field; the first difference is told.
#include "measure/verbatim.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>

namespace fathom::measure {
namespace {

template <class T>
std::string unlike(const char* field, const T& engine, const T& probed) {
  return fmt::format("{}: {} in the engine, {} in the probe", field, engine, probed);
}

std::string extent(const std::array<int, 3>& size) {
  return fmt::format("{}", fmt::join(size, " x "));
}

// Bytes of a word that two captures left different.
uint64_t padding_mask(const KernelWord& word, const KernelWord& again) {
  uint64_t mask = 0;
  for (int byte = 0; byte < 8; ++byte) {
    const uint64_t of_byte = uint64_t{0xff} << (8 * byte);
    if ((word.value ^ again.value) & of_byte) mask |= of_byte;
  }
  return word.is_address || again.is_address ? 0 : mask;
}

std::optional<std::string> word_difference(const KernelWord& engine, const KernelWord& probed,
                                           uint64_t padding) {
  const std::string field = fmt::format("argument {} at byte {}", engine.parameter, engine.offset);
  if (engine.parameter != probed.parameter || engine.offset != probed.offset ||
      engine.bytes != probed.bytes) {
    return fmt::format("the arguments have another layout from {} on", field);
  }
  if (engine.is_address != probed.is_address) {
    return fmt::format("{}: {} in the engine, {} in the probe", field,
                       engine.is_address ? "an address" : "a value",
                       probed.is_address ? "an address" : "a value");
  }
  if (engine.is_address || ((engine.value ^ probed.value) & ~padding) == 0) return std::nullopt;
  return fmt::format("{}: {:#x} in the engine, {:#x} in the probe", field, engine.value,
                     probed.value);
}

std::optional<std::string> kernel_difference(const KernelLaunch& engine, const KernelLaunch& probed,
                                             const KernelLaunch& again) {
  if (engine.kernel != probed.kernel) return unlike("symbol", engine.kernel, probed.kernel);
  if (engine.code_hash == 0 || probed.code_hash == 0) {
    return fmt::format("code: nothing is known of the binary of {}", engine.kernel);
  }
  if (engine.code_hash != probed.code_hash)
    return fmt::format("code: hash {:016x} in the engine, {:016x} in the probe", engine.code_hash,
                       probed.code_hash);
  if (engine.grid != probed.grid) return unlike("grid", extent(engine.grid), extent(probed.grid));
  if (engine.block != probed.block)
    return unlike("block", extent(engine.block), extent(probed.block));
  if (engine.shared_bytes != probed.shared_bytes)
    return unlike("shared memory", engine.shared_bytes, probed.shared_bytes);
  if (engine.arguments.empty() || probed.arguments.empty()) return "arguments: none were recorded";
  if (engine.arguments.size() != probed.arguments.size())
    return unlike("words of arguments", engine.arguments.size(), probed.arguments.size());
  if (again.arguments.size() != probed.arguments.size())
    return unlike("words of a second capture", probed.arguments.size(), again.arguments.size());
  for (size_t i = 0; i < engine.arguments.size(); ++i) {
    const uint64_t padding = padding_mask(probed.arguments[i], again.arguments[i]);
    if (auto word = word_difference(engine.arguments[i], probed.arguments[i], padding)) return word;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> verbatim_difference(const std::vector<KernelLaunch>& engine,
                                               const ProbedCall& probed) {
  const size_t n = probed.kernels.size();
  if (engine.empty() || n == 0) return "no kernels to compare";
  if (engine.size() != n) return unlike("kernels", engine.size(), n);
  if (probed.again.size() != n)
    return unlike("kernels of a second capture", n, probed.again.size());
  for (size_t i = 0; i < n; ++i) {
    if (auto field = kernel_difference(engine[i], probed.kernels[i], probed.again[i])) {
      return fmt::format("kernel {} of {}: {}", i + 1, n, *field);
    }
  }
  return std::nullopt;
}

ComparedBytes compared_bytes(const ProbedCall& probed) {
  ComparedBytes out;
  for (size_t k = 0; k < probed.kernels.size(); ++k) {
    const std::vector<KernelWord>& words = probed.kernels[k].arguments;
    for (size_t i = 0; i < words.size(); ++i) {
      const uint64_t mask = padding_mask(words[i], probed.again[k].arguments[i]);
      const int64_t padding = std::popcount(mask) / 8;
      out.padding += padding;
      (words[i].is_address ? out.addresses : out.values) += words[i].bytes - padding;
    }
  }
  return out;
}

}  // namespace fathom::measure
