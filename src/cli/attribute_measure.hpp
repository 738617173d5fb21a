// SPDX-License-Identifier: Apache-2.0
// The measuring of `attribute`: engines with their sequences at the depths, and their steps watched
// and unwatched, in this process or with the watched ones in a child.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/attribute_evidence.hpp"
#include "cli/attribute_program.hpp"
#include "cli/confirm.hpp"
#include "cli/engine_kernels.hpp"
#include "cli/model_flags.hpp"
#include "measure/observation.hpp"

namespace fathom::cli {

inline constexpr int kRoundsBetweenPeaks = 6;
inline constexpr int kPeaksAtEachEnd = 4;  // where none are between the rounds

struct AttributeFlags {
  ModelFlags model;
  std::string depths = "64,1641";
  std::string fill = "real";
  double seconds = 60;
  int rounds = 10;
  uint64_t seed = 1;
  std::string variant, html, perfetto;
  std::vector<std::string> confirm;
  int n_parallel = 1;
  bool separate = false;
  bool census_child = false;
  std::string evidence_child;
  bool allow_busy = false;
};

// Ascending. Throws Error{usage} for fewer than two.
std::vector<int64_t> depths_of(const AttributeFlags& flags);
CacheFill fill_of(const AttributeFlags& flags);

// A loaded model with its sequences at the depths.
struct Subject {
  std::unique_ptr<EngineKernels> kernels;  // of a device
  std::unique_ptr<OpenedModel> opened;     // stays where it is, as the program refers to it
  std::unique_ptr<ModelProgram> program;
  std::vector<std::vector<measure::CostRecorder::Entry>> costs;  // [depth]
  uint64_t hash[2];                                              // of unwatched steps

  size_t n_ops() const { return costs.back().size() + costs.front().size(); }
};

// The engine as asked for, and those with a knob changed each.
struct Subjects {
  std::vector<Subject> all;  // the first is the base
  std::vector<Knob> knobs;
};
// Throws Error{out_of_memory} that says which of them does not fit.
Subjects open_subjects(const AttributeFlags& flags, const std::vector<int64_t>& depths,
                       const CommonFlags& common);

// What is left of a subject when its model is closed.
struct Facts {
  ModelInfo info;
  int64_t kv_token_bytes;
  std::vector<std::vector<measure::CostRecorder::Entry>> costs;
  uint64_t unwatched_hash[2], watched_hash[2] = {0, 0};
  std::vector<KernelLaunch> attn_kernels;  // of a call in the captured step

  explicit Facts(const Subject& subject)
      : info(subject.opened->model.info()),
        kv_token_bytes(subject.opened->model.memory().kv_token_bytes),
        costs(subject.costs),
        unwatched_hash{subject.hash[0], subject.hash[1]} {
    if (subject.kernels) attn_kernels = subject.kernels->call_of("attn");
  }
};

struct Measured {
  Facts facts;
  measure::Observation observation;
  measure::Peaks peaks;
  std::vector<double> memory_gbps;  // samples
  std::optional<EagerSamples> eager{};
  std::optional<measure::Counted> counted{};  // of the base on a host
};

// Watched and unwatched steps in turn.
std::vector<Measured> measure_together(const AttributeFlags& flags,
                                       const std::vector<int64_t>& depths,
                                       std::vector<Subject> subjects,
                                       const measure::Machine& machine, const CommonFlags& common);
// The peaks here, before and after. Between them, with the models here closed, in a process of its
// own: all depths, while nothing that watches is in that process; then, of the same models, watched
// steps of the anchors.
std::vector<Measured> measure_apart(const std::vector<int64_t>& depths,
                                    std::vector<Subject> subjects, const measure::Machine& machine,
                                    const Context& context);

// The whole program of a child process, which writes one JSON document: the steps, or what counters
// and stalls say.
int census_child(const AttributeFlags& flags, const CommonFlags& common);
int evidence_child(const AttributeFlags& flags, const CommonFlags& common);

}  // namespace fathom::cli
