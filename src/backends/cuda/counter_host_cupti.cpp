// SPDX-License-Identifier: Apache-2.0
// Calls of cuptiProfilerHost*.
#include <utility>

#include "backends/cuda/counter_host.hpp"
#include "base/error.hpp"

namespace fathom::cuda {
namespace {

std::vector<const char*> pointers(const std::vector<std::string>& names) {
  std::vector<const char*> out;
  for (const std::string& name : names) out.push_back(name.c_str());
  return out;
}

}  // namespace

class CounterHost::Object {
 public:
  explicit Object(const CounterHost& host) : api_(host.api_) {
    CUpti_Profiler_Host_Initialize_Params params{};
    params.structSize = CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE;
    params.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    params.pChipName = host.chip_.c_str();
    params.pCounterAvailabilityImage =
        host.availability_.empty() ? nullptr : host.availability_.data();
    check_cupti(api_, api_.host_initialize(&params));
    handle_ = params.pHostObject;
  }
  ~Object() {
    CUpti_Profiler_Host_Deinitialize_Params params{};
    params.structSize = CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE;
    params.pHostObject = handle_;
    api_.host_deinitialize(&params);
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  CUpti_Profiler_Host_Object* get() const { return handle_; }

 private:
  const Cupti& api_;
  CUpti_Profiler_Host_Object* handle_ = nullptr;
};

std::vector<std::string> CounterHost::supported_chips(const Cupti& api) {
  CUpti_Profiler_Host_GetSupportedChips_Params params{};
  params.structSize = CUpti_Profiler_Host_GetSupportedChips_Params_STRUCT_SIZE;
  check_cupti(api, api.host_get_supported_chips(&params));
  return {params.ppChipNames, params.ppChipNames + params.numChips};
}

CounterHost::CounterHost(const Cupti& api, std::string chip, std::span<const uint8_t> availability)
    : api_(api), chip_(std::move(chip)), availability_(availability.begin(), availability.end()) {
  const Object object(*this);
  for (const CUpti_MetricType type :
       {CUPTI_METRIC_TYPE_COUNTER, CUPTI_METRIC_TYPE_RATIO, CUPTI_METRIC_TYPE_THROUGHPUT}) {
    CUpti_Profiler_Host_GetBaseMetrics_Params params{};
    params.structSize = CUpti_Profiler_Host_GetBaseMetrics_Params_STRUCT_SIZE;
    params.pHostObject = object.get();
    params.metricType = type;
    check_cupti(api_, api_.host_get_base_metrics(&params));
    for (size_t i = 0; i < params.numMetrics; ++i) bases_.insert(params.ppMetricNames[i]);
  }
}

bool CounterHost::has(std::string_view metric) const {
  return bases_.contains(metric.substr(0, metric.find('.')));
}

CounterPlan CounterHost::plan(std::vector<std::string> metrics) const {
  CounterPlan out;
  out.metrics = std::move(metrics);
  std::vector<const char*> names = pointers(out.metrics);
  const Object object(*this);
  CUpti_Profiler_Host_ConfigAddMetrics_Params add{};
  add.structSize = CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE;
  add.pHostObject = object.get();
  add.ppMetricNames = names.data();
  add.numMetrics = names.size();
  check_cupti(api_, api_.host_config_add_metrics(&add));

  CUpti_Profiler_Host_GetConfigImageSize_Params size{};
  size.structSize = CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE;
  size.pHostObject = object.get();
  check_cupti(api_, api_.host_get_config_image_size(&size));
  out.image.resize(size.configImageSize);

  CUpti_Profiler_Host_GetConfigImage_Params image{};
  image.structSize = CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE;
  image.pHostObject = object.get();
  image.configImageSize = out.image.size();
  image.pConfigImage = out.image.data();
  check_cupti(api_, api_.host_get_config_image(&image));

  CUpti_Profiler_Host_GetNumOfPasses_Params passes{};
  passes.structSize = CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE;
  passes.configImageSize = out.image.size();
  passes.pConfigImage = out.image.data();
  check_cupti(api_, api_.host_get_num_of_passes(&passes));
  out.n_passes = static_cast<int>(passes.numOfPasses);
  return out;
}

std::vector<double> CounterHost::values(const CounterPlan& plan, std::span<const uint8_t> counters,
                                        size_t range) const {
  std::vector<const char*> names = pointers(plan.metrics);
  std::vector<double> out(names.size());
  const Object object(*this);
  CUpti_Profiler_Host_EvaluateToGpuValues_Params params{};
  params.structSize = CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE;
  params.pHostObject = object.get();
  params.pCounterDataImage = counters.data();
  params.counterDataImageSize = counters.size();
  params.rangeIndex = range;
  params.ppMetricNames = names.data();
  params.numMetrics = names.size();
  params.pMetricValues = out.data();
  check_cupti(api_, api_.host_evaluate_to_gpu_values(&params));
  return out;
}

}  // namespace fathom::cuda
