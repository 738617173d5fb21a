// SPDX-License-Identifier: Apache-2.0
// What counters and sampled stalls say of the ops that grow. Each way of watching a device needs a
// process of its own (device/backend.hpp), so there are two further children beside that of the
// census: one counts every op at both anchors, one samples the growing ones at the deeper. What a
// device refuses is a reason in what they send back, and no error.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "cli/attribute_program.hpp"
#include "cli/command.hpp"
#include "measure/diagnosis.hpp"
#include "measure/evidence.hpp"

namespace fathom::cli {

// Takes "counters", or "stalls:" and names of ops with commas between.
inline constexpr const char* kEvidenceChildFlag = "--evidence-child";

struct EvidenceRuns {
  measure::Counted counted;
  measure::Sampled sampled;
};

// On the host, in the process that measured, when all times are taken: steps at the first and the
// last depth. The problem says why nothing could be counted.
measure::Counted count_on_host(Model& model, ModelProgram& program, size_t n_depths);

// Runs both children, one after the other. `ops` are those to be sampled; of none there is nothing
// to know. Throws Error{cancelled}.
EvidenceRuns evidence_in_children(const std::vector<std::string>& arguments,
                                  const std::vector<std::string>& ops);

// In such a child.
class EvidenceSource {
 public:
  // Asks the backend, before the device is used. Throws Error{usage} for another `what`.
  EvidenceSource(const std::string& what, const CommonFlags& common);

  // Whether the device can be watched so, and a model is worth opening.
  bool usable() const { return problem_.empty(); }
  // Runs steps at the depths 0 and 1 of the program.
  Json watch(Model& model, ModelProgram& program, const DeviceApi& device) const;
  // What the parent gets instead.
  Json nothing() const;

 private:
  std::vector<std::string> ops_;  // to be sampled; empty: counters
  CounterSource* counters_ = nullptr;
  StallSource* stalls_ = nullptr;
  std::string problem_;
};

// Steps of graphs as kernels one by one, unwatched; none where steps are no graphs.
struct EagerSamples {
  std::vector<int64_t> steps_ns[2];  // at both anchors
  measure::EagerSteps quiet() const;
};
std::optional<EagerSamples> time_eager_steps(Model& model, ModelProgram& program, size_t n_depths);

}  // namespace fathom::cli
