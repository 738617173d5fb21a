// SPDX-License-Identifier: Apache-2.0
// CUPTI, loaded when somebody asks for it: the program runs without it. Looked for where the loader
// looks (LD_LIBRARY_PATH, ldconfig), then in CUDA's own folders.
#pragma once

#include <cupti.h>
#include <cupti_pcsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <span>
#include <string>
#include <vector>

namespace fathom::cuda {

// The functions that Fathom calls, all there.
struct Cupti {
  decltype(&cuptiGetVersion) get_version;
  decltype(&cuptiGetResultString) get_result_string;
  decltype(&cuptiSubscribe_v2) subscribe;
  decltype(&cuptiUnsubscribe) unsubscribe;
  decltype(&cuptiEnableCallback) enable_callback;
  decltype(&cuptiGetGraphId) get_graph_id;
  decltype(&cuptiGetGraphExecId) get_graph_exec_id;
  decltype(&cuptiGetGraphNodeId) get_graph_node_id;
  decltype(&cuptiActivityRegisterCallbacks) activity_register_callbacks;
  decltype(&cuptiActivityRegisterTimestampCallback) activity_register_timestamp_callback;
  decltype(&cuptiActivitySetAttribute) activity_set_attribute;
  decltype(&cuptiActivityEnable) activity_enable;
  decltype(&cuptiActivityDisable) activity_disable;
  decltype(&cuptiActivityFlushAll) activity_flush_all;
  decltype(&cuptiActivityGetNextRecord) activity_get_next_record;
  decltype(&cuptiActivityGetNumDroppedRecords) activity_get_num_dropped_records;
  decltype(&cuptiActivityEnableHWTrace) activity_enable_hw_trace;

  decltype(&cuptiProfilerInitialize) profiler_initialize;
  decltype(&cuptiDeviceGetChipName) device_get_chip_name;
  decltype(&cuptiProfilerGetCounterAvailability) profiler_get_counter_availability;
  decltype(&cuptiProfilerHostGetSupportedChips) host_get_supported_chips;
  decltype(&cuptiProfilerHostInitialize) host_initialize;
  decltype(&cuptiProfilerHostDeinitialize) host_deinitialize;
  decltype(&cuptiProfilerHostGetBaseMetrics) host_get_base_metrics;
  decltype(&cuptiProfilerHostConfigAddMetrics) host_config_add_metrics;
  decltype(&cuptiProfilerHostGetConfigImageSize) host_get_config_image_size;
  decltype(&cuptiProfilerHostGetConfigImage) host_get_config_image;
  decltype(&cuptiProfilerHostGetNumOfPasses) host_get_num_of_passes;
  decltype(&cuptiProfilerHostEvaluateToGpuValues) host_evaluate_to_gpu_values;
  decltype(&cuptiRangeProfilerEnable) range_enable;
  decltype(&cuptiRangeProfilerDisable) range_disable;
  decltype(&cuptiRangeProfilerSetConfig) range_set_config;
  decltype(&cuptiRangeProfilerStart) range_start;
  decltype(&cuptiRangeProfilerStop) range_stop;
  decltype(&cuptiRangeProfilerPushRange) range_push;
  decltype(&cuptiRangeProfilerPopRange) range_pop;
  decltype(&cuptiRangeProfilerDecodeData) range_decode_data;
  decltype(&cuptiRangeProfilerGetCounterDataSize) range_get_counter_data_size;
  decltype(&cuptiRangeProfilerCounterDataImageInitialize) range_counter_data_image_initialize;
  decltype(&cuptiRangeProfilerGetCounterDataInfo) range_get_counter_data_info;
  decltype(&cuptiRangeProfilerCounterDataGetRangeInfo) range_counter_data_get_range_info;

  decltype(&cuptiPCSamplingEnable) pc_enable;
  decltype(&cuptiPCSamplingDisable) pc_disable;
  decltype(&cuptiPCSamplingStart) pc_start;
  decltype(&cuptiPCSamplingStop) pc_stop;
  decltype(&cuptiPCSamplingGetData) pc_get_data;
  decltype(&cuptiPCSamplingSetConfigurationAttribute) pc_set_configuration_attribute;
  decltype(&cuptiPCSamplingGetNumStallReasons) pc_get_num_stall_reasons;
  decltype(&cuptiPCSamplingGetStallReasons) pc_get_stall_reasons;
  decltype(&cuptiGetSassToSourceCorrelation) get_sass_to_source_correlation;
  decltype(&cuptiGetCubinCrc) get_cubin_crc;
};

// Loaded once. Throws Error{unavailable}: where it was looked for, or which version was found.
const Cupti& cupti();

// Of a failed call: what it means and what to do, in a sentence.
std::string cupti_problem(const Cupti& api, CUptiResult result);
// Throws Error{unavailable} with that sentence.
void check_cupti(const Cupti& api, CUptiResult result);

// What CUPTI tells its one subscriber. Called in the thread that made the call to CUDA.
class CuptiListener {
 public:
  virtual ~CuptiListener() = default;
  virtual void on_node_created(CUgraphNode) {}
  virtual void on_instantiated(CUgraph, CUgraphExec) {}
  virtual void on_module_loaded(std::span<const std::byte>) {}
};

// Makes the listener CUPTI's one subscriber in this process. Throws Error{unavailable} when there
// is another, by its name.
class CuptiSubscription {
 public:
  CuptiSubscription(const Cupti& api, CuptiListener& listener);
  ~CuptiSubscription();
  CuptiSubscription(const CuptiSubscription&) = delete;
  CuptiSubscription& operator=(const CuptiSubscription&) = delete;

 private:
  const Cupti& api_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
};

// The current CUDA context, made when there is none; throws Error{unavailable} without a GPU.
CUcontext current_context();

}  // namespace fathom::cuda
