// SPDX-License-Identifier: Apache-2.0
// Field by field; the first difference is told.
#include "measure/verbatim.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fathom::measure {
namespace {

template <class T>
std::string unlike(const char* field, const T& engine, const T& probed) {
  return fmt::format("{}: {} in the engine, {} in the probe", field, engine, probed);
}

std::string extent(const std::array<int, 3>& size) {
  return fmt::format("{}", fmt::join(size, " x "));
}

std::optional<std::string> word_difference(const KernelWord& engine, const KernelWord& probed) {
  const std::string field =
      fmt::format("argument {} at byte {}", engine.parameter, engine.offset);
  if (engine.parameter != probed.parameter || engine.offset != probed.offset ||
      engine.bytes != probed.bytes) {
    return fmt::format("the arguments have another layout from {} on", field);
  }
  if (engine.is_address != probed.is_address) {
    return fmt::format("{}: {} in the engine, {} in the probe", field,
                       engine.is_address ? "an address" : "a value",
                       probed.is_address ? "an address" : "a value");
  }
  if (engine.is_address || engine.value == probed.value) return std::nullopt;
  return fmt::format("{}: {:#x} in the engine, {:#x} in the probe", field, engine.value,
                     probed.value);
}

}  // namespace

std::optional<std::string> verbatim_difference(const KernelLaunch& engine,
                                               const KernelLaunch& probed) {
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
  for (size_t i = 0; i < engine.arguments.size(); ++i) {
    if (auto word = word_difference(engine.arguments[i], probed.arguments[i])) return word;
  }
  return std::nullopt;
}

std::optional<std::string> verbatim_difference(const std::vector<KernelLaunch>& engine,
                                               const std::vector<KernelLaunch>& probed) {
  if (engine.empty() || probed.empty()) return "no kernels to compare";
  if (engine.size() != probed.size()) return unlike("kernels", engine.size(), probed.size());
  for (size_t i = 0; i < engine.size(); ++i) {
    if (auto field = verbatim_difference(engine[i], probed[i])) {
      return fmt::format("kernel {} of {}: {}", i + 1, engine.size(), *field);
    }
  }
  return std::nullopt;
}

ComparedBytes compared_bytes(const std::vector<KernelLaunch>& kernels) {
  ComparedBytes out;
  for (const KernelLaunch& kernel : kernels) {
    for (const KernelWord& word : kernel.arguments) {
      (word.is_address ? out.addresses : out.values) += word.bytes;
    }
  }
  return out;
}

}  // namespace fathom::measure
