// SPDX-License-Identifier: Apache-2.0
// CUPTI knows the lines, sass.hpp the waits.
#include <cstdlib>
#include <utility>

#include "backends/cuda/code_place.hpp"
#include "base/error.hpp"

namespace fathom::cuda {

KernelCode::KernelCode(const Cupti& api, std::span<const std::byte> cubin, std::string function)
    : api_(api), cubin_(cubin), function_(std::move(function)) {
  try {
    const Cubin file(cubin);
    if (file.is_known()) {
      code_ = file.code(function_);
      if (code_.empty()) problem_ = fmt::format("its cubin has no kernel {}", function_);
    } else {
      problem_ =
          fmt::format("unknown encoding: no test covers the code of sm_{}", file.architecture());
    }
  } catch (const Error& error) {
    problem_ = error.what();
  }
}

CodePlace KernelCode::place(int64_t offset) const {
  CodePlace out;
  out.offset = offset;
  const size_t at = static_cast<size_t>(offset / kSassBytes);
  if (at < code_.size()) out.instruction = code_[at].name();
  CUpti_GetSassToSourceCorrelationParams params{};
  params.size = CUpti_GetSassToSourceCorrelationParamsSize;
  params.cubin = cubin_.data();
  params.cubinSize = cubin_.size();
  params.functionName = function_.c_str();
  params.pcOffset = static_cast<uint64_t>(offset);
  if (api_.get_sass_to_source_correlation(&params) != CUPTI_SUCCESS) return out;
  if (params.fileName) out.file = params.fileName;
  out.line = static_cast<int>(params.lineNumber);
  std::free(params.fileName);
  std::free(params.dirName);
  return out;
}

void KernelCode::find_producers_of(StalledPlace& at) const {
  const int64_t offset = at.place.offset;
  if (!problem_.empty() || offset / kSassBytes >= static_cast<int64_t>(code_.size())) {
    at.problem = problem_.empty() ? "it lies outside the kernel" : problem_;
    return;
  }
  for (const int64_t producer : find_producers(code_, offset)) {
    at.producers.push_back(place(producer));
  }
  if (at.producers.empty()) {
    at.problem =
        code_[static_cast<size_t>(offset / kSassBytes)].name() == "SYNCS"
            ? "it waits for a barrier in shared memory, which the code does not tie to the "
              "copies that arrive there"
            : "no load sets a barrier that it waits on";
  }
}

}  // namespace fathom::cuda
