// SPDX-License-Identifier: Apache-2.0
// A step op by op under CUPTI's range profiler, a range for each op, once for each pass. Nothing is
// saved, restored or flushed between passes: the caches hold what the op before left in them.
#include <charconv>
#include <memory>

#include "backends/cuda/counter_host.hpp"
#include "backends/cuda/counter_table.hpp"
#include "backends/cuda/watch.hpp"
#include "base/error.hpp"

namespace fathom::cuda {
namespace {

constexpr size_t kMaxRanges = 1024;

std::string range_name(const OpTag& tag) { return fmt::format("{}/{}", tag.layer, tag.op); }

OpCounters named(std::string_view range) {
  OpCounters out;
  const size_t slash = range.find('/');
  std::from_chars(range.data(), range.data() + slash, out.layer);
  out.op = range.substr(slash + 1);
  return out;
}

// One set of counters on the device, from enable to disable. Errors inside a step are kept for
// later: they must not leave a scope by an exception.
class RangeSession {
 public:
  RangeSession(const Cupti& api, CUcontext context, const CounterPlan& plan)
      : api_(api), plan_(plan) {
    CUpti_RangeProfiler_Enable_Params params{};
    params.structSize = CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE;
    params.ctx = context;
    check_cupti(api_, api_.range_enable(&params));
    object_ = params.pRangeProfilerObject;
  }
  ~RangeSession() {
    CUpti_RangeProfiler_Disable_Params params{};
    params.structSize = CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE;
    params.pRangeProfilerObject = object_;
    api_.range_disable(&params);
  }
  RangeSession(const RangeSession&) = delete;
  RangeSession& operator=(const RangeSession&) = delete;

  void prepare() {
    std::vector<const char*> names;
    for (const std::string& metric : plan_.metrics) names.push_back(metric.c_str());
    CUpti_RangeProfiler_GetCounterDataSize_Params size{};
    size.structSize = CUpti_RangeProfiler_GetCounterDataSize_Params_STRUCT_SIZE;
    size.pRangeProfilerObject = object_;
    size.pMetricNames = names.data();
    size.numMetrics = names.size();
    size.maxNumOfRanges = kMaxRanges;
    size.maxNumRangeTreeNodes = kMaxRanges;
    check_cupti(api_, api_.range_get_counter_data_size(&size));
    counters_.resize(size.counterDataSize);

    CUpti_RangeProfiler_CounterDataImage_Initialize_Params initialize{};
    initialize.structSize = CUpti_RangeProfiler_CounterDataImage_Initialize_Params_STRUCT_SIZE;
    initialize.pRangeProfilerObject = object_;
    initialize.counterDataSize = counters_.size();
    initialize.pCounterData = counters_.data();
    check_cupti(api_, api_.range_counter_data_image_initialize(&initialize));

    CUpti_RangeProfiler_SetConfig_Params config{};
    config.structSize = CUpti_RangeProfiler_SetConfig_Params_STRUCT_SIZE;
    config.pRangeProfilerObject = object_;
    config.configSize = plan_.image.size();
    config.pConfig = plan_.image.data();
    config.counterDataImageSize = counters_.size();
    config.pCounterDataImage = counters_.data();
    config.range = CUPTI_UserRange;
    config.replayMode = CUPTI_UserReplay;
    config.maxRangesPerPass = kMaxRanges;
    config.numNestingLevels = 1;
    config.minNestingLevel = 1;
    config.passIndex = 0;
    config.targetNestingLevel = 1;
    check_cupti(api_, api_.range_set_config(&config));
  }

  // All passes. A pass is counted even when the step throws.
  void run(const std::function<void()>& step) {
    for (bool done = false; !done;) {
      CUpti_RangeProfiler_Start_Params start{};
      start.structSize = CUpti_RangeProfiler_Start_Params_STRUCT_SIZE;
      start.pRangeProfilerObject = object_;
      check_cupti(api_, api_.range_start(&start));
      step();
      CUpti_RangeProfiler_Stop_Params stop{};
      stop.structSize = CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE;
      stop.pRangeProfilerObject = object_;
      check_cupti(api_, api_.range_stop(&stop));
      check_cupti(api_, first_error_);
      done = stop.isAllPassSubmitted != 0;
    }
    CUpti_RangeProfiler_DecodeData_Params decode{};
    decode.structSize = CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE;
    decode.pRangeProfilerObject = object_;
    check_cupti(api_, api_.range_decode_data(&decode));
    if (decode.numOfRangeDropped > 0) {
      fail(ErrorCode::unavailable, "the counters of {} ops were dropped: a step has more than {}",
           decode.numOfRangeDropped, kMaxRanges);
    }
  }

  void push(const char* name) {
    CUpti_RangeProfiler_PushRange_Params params{};
    params.structSize = CUpti_RangeProfiler_PushRange_Params_STRUCT_SIZE;
    params.pRangeProfilerObject = object_;
    params.pRangeName = name;
    keep(api_.range_push(&params));
  }
  void pop() {
    CUpti_RangeProfiler_PopRange_Params params{};
    params.structSize = CUpti_RangeProfiler_PopRange_Params_STRUCT_SIZE;
    params.pRangeProfilerObject = object_;
    keep(api_.range_pop(&params));
  }

  size_t n_ranges() const {
    CUpti_RangeProfiler_GetCounterDataInfo_Params info{};
    info.structSize = CUpti_RangeProfiler_GetCounterDataInfo_Params_STRUCT_SIZE;
    info.pCounterDataImage = counters_.data();
    info.counterDataImageSize = counters_.size();
    check_cupti(api_, api_.range_get_counter_data_info(&info));
    return info.numTotalRanges;
  }
  std::string name(size_t range) const {
    CUpti_RangeProfiler_CounterData_GetRangeInfo_Params info{};
    info.structSize = CUpti_RangeProfiler_CounterData_GetRangeInfo_Params_STRUCT_SIZE;
    info.pCounterDataImage = counters_.data();
    info.counterDataImageSize = counters_.size();
    info.rangeIndex = range;
    info.rangeDelimiter = "//";
    check_cupti(api_, api_.range_counter_data_get_range_info(&info));
    return info.rangeName;
  }
  std::span<const uint8_t> counters() const { return counters_; }

 private:
  void keep(CUptiResult result) {
    if (first_error_ == CUPTI_SUCCESS) first_error_ = result;
  }
  const Cupti& api_;
  const CounterPlan& plan_;
  CUpti_RangeProfiler_Object* object_ = nullptr;
  std::vector<uint8_t> counters_;
  CUptiResult first_error_ = CUPTI_SUCCESS;
};

class CuptiCounters final : public CounterSource, OpScopeSink {
 public:
  CuptiCounters() : api_(cupti()) {}
  std::vector<std::string> names() const override { return all_counters(); }
  std::vector<std::string> core() const override { return core_counters(); }
  std::vector<std::string> cache() const override { return cache_counters(); }
  std::vector<std::string> stalls() const override { return stall_counters(); }
  OpScopeSink& scopes() override { return *this; }
  CounterRun collect(std::span<const std::string> names,
                     const std::function<void()>& step) override;

  void begin(const OpTag& tag, const Cost&) override {
    if (session_) session_->push(range_name(tag).c_str());
  }
  void end() override {
    if (session_) session_->pop();
  }

 private:
  const CounterHost& host();
  void collect(CounterRun& run, const std::function<void()>& step);

  const Cupti& api_;
  CUcontext context_ = nullptr;
  std::unique_ptr<CounterHost> host_;
  RangeSession* session_ = nullptr;  // while a step is counted
};

// The first call comes when the model is loaded, so that the context is the engine's.
const CounterHost& CuptiCounters::host() {
  if (host_) return *host_;
  context_ = current_context();
  CUpti_Profiler_Initialize_Params initialize{};
  initialize.structSize = CUpti_Profiler_Initialize_Params_STRUCT_SIZE;
  check_cupti(api_, api_.profiler_initialize(&initialize));
  CUpti_Device_GetChipName_Params chip{};
  chip.structSize = CUpti_Device_GetChipName_Params_STRUCT_SIZE;
  check_cupti(api_, api_.device_get_chip_name(&chip));
  CUpti_Profiler_GetCounterAvailability_Params available{};
  available.structSize = CUpti_Profiler_GetCounterAvailability_Params_STRUCT_SIZE;
  available.ctx = context_;
  check_cupti(api_, api_.profiler_get_counter_availability(&available));
  std::vector<uint8_t> image(available.counterAvailabilityImageSize);
  available.pCounterAvailabilityImage = image.data();
  check_cupti(api_, api_.profiler_get_counter_availability(&available));
  host_ = std::make_unique<CounterHost>(api_, chip.pChipName, image);
  return *host_;
}

void CuptiCounters::collect(CounterRun& run, const std::function<void()>& step) {
  std::vector<std::string> metrics;
  for (const Counter& counter : run.counters) {
    if (!counter.metric.empty()) metrics.push_back(counter.metric);
  }
  if (metrics.empty()) fail(ErrorCode::unavailable, "the GPU has none of these counters");
  const CounterPlan plan = host_->plan(std::move(metrics));
  run.n_passes = plan.n_passes;
  RangeSession session(api_, context_, plan);
  session.prepare();
  struct Open {
    RangeSession*& at;
    ~Open() { at = nullptr; }
  };
  {
    const Open open{session_};
    session_ = &session;
    session.run(step);
  }
  for (size_t range = 0; range < session.n_ranges(); ++range) {
    const std::vector<double> values = host_->values(plan, session.counters(), range);
    OpCounters op = named(session.name(range));
    size_t next = 0;
    for (const Counter& counter : run.counters) {
      op.values.push_back(counter.metric.empty()
                              ? std::nullopt
                              : std::optional<double>(values[next++] * counter.scale));
    }
    run.ops.push_back(std::move(op));
  }
}

CounterRun CuptiCounters::collect(std::span<const std::string> names,
                                  const std::function<void()>& step) {
  CounterRun run;
  try {
    const CounterHost& on = host();
    run.counters =
        resolve_counters(names, on.chip(), [&](std::string_view metric) { return on.has(metric); });
    collect(run, step);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unavailable) throw;
    run.ops.clear();
    run.problem = error.what();
  }
  return run;
}

}  // namespace

CounterSource& counter_source() {
  static CuptiCounters* const kCounters = new CuptiCounters;  // as the others
  return *kCounters;
}

}  // namespace fathom::cuda
