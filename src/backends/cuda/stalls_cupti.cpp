// SPDX-License-Identifier: Apache-2.0
// Program counters sampled while an op runs. CUPTI knows the kernels of modules that are loaded
// after sampling was enabled, and counts samples of others as foreign: sampling is enabled before
// anything is launched, and stays so. Samples name a cubin by its checksum, so the code that the
// driver loads is kept from the start.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "backends/cuda/code_place.hpp"
#include "backends/cuda/watch.hpp"
#include "base/error.hpp"

namespace fathom::cuda {
namespace {

constexpr uint32_t kPeriod = 8;  // a sample of an SM every 2^8 cycles: ops are short
constexpr size_t kBufferPcs = 4096;
constexpr size_t kScratchBytes = size_t{16} << 20;
constexpr size_t kHardwareBytes = size_t{256} << 20;
constexpr std::string_view kPrefix = "smsp__pcsamp_warps_issue_stalled_";
constexpr std::string_view kNotIssued = "_not_issued";

// Samples by cubin, kernel and offset, and there by the index of the reason.
using Place = std::tuple<uint64_t, std::string, uint64_t>;
using Samples = std::map<Place, std::map<uint32_t, int64_t>>;

// Room for what CUPTI hands over at a time.
class SampleBuffer {
 public:
  explicit SampleBuffer(size_t n_reasons) : reasons_(kBufferPcs * n_reasons), pcs_(kBufferPcs) {
    for (size_t i = 0; i < pcs_.size(); ++i) {
      pcs_[i] = {};
      pcs_[i].size = sizeof pcs_[i];
      pcs_[i].stallReason = reasons_.data() + i * n_reasons;
    }
    data_.size = sizeof data_;
    data_.collectNumPcs = pcs_.size();
    data_.pPcData = pcs_.data();
  }
  CUpti_PCSamplingData* get() { return &data_; }

  // Leaves it empty. Names of kernels are not freed: CUPTI shares them between records.
  void add_to(Samples& samples, StallProfile& profile) {
    for (size_t i = 0; i < data_.totalNumPcs; ++i) {
      const CUpti_PCSamplingPCData& pc = pcs_[i];
      const uint64_t cubin = pc.cubinCrc, offset = pc.pcOffset;  // it is packed
      std::map<uint32_t, int64_t>& at =
          samples[{cubin, pc.functionName ? pc.functionName : "", offset}];
      for (size_t r = 0; r < pc.stallReasonCount; ++r) {
        at[pc.stallReason[r].pcSamplingStallReasonIndex] += pc.stallReason[r].samples;
      }
    }
    profile.n_samples += static_cast<int64_t>(data_.totalSamples);
    profile.n_dropped += static_cast<int64_t>(data_.droppedSamples);
    profile.n_foreign += static_cast<int64_t>(data_.nonUsrKernelsTotalSamples);
    profile.buffer_full = profile.buffer_full || data_.hardwareBufferFull != 0;
    data_.totalNumPcs = 0;
    data_.totalSamples = data_.droppedSamples = data_.nonUsrKernelsTotalSamples = 0;
    data_.hardwareBufferFull = 0;
  }

 private:
  std::vector<CUpti_PCSamplingStallReason> reasons_;
  std::vector<CUpti_PCSamplingPCData> pcs_;
  CUpti_PCSamplingData data_{};
};

// Sampling of a context, between resume() and pause() only.
class Sampling {
 public:
  Sampling(const Cupti& api, CUcontext context) : api_(api), context_(context) {
    CUpti_PCSamplingEnableParams params{};
    params.size = CUpti_PCSamplingEnableParamsSize;
    params.ctx = context_;
    check_cupti(api_, api_.pc_enable(&params));
    read_reasons();
    buffer_ = std::make_unique<SampleBuffer>(names_.size());
    configure();
  }
  Sampling(const Sampling&) = delete;
  Sampling& operator=(const Sampling&) = delete;

  void forget() {
    samples_.clear();
    profile_ = {};
    first_error_ = CUPTI_SUCCESS;
  }
  void resume() {
    CUpti_PCSamplingStartParams params{};
    params.size = CUpti_PCSamplingStartParamsSize;
    params.ctx = context_;
    keep(api_.pc_start(&params));
  }
  void pause() {
    CUpti_PCSamplingStopParams params{};
    params.size = CUpti_PCSamplingStopParamsSize;
    params.ctx = context_;
    keep(api_.pc_stop(&params));
    collect();
  }
  const Samples& samples() const { return samples_; }
  // Throws what went wrong in between.
  void finish(StallProfile& profile) {
    collect();
    profile = profile_;
    check_cupti(api_, first_error_);
  }
  // "long_scoreboard"; empty for samples of warps that issued.
  std::string reason(uint32_t index) const {
    const auto found = names_.find(index);
    std::string_view name = found == names_.end() ? std::string_view() : found->second;
    if (!name.ends_with(kNotIssued)) return "";
    name.remove_suffix(kNotIssued.size());
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    return std::string(name);
  }

 private:
  void keep(CUptiResult result) {
    if (first_error_ == CUPTI_SUCCESS) first_error_ = result;
  }
  void read_reasons() {
    size_t n = 0;
    CUpti_PCSamplingGetNumStallReasonsParams count{};
    count.size = CUpti_PCSamplingGetNumStallReasonsParamsSize;
    count.ctx = context_;
    count.numStallReasons = &n;
    check_cupti(api_, api_.pc_get_num_stall_reasons(&count));
    if (n == 0) fail(ErrorCode::unavailable, "the GPU names no reasons for stalls");
    std::vector<uint32_t> indices(n);
    std::vector<char> text(n * CUPTI_STALL_REASON_STRING_SIZE);
    std::vector<char*> names(n);
    for (size_t i = 0; i < n; ++i) names[i] = text.data() + i * CUPTI_STALL_REASON_STRING_SIZE;
    CUpti_PCSamplingGetStallReasonsParams params{};
    params.size = CUpti_PCSamplingGetStallReasonsParamsSize;
    params.ctx = context_;
    params.numStallReasons = n;
    params.stallReasonIndex = indices.data();
    params.stallReasons = names.data();
    check_cupti(api_, api_.pc_get_stall_reasons(&params));
    for (size_t i = 0; i < n; ++i) {
      names_[indices[i]] = {names[i], strnlen(names[i], CUPTI_STALL_REASON_STRING_SIZE)};
    }
  }
  void configure() {
    std::array<CUpti_PCSamplingConfigurationInfo, 6> info{};
    info[0].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_COLLECTION_MODE;
    info[0].attributeData.collectionModeData.collectionMode =
        CUPTI_PC_SAMPLING_COLLECTION_MODE_CONTINUOUS;
    info[1].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_ENABLE_START_STOP_CONTROL;
    info[1].attributeData.enableStartStopControlData.enableStartStopControl = 1;
    info[2].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_PERIOD;
    info[2].attributeData.samplingPeriodData.samplingPeriod = kPeriod;
    info[3].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SCRATCH_BUFFER_SIZE;
    info[3].attributeData.scratchBufferSizeData.scratchBufferSize = kScratchBytes;
    info[4].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_HARDWARE_BUFFER_SIZE;
    info[4].attributeData.hardwareBufferSizeData.hardwareBufferSize = kHardwareBytes;
    info[5].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_DATA_BUFFER;
    info[5].attributeData.samplingDataBufferData.samplingDataBuffer = buffer_->get();
    CUpti_PCSamplingConfigurationInfoParams params{};
    params.size = CUpti_PCSamplingConfigurationInfoParamsSize;
    params.ctx = context_;
    params.numAttributes = info.size();
    params.pPCSamplingConfigurationInfo = info.data();
    check_cupti(api_, api_.pc_set_configuration_attribute(&params));
  }
  void collect() {
    buffer_->add_to(samples_, profile_);  // CUPTI may have filled it by itself
    do {
      CUpti_PCSamplingGetDataParams params{};
      params.size = CUpti_PCSamplingGetDataParamsSize;
      params.ctx = context_;
      params.pcSamplingData = buffer_->get();
      const CUptiResult result = api_.pc_get_data(&params);
      keep(result);
      if (result != CUPTI_SUCCESS) return;
      buffer_->add_to(samples_, profile_);
    } while (buffer_->get()->remainingNumPcs > 0);
  }

  const Cupti& api_;
  CUcontext context_;
  std::map<uint32_t, std::string> names_;
  std::unique_ptr<SampleBuffer> buffer_;
  Samples samples_;
  StallProfile profile_;
  CUptiResult first_error_ = CUPTI_SUCCESS;
};

void add(std::vector<StallCount>& counts, const std::string& reason, int64_t samples) {
  const auto found = std::find_if(counts.begin(), counts.end(),
                                  [&](const StallCount& count) { return count.reason == reason; });
  if (found == counts.end()) {
    counts.push_back({reason, samples});
  } else {
    found->samples += samples;
  }
}

template <class T>
void sort_by_samples(std::vector<T>& items) {
  std::stable_sort(items.begin(), items.end(),
                   [](const T& a, const T& b) { return a.samples > b.samples; });
}

class CuptiStalls final : public StallSource, OpScopeSink, CuptiListener {
 public:
  CuptiStalls() : api_(cupti()), subscription_(api_, *this), sampling_(api_, current_context()) {}
  OpScopeSink& scopes() override { return *this; }
  StallProfile sample(const std::string& op, int n_steps,
                      const std::function<void()>& step) override;

  void begin(const OpTag& tag, const Cost&) override {
    open_ = op_ == tag.op;
    if (open_) sampling_.resume();
  }
  void end() override {
    if (open_) sampling_.pause();
    open_ = false;
  }

 private:
  void on_module_loaded(std::span<const std::byte> cubin) override;
  void describe(StallProfile& profile);

  const Cupti& api_;
  std::mutex mutex_;                                   // of cubins_
  std::map<uint64_t, std::vector<std::byte>> cubins_;  // by checksum
  CuptiSubscription subscription_;
  Sampling sampling_;
  std::string op_;     // that is sampled
  bool open_ = false;  // it runs
};

void CuptiStalls::on_module_loaded(std::span<const std::byte> cubin) {
  CUpti_GetCubinCrcParams params{};
  params.size = CUpti_GetCubinCrcParamsSize;
  params.cubin = cubin.data();
  params.cubinSize = cubin.size();
  if (api_.get_cubin_crc(&params) != CUPTI_SUCCESS) return;
  const std::lock_guard lock(mutex_);
  cubins_[params.cubinCrc].assign(cubin.begin(), cubin.end());
}

// Samples of one kernel stand together in the map.
void CuptiStalls::describe(StallProfile& profile) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<KernelCode> code;
  uint64_t crc = 0;
  for (const auto& [place, reasons] : sampling_.samples()) {
    const auto& [cubin, kernel, offset] = place;
    if (profile.kernels.empty() || crc != cubin || profile.kernels.back().kernel != kernel) {
      crc = cubin;
      const auto file = cubins_.find(cubin);
      code = file == cubins_.end() ? nullptr
                                   : std::make_unique<KernelCode>(api_, file->second, kernel);
      profile.kernels.push_back({.kernel = kernel, .samples = 0, .reasons = {}, .places = {}});
    }
    KernelStalls& stalls = profile.kernels.back();
    StalledPlace at;
    at.place.offset = static_cast<int64_t>(offset);
    bool waits_for_memory = false;
    for (const auto& [index, samples] : reasons) {
      const std::string reason = sampling_.reason(index);
      if (reason.empty() || samples == 0) continue;
      at.reasons.push_back({reason, samples});
      at.samples += samples;
      waits_for_memory = waits_for_memory || reason == "long_scoreboard";
      add(stalls.reasons, reason, samples);
    }
    if (at.samples == 0) continue;
    stalls.samples += at.samples;
    if (code) {
      at.place = code->place(at.place.offset);
      if (waits_for_memory) code->find_producers_of(at);
    } else {
      at.problem = "its code was not seen when it was loaded";
    }
    sort_by_samples(at.reasons);
    stalls.places.push_back(std::move(at));
  }
  for (KernelStalls& kernel : profile.kernels) {
    sort_by_samples(kernel.reasons);
    sort_by_samples(kernel.places);
  }
  sort_by_samples(profile.kernels);
}

StallProfile CuptiStalls::sample(const std::string& op, int n_steps,
                                 const std::function<void()>& step) {
  StallProfile profile;
  try {
    sampling_.forget();
    struct Chosen {
      std::string& op;
      ~Chosen() { op.clear(); }
    } const chosen{op_};
    op_ = op;
    for (int i = 0; i < n_steps; ++i) step();
    sampling_.finish(profile);
    describe(profile);
    if (profile.kernels.empty()) {
      profile.problem =
          fmt::format("no sample of '{}' was taken, {} were of kernels unknown to CUPTI", op,
                      profile.n_foreign);
    }
    if (profile.n_dropped > 0 || profile.buffer_full) {
      profile.problem = fmt::format("{} samples were dropped by the GPU{}", profile.n_dropped,
                                    profile.buffer_full ? ", its buffer was full" : "");
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unavailable) throw;
    profile.problem = error.what();
  }
  return profile;
}

}  // namespace

StallSource& stall_source() {
  static CuptiStalls* const kStalls = new CuptiStalls;  // CUPTI's threads outlive main()
  return *kStalls;
}

}  // namespace fathom::cuda
