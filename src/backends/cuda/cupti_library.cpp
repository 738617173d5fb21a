// SPDX-License-Identifier: Apache-2.0
// Loading, errors in plain words, and the subscription.
#include "backends/cuda/cupti_library.hpp"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <array>
#include <cstring>

#include "backends/cuda/device_api.hpp"
#include "base/error.hpp"

namespace fathom::cuda {
namespace {

constexpr const char* kSoname = "libcupti.so.13";
constexpr std::array kFolders = {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/",
                                 "/usr/local/cuda/extras/CUPTI/lib64/"};

void* open_library() {
  for (const char* folder : kFolders) {
    // CUPTI leaves threads behind, so it is never unloaded.
    const std::string path = std::string(folder) + kSoname;
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return library;
  }
  fail(ErrorCode::unavailable,
       "{} was not found where the loader looks nor in {}, {} and {}: put its folder, which the "
       "CUDA toolkit or the Python package nvidia-cuda-cupti has, into LD_LIBRARY_PATH",
       kSoname, kFolders[1], kFolders[2], kFolders[3]);
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) {
    fail(ErrorCode::unavailable, "{} has no {}: install the CUPTI of CUDA 13.0", kSoname, name);
  }
}

void find_tracing(void* library, Cupti& api) {
  find(library, "cuptiGetVersion", api.get_version);
  find(library, "cuptiGetResultString", api.get_result_string);
  find(library, "cuptiSubscribe_v2", api.subscribe);
  find(library, "cuptiUnsubscribe", api.unsubscribe);
  find(library, "cuptiEnableCallback", api.enable_callback);
  find(library, "cuptiGetGraphId", api.get_graph_id);
  find(library, "cuptiGetGraphExecId", api.get_graph_exec_id);
  find(library, "cuptiGetGraphNodeId", api.get_graph_node_id);
  find(library, "cuptiActivityRegisterCallbacks", api.activity_register_callbacks);
  find(library, "cuptiActivityRegisterTimestampCallback", api.activity_register_timestamp_callback);
  find(library, "cuptiActivitySetAttribute", api.activity_set_attribute);
  find(library, "cuptiActivityEnable", api.activity_enable);
  find(library, "cuptiActivityDisable", api.activity_disable);
  find(library, "cuptiActivityFlushAll", api.activity_flush_all);
  find(library, "cuptiActivityGetNextRecord", api.activity_get_next_record);
  find(library, "cuptiActivityGetNumDroppedRecords", api.activity_get_num_dropped_records);
  find(library, "cuptiActivityEnableHWTrace", api.activity_enable_hw_trace);
}

void find_counters(void* library, Cupti& api) {
  find(library, "cuptiProfilerInitialize", api.profiler_initialize);
  find(library, "cuptiDeviceGetChipName", api.device_get_chip_name);
  find(library, "cuptiProfilerGetCounterAvailability", api.profiler_get_counter_availability);
  find(library, "cuptiProfilerHostGetSupportedChips", api.host_get_supported_chips);
  find(library, "cuptiProfilerHostInitialize", api.host_initialize);
  find(library, "cuptiProfilerHostDeinitialize", api.host_deinitialize);
  find(library, "cuptiProfilerHostGetBaseMetrics", api.host_get_base_metrics);
  find(library, "cuptiProfilerHostConfigAddMetrics", api.host_config_add_metrics);
  find(library, "cuptiProfilerHostGetConfigImageSize", api.host_get_config_image_size);
  find(library, "cuptiProfilerHostGetConfigImage", api.host_get_config_image);
  find(library, "cuptiProfilerHostGetNumOfPasses", api.host_get_num_of_passes);
  find(library, "cuptiProfilerHostEvaluateToGpuValues", api.host_evaluate_to_gpu_values);
  find(library, "cuptiRangeProfilerEnable", api.range_enable);
  find(library, "cuptiRangeProfilerDisable", api.range_disable);
  find(library, "cuptiRangeProfilerSetConfig", api.range_set_config);
  find(library, "cuptiRangeProfilerStart", api.range_start);
  find(library, "cuptiRangeProfilerStop", api.range_stop);
  find(library, "cuptiRangeProfilerPushRange", api.range_push);
  find(library, "cuptiRangeProfilerPopRange", api.range_pop);
  find(library, "cuptiRangeProfilerDecodeData", api.range_decode_data);
  find(library, "cuptiRangeProfilerGetCounterDataSize", api.range_get_counter_data_size);
  find(library, "cuptiRangeProfilerCounterDataImageInitialize",
       api.range_counter_data_image_initialize);
  find(library, "cuptiRangeProfilerGetCounterDataInfo", api.range_get_counter_data_info);
  find(library, "cuptiRangeProfilerCounterDataGetRangeInfo", api.range_counter_data_get_range_info);
}

void find_sampling(void* library, Cupti& api) {
  find(library, "cuptiPCSamplingEnable", api.pc_enable);
  find(library, "cuptiPCSamplingDisable", api.pc_disable);
  find(library, "cuptiPCSamplingStart", api.pc_start);
  find(library, "cuptiPCSamplingStop", api.pc_stop);
  find(library, "cuptiPCSamplingGetData", api.pc_get_data);
  find(library, "cuptiPCSamplingSetConfigurationAttribute", api.pc_set_configuration_attribute);
  find(library, "cuptiPCSamplingGetNumStallReasons", api.pc_get_num_stall_reasons);
  find(library, "cuptiPCSamplingGetStallReasons", api.pc_get_stall_reasons);
  find(library, "cuptiGetSassToSourceCorrelation", api.get_sass_to_source_correlation);
  find(library, "cuptiGetCubinCrc", api.get_cubin_crc);
}

// Structures grow between releases: the library must be of the release of the headers.
void require_version(const Cupti& api) {
  uint32_t version = 0;
  api.get_version(&version);
  if (version / 100 == CUPTI_API_VERSION / 100) return;
  fail(ErrorCode::unavailable,
       "{} speaks version {}, this program was built for {}: install the "
       "CUPTI of CUDA 13.0",
       kSoname, version, CUPTI_API_VERSION);
}

Cupti load() {
  void* const library = open_library();
  Cupti api{};
  find_tracing(library, api);
  find_counters(library, api);
  find_sampling(library, api);
  require_version(api);
  return api;
}

const char* sentence(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return "the driver gives counters to administrators only: run as root, or load the nvidia "
             "module with NVreg_RestrictProfilingToAdminUsers=0";
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      return "another profiler or debugger watches this process: run without it";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "this is a virtual GPU that may not be profiled: ask for profiling on its host";
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
      return "the GPU is in confidential-computing mode, in which nothing can be watched";
    case CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED:
      return "this mining GPU cannot be profiled";
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
      return "the GPU is split by MIG, and a slice cannot be profiled in this way";
    case CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED:
      return "the GPU is part of an SLI group, which cannot be profiled";
    case CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED:
      return "a GPU cannot be profiled in this way under WSL";
    case CUPTI_ERROR_INVALID_CHIP_NAME:
      return "this CUPTI does not know the GPU: install that of a later CUDA";
    case CUPTI_ERROR_HARDWARE_BUSY:
      return "another program uses the GPU's counters: end it";
    case CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED:
    case CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED:
      return "another library of this process uses the old profiling interface";
    case CUPTI_ERROR_OUT_OF_MEMORY:
      return "the GPU has no memory left for the profiler's buffers: use a smaller context or "
             "model";
    case CUPTI_ERROR_NOT_INITIALIZED:
    case CUPTI_ERROR_UNKNOWN:
      return "CUPTI could not start: no driver of CUDA 13 answers on this machine";
    default:
      return nullptr;
  }
}

void on_resource(CuptiListener& listener, CUpti_CallbackId id, const void* data) {
  switch (id) {
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED: {
      const auto& graph = *static_cast<const CUpti_GraphData*>(
          static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor);
      if (graph.nodeType == CU_GRAPH_NODE_TYPE_KERNEL) listener.on_node_created(graph.node);
      break;
    }
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED: {
      const auto& graph = *static_cast<const CUpti_GraphData*>(
          static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor);
      listener.on_instantiated(graph.graph, graph.graphExec);
      break;
    }
    case CUPTI_CBID_RESOURCE_MODULE_LOADED: {
      const auto& module = *static_cast<const CUpti_ModuleResourceData*>(
          static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor);
      listener.on_module_loaded(
          {reinterpret_cast<const std::byte*>(module.pCubin), module.cubinSize});
      break;
    }
    default:
      break;
  }
}

void CUPTIAPI on_callback(void* listener, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                          const void* data) {
  if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
    on_resource(*static_cast<CuptiListener*>(listener), id, data);
  }
}

}  // namespace

const Cupti& cupti() {
  static const Cupti kApi = load();
  return kApi;
}

std::string cupti_problem(const Cupti& api, CUptiResult result) {
  const char* name = "";
  api.get_result_string(result, &name);
  const char* text = sentence(result);
  return text ? fmt::format("{} (CUPTI {}, {})", text, static_cast<int>(result), name)
              : fmt::format("CUPTI refused with {}, {}", static_cast<int>(result), name);
}

void check_cupti(const Cupti& api, CUptiResult result) {
  if (result != CUPTI_SUCCESS) fail(ErrorCode::unavailable, "{}", cupti_problem(api, result));
}

CuptiSubscription::CuptiSubscription(const Cupti& api, CuptiListener& listener) : api_(api) {
  char holder[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = {};
  CUpti_SubscriberParams params{.structSize = CUpti_SubscriberParams_STRUCT_SIZE,
                                .subscriberName = "Fathom",
                                .oldSubscriberName = holder,
                                .oldSubscriberSize = sizeof holder};
  const CUptiResult result = api.subscribe(&subscriber_, on_callback, &listener, &params);
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED && holder[0] != '\0') {
    fail(ErrorCode::unavailable, "{}; it calls itself '{}'", cupti_problem(api, result),
         std::string_view(holder, strnlen(holder, sizeof holder)));
  }
  check_cupti(api, result);
  for (const CUpti_CallbackId id :
       {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED,
        CUPTI_CBID_RESOURCE_MODULE_LOADED}) {
    const CUptiResult enabled = api.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, id);
    if (enabled == CUPTI_SUCCESS) continue;
    api.unsubscribe(subscriber_);
    check_cupti(api, enabled);
  }
}

CuptiSubscription::~CuptiSubscription() { api_.unsubscribe(subscriber_); }

CUcontext current_context() {
  device_api().info();  // says what is missing
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  CUcontext context = nullptr;
  // Memory of no bytes makes the runtime's context the current one.
  if (cudaFree(nullptr) != cudaSuccess ||
      cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &function, 4000, cudaEnableDefault,
                                       &found) != cudaSuccess ||
      found != cudaDriverEntryPointSuccess ||
      reinterpret_cast<CUresult (*)(CUcontext*)>(function)(&context) != CUDA_SUCCESS || !context) {
    fail(ErrorCode::unavailable, "the CUDA driver gives no context to watch");
  }
  return context;
}

}  // namespace fathom::cuda
