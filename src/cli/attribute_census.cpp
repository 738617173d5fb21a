// SPDX-License-Identifier: Apache-2.0
// The choice of the source, and what the child process sends.
#include "cli/attribute_census.hpp"

#include "base/error.hpp"
#include "cli/child_process.hpp"
#include "device/backend_loader.hpp"
#include "measure/observation_json.hpp"
#include "measure/op_trace.hpp"

namespace fathom::cli {
namespace {

constexpr size_t kMostSteps = 1100;  // of a window, and some

// The backend's own library, where ops run on a device of its own; null: they run on the host. The
// device is not touched.
const Backend* device_library(const CommonFlags& common) {
  if (common.backend == "cpu" || common.backend == "reference") return nullptr;
  const Backend& library = load_backend(common.backend, common.backend_dir);
  return library.device->shares_host_memory ? nullptr : &library;
}

// What a backend's library keeps, which is there until the process ends.
class BackendTrace : public TraceSource {
 public:
  explicit BackendTrace(TraceSource& of) : of_(of) {}
  OpScopeSink& scopes() override { return of_.scopes(); }
  void start() override { of_.start(); }
  TraceWindow stop(int n_steps) override { return of_.stop(n_steps); }
  const RawTrace* raw() const override { return of_.raw(); }

 private:
  TraceSource& of_;
};

// Windows that prove nothing have no samples.
Json result_json(const CensusResult& result, const std::vector<int64_t>& depths) {
  return {{"header", measure::observation_header(result.observation, depths)},
          {"samples", result.observation.problem.empty()
                          ? measure::observation_samples(result.observation, depths)
                          : Json::array()},
          {"shown",
           {measure::trace_step_json(result.observation.lo().shown),
            measure::trace_step_json(result.observation.hi().shown)}},
          {"logits_hash", result.logits_hash}};
}

CensusResult result_from_json(const Json& json) {
  CensusResult result;
  try {
    result.observation = measure::observation_from_json(json.at("header"), json.at("samples"));
    if (result.observation.depths.size() < 2) {
      fail(ErrorCode::internal, "the process that measures saw fewer than two depths");
    }
    result.observation.depths.front().shown = measure::trace_step_from_json(json.at("shown").at(0));
    result.observation.depths.back().shown = measure::trace_step_from_json(json.at("shown").at(1));
    for (size_t i : {size_t{0}, size_t{1}}) {
      result.logits_hash[i] = json.at("logits_hash").at(i).get<uint64_t>();
    }
  } catch (const Json::exception& e) {
    fail(ErrorCode::internal, "the process that measures sent something else: {}", e.what());
  }
  return result;
}

}  // namespace

bool is_watched_apart(const CommonFlags& common) { return device_library(common) != nullptr; }

void require_trace_source(const CommonFlags& common) {
  const Backend* library = device_library(common);
  if (!library || library->trace_source) return;
  fail(ErrorCode::unavailable,
       "the backend {} cannot trace: its library offers no records of the kernels of a step; "
       "attribute with --backend cpu, or use `fathom bench --profile`",
       common.backend);
}

std::unique_ptr<TraceSource> make_trace_source(const CommonFlags& common, size_t n_ops) {
  require_trace_source(common);
  if (const Backend* library = device_library(common)) {
    return std::make_unique<BackendTrace>(library->trace_source());
  }
  return std::make_unique<measure::OpTrace>(n_ops * kMostSteps);
}

Json census_json(const std::vector<CensusResult>& results, const std::vector<int64_t>& depths) {
  Json out = Json::array();
  for (const CensusResult& result : results) out.push_back(result_json(result, depths));
  return out;
}

std::vector<CensusResult> census_from_json(const Json& json) {
  std::vector<CensusResult> out;
  for (const Json& result : json) out.push_back(result_from_json(result));
  return out;
}

std::vector<CensusResult> census_in_child(const std::vector<std::string>& arguments) {
  const ChildResult child = run_child(arguments, {kCensusChildFlag});
  require_success(child, "the process that measures the steps");
  return census_from_json(parse_json(child.text, "the records of the process that measures"));
}

}  // namespace fathom::cli
