// SPDX-License-Identifier: Apache-2.0
// Refuses to measure on a GPU that somebody else uses, unless --allow-busy: then the result says so
// wherever it is shown. What makes a GPU idle stands in measure/gpu_idle.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "measure/nvml.hpp"
#include "report/result.hpp"

namespace fathom::cli {

class GpuGuard {
 public:
  // Before the backend's library is opened, so that nothing of ours runs on the GPU yet; does
  // nothing but for backend cuda. A second, or four when the GPU is not idle. Throws
  // Error{unavailable} that says why it is not.
  GpuGuard(const CommonFlags& common, bool allow_busy);

  // The canary, on the device of the backend; the same error. Keeps its times.
  void run_canary();

  const measure::Nvml& nvml() const { return nvml_; }
  std::optional<size_t> gpu() const { return gpu_; }                 // its place in Nvml::read()
  const std::vector<report::Gate>& gates() const { return gates_; }  // of the driver's readings
  std::vector<report::Gate> all_gates() const;                       // and of the canary
  Json state() const;  // of the machine now, for a document's machine.state
  const std::vector<double>& canary_us() const { return canary_us_; }
  // Why the figures are marked; empty when they are not.
  const std::string& watermark() const { return watermark_; }

 private:
  void judge(bool idle, const std::string& why);

  const CommonFlags& common_;
  bool allow_busy_;
  bool on_gpu_;
  measure::Nvml nvml_;
  std::optional<size_t> gpu_;
  std::vector<report::Gate> gates_;
  std::vector<double> canary_us_;
  std::string watermark_;
};

}  // namespace fathom::cli
