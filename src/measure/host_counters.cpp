// SPDX-License-Identifier: Apache-2.0
// A group of counters for each thread, read on both sides of an op.
#include "measure/host_counters.hpp"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/check.hpp"
#include "measure/machine.hpp"

namespace fathom::measure {
namespace {

constexpr double kLineBytes = 64;
constexpr size_t kHead = 3;  // words of a reading before its counters
constexpr uint64_t kLoadMisses = PERF_COUNT_HW_CACHE_LL | PERF_COUNT_HW_CACHE_OP_READ << 8 |
                                 PERF_COUNT_HW_CACHE_RESULT_MISS << 16;
constexpr const char* kMissNote =
    "64 bytes for each miss of the last-level cache in user code; on some CPUs hardware prefetches "
    "are not among them";

struct Candidate {
  const char* metric;
  PerfEvent event;
};
// A logical counter, and what may be counted for it, the best first.
struct Wanted {
  const char* name;
  const char* unit;
  double scale;
  const char* note;
  std::vector<Candidate> candidates;
};

const std::vector<Wanted>& wanted() {
  static const std::vector<Wanted> kWanted{
      {"cpu_cycles", "cycles", 1, "", {{"cycles", {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES}}}},
      {"cpu_instructions",
       "",
       1,
       "",
       {{"instructions", {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS}}}},
      {"llc_read_miss_bytes",
       "bytes",
       kLineBytes,
       kMissNote,
       {{"LLC-load-misses", {PERF_TYPE_HW_CACHE, kLoadMisses}},
        {"cache-misses", {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES}}}},
      {"cpu_backend_stalled_cycles",
       "cycles",
       1,
       "",
       {{"stalled-cycles-backend", {PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND}}}}};
  return kWanted;
}

class LinuxPerfCalls : public PerfCalls {
 public:
  std::vector<int> threads() override {
    std::vector<int> out;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
      out.push_back(std::stoi(entry.path().filename()));
    }
    return out;
  }
  int open(const PerfEvent& event, int thread, int group) override {
    perf_event_attr attr{};
    attr.size = sizeof attr;
    attr.type = event.type;
    attr.config = event.config;
    attr.exclude_kernel = 1;
    attr.exclude_hv = 1;
    attr.read_format =
        PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    const long fd = syscall(SYS_perf_event_open, &attr, thread, -1, group, PERF_FLAG_FD_CLOEXEC);
    return fd < 0 ? -errno : static_cast<int>(fd);
  }
  bool read(int group, std::span<uint64_t> into) override {
    return ::read(group, into.data(), into.size_bytes()) == static_cast<ssize_t>(into.size_bytes());
  }
  void close(int descriptor) override { ::close(descriptor); }
};

}  // namespace

PerfCalls& linux_perf_calls() {
  static LinuxPerfCalls calls;
  return calls;
}

HostCounters::HostCounters(PerfCalls& calls) : calls_(calls) {
  for (const int thread : calls_.threads()) {
    if (open_thread(thread)) continue;
    close_all();
    return;
  }
  if (groups_.empty()) why_ = "no thread of the process could be counted";
  before_.resize(groups_.size() * words());
  after_ = before_;
}

HostCounters::~HostCounters() { close_all(); }

void HostCounters::close_all() {
  for (const int descriptor : descriptors_) calls_.close(descriptor);
  descriptors_.clear();
}

// Opens in this thread, the first one, what there is; the others get the same.
bool HostCounters::choose(int thread) {
  int group = -1;
  for (const Wanted& want : wanted()) {
    int fd = -ENOENT;
    Counter& counter = counters_.emplace_back(Counter{
        .name = want.name, .unit = want.unit, .metric = "", .scale = want.scale, .note = ""});
    event_of_.push_back(-1);
    for (const Candidate& candidate : want.candidates) {
      fd = calls_.open(candidate.event, thread, group);
      if (fd < 0) continue;
      descriptors_.push_back(fd);
      counter.metric = candidate.metric;
      counter.note = want.note;
      event_of_.back() = static_cast<int>(events_.size());
      events_.push_back(candidate.event);
      break;
    }
    if (group < 0) {  // without cycles nothing can be counted
      if (fd < 0) why_ = counters_problem(-fd);
      if (fd < 0) return false;
      groups_.push_back(group = fd);
    }
    if (fd < 0) counter.note = std::string("this CPU does not offer it: ") + std::strerror(-fd);
  }
  return true;
}

bool HostCounters::open_thread(int thread) {
  if (events_.empty()) return choose(thread);
  int group = -1;
  for (const PerfEvent& event : events_) {
    const int fd = calls_.open(event, thread, group);
    if (fd == -ESRCH && group < 0) return true;  // it has ended
    if (fd < 0) {
      why_ = counters_problem(-fd);
      return false;
    }
    descriptors_.push_back(fd);
    if (group < 0) groups_.push_back(group = fd);
  }
  return true;
}

void HostCounters::read_all(std::vector<uint64_t>& into) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    const std::span<uint64_t> reading = std::span(into).subspan(i * words(), words());
    if (!calls_.read(groups_[i], reading) || reading[0] != events_.size()) lost_ = true;
  }
}

void HostCounters::begin(const OpTag& tag, const Cost&) {
  FATHOM_CHECK(open_ == nullptr, "an op began inside another one");
  const auto found =
      std::find_if(ops_.begin(), ops_.end(), [&](const Op& op) { return op.name == tag.op; });
  open_ = found != ops_.end()
              ? &*found
              : &ops_.emplace_back(Op{tag.op, std::vector<uint64_t>(before_.size())});
  read_all(before_);
}

void HostCounters::end() {
  FATHOM_CHECK(open_ != nullptr, "an op ended that never began");
  read_all(after_);
  for (size_t i = 0; i < after_.size(); ++i) open_->sums[i] += after_[i] - before_[i];
  open_ = nullptr;
}

// None where a thread worked and the PMU never had room for its counters.
std::optional<double> HostCounters::value_of(const Op& op, size_t event) const {
  double sum = 0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const uint64_t* const of = op.sums.data() + i * words();
    const auto enabled = static_cast<double>(of[1]), running = static_cast<double>(of[2]);
    if (of[2] == 0 && of[1] > 0) return std::nullopt;
    if (of[2] > 0) sum += static_cast<double>(of[kHead + event]) * enabled / running;
  }
  return sum;
}

CounterRun HostCounters::take(int n_steps) {
  FATHOM_CHECK(open_ == nullptr && n_steps > 0, "a step must end before its counts are taken");
  CounterRun run;
  run.counters = counters_;
  run.n_passes = 1;
  if (lost_) run.problem = "a counter of a thread could not be read";
  for (const Op& op : lost_ ? std::vector<Op>{} : ops_) {
    OpCounters& out = run.ops.emplace_back();
    out.op = op.name;
    for (size_t i = 0; i < counters_.size(); ++i) {
      std::optional<double> value;
      if (event_of_[i] >= 0) value = value_of(op, static_cast<size_t>(event_of_[i]));
      if (value) *value *= counters_[i].scale / n_steps;
      out.values.push_back(value);
    }
  }
  ops_.clear();
  lost_ = false;
  return run;
}

}  // namespace fathom::measure
