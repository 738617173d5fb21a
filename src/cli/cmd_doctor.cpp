// SPDX-License-Identifier: Apache-2.0
// fathom doctor: what this machine has, how fast it reads memory, and what is missing, each with
// its remedy; with a --backend that has memory of its own also how fast that is read. The measured
// bandwidths go to the cache directory, where `run` finds them. A --backend that cannot be used
// here ends it with that backend's error, after the report.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <optional>
#include <vector>

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/utf8.hpp"
#include "cli/cache_dir.hpp"
#include "cli/ceiling.hpp"
#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "cli/read_ceiling.hpp"
#include "cli/terminal.hpp"
#include "engine/bind_model.hpp"
#include "measure/clock.hpp"
#include "measure/machine.hpp"
#include "measure/read_bandwidth.hpp"
#include "measure/statistics.hpp"
#include "report/result.hpp"
#include "report/table.hpp"

namespace fathom::cli {
namespace {

using report::format_bytes;

constexpr int kSamples = 12;
constexpr double kSampleSeconds = 0.2;
constexpr double kWideSpread = 0.15;  // (p95 - p5) / median above which a machine is called noisy

struct DoctorFlags {
  bool skip_bandwidth = false;
};

struct Bandwidth {
  int threads = 0;
  std::vector<double> gbps;
  measure::Summary summary{};
  int64_t buffer_bytes = 0, huge_page_bytes = 0;
  int streams = 0;
  std::string isa;
};

// Of the memory of a backend's device.
struct DeviceReading {
  DeviceInfo info;
  std::vector<double> gbps;
  measure::Summary summary{};
  int64_t buffer_bytes = 0;
};

struct Missing {
  std::string what;
  std::string remedy;
};

Bandwidth measure_bandwidth(const CommonFlags& common) {
  ProgressBar bar("memory bandwidth", common.quiet);
  measure::ReadBandwidth stream({.threads = common.threads, .buffer_bytes = 0});
  Bandwidth out;
  for (int i = 0; i < kSamples; ++i) {
    if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
    out.gbps.push_back(stream.sample_gbps(kSampleSeconds));
    bar.update(static_cast<double>(i + 1) / kSamples);
  }
  out.threads = stream.threads();
  out.summary = measure::summarise(out.gbps, 1);
  out.buffer_bytes = stream.buffer_bytes();
  out.huge_page_bytes = stream.huge_page_bytes();
  out.streams = stream.streams();
  out.isa = stream.isa();
  return out;
}

// Nothing where the backend computes in the host's memory, or its device has no read stream.
std::optional<DeviceReading> measure_device(const CommonFlags& common) {
  const DeviceApi* device = device_of(common);
  if (!device || !device->read_stream) return {};
  ProgressBar bar("device's memory bandwidth", common.quiet);
  measure::DeviceBandwidth stream(*device);
  DeviceReading out;
  for (int i = 0; i < kSamples; ++i) {
    if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
    out.gbps.push_back(stream.sample_gbps());
    bar.update(static_cast<double>(i + 1) / kSamples);
  }
  out.info = device->info();
  out.summary = measure::summarise(out.gbps, 1);
  out.buffer_bytes = stream.buffer_bytes();
  return out;
}

// Why the backend that was asked for cannot be used on this machine.
std::optional<Error> backend_problem(const CommonFlags& common) {
  try {
    engine::select_backend(common.backend, common.backend_dir);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::usage) throw;
    return error;
  }
  return {};
}

std::vector<Missing> find_missing(const measure::Machine& m, const Bandwidth* bandwidth,
                                  const DeviceReading* reading, const std::string& store_problem) {
  std::vector<Missing> missing;
  if (m.best_isa() == "scalar") {
    missing.push_back({"AVX2: this CPU has no fast instruction set that Fathom knows",
                       "expect a few tokens a second; use another machine"});
  }
  if (m.huge_pages == "never") {
    missing.push_back({"huge pages are off, which costs about a tenth of the read bandwidth",
                       "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"});
  } else if (bandwidth && bandwidth->huge_page_bytes == 0) {
    missing.push_back({"no huge page was free for the bandwidth buffer",
                       "echo 1 | sudo tee /proc/sys/vm/compact_memory"});
  }
  if (bandwidth &&
      (bandwidth->summary.p95 - bandwidth->summary.p5) > kWideSpread * bandwidth->summary.median) {
    missing.push_back({"the read bandwidth varies from sample to sample: other work runs here",
                       "measure on an idle machine; rounds of bench interleave to bear this"});
  }
  if (reading && reading->summary.median < least_ceiling_gbps(reading->info.name)) {
    missing.push_back({least_ceiling_gate(reading->info.name, reading->summary.median).why,
                       "nvidia-smi -q shows clocks and other processes"});
  }
  if (!store_problem.empty()) {
    missing.push_back({fmt::format("the bandwidth cannot be kept in {}: {}",
                                   printable(cache_dir(), std::string::npos), store_problem),
                       "set FATHOM_CACHE to a folder that can be written; until then run cannot "
                       "say % of peak"});
  }
  if (!m.counters.empty()) {
    missing.push_back({"hardware counters: " + m.counters,
                       m.counters.starts_with("not permitted")
                           ? "sudo sysctl kernel.perf_event_paranoid=2"
                           : "none for a guest without them; timings do not need counters"});
  }
  if (!m.gpu_problem.empty()) {
    missing.push_back({"GPU: " + m.gpu_problem, "the CPU backend needs none"});
  } else if (!*build_info().cuda) {
    missing.push_back({"this build has no CUDA backend", "make cuda"});
  }
  return missing;
}

std::string gpu_text(const measure::Machine& m) {
  if (m.gpus.empty()) return "none";
  std::string text;
  for (const measure::Gpu& gpu : m.gpus) {
    text += fmt::format("{}{}, {} ({} used)", text.empty() ? "" : "; ", gpu.name,
                        format_bytes(gpu.total_bytes), format_bytes(gpu.used_bytes));
  }
  return text + ", driver " + m.gpu_driver;
}

report::Table machine_table(const measure::Machine& m, const Bandwidth* bandwidth,
                            const DeviceReading* reading) {
  report::Table table({{"this machine", report::Align::left}, {"", report::Align::left}});
  table.add({"CPU", m.cpu + (m.virtual_machine ? " (virtual machine)" : "")});
  table.add(
      {"instruction sets", fmt::format("{}; {} is used", fmt::join(m.isas, ", "), m.best_isa())});
  table.add(
      {"CPUs",
       fmt::format("{} usable of {}{}", m.usable_cpus, m.logical_cpus,
                   m.cgroup_cpus ? fmt::format(", cgroup quota {:.2g}", *m.cgroup_cpus) : "")});
  table.add({"clock", m.cpu_mhz ? fmt::format("{:.0f} MHz", *m.cpu_mhz) : "not readable"});
  table.add({"last-level cache", format_bytes(m.llc_bytes)});
  table.add(
      {"memory",
       fmt::format(
           "{}, {} available{}", format_bytes(m.memory_bytes), format_bytes(m.available_bytes),
           m.cgroup_memory_bytes ? ", cgroup limit " + format_bytes(*m.cgroup_memory_bytes) : "")});
  table.add({"huge pages", m.huge_pages.empty() ? "not readable" : m.huge_pages});
  table.add({"kernel", m.kernel});
  table.add({"GPU", gpu_text(m)});
  table.add({"hardware counters", m.counters.empty() ? "readable" : "no"});
  const measure::ClockQuality clock = measure::clock_quality();
  table.add({"clock of measurements",
             fmt::format("{:.0f} ns a call, steps of {} ns", clock.call_ns, clock.resolution_ns)});
  if (bandwidth) {
    const measure::Summary& s = bandwidth->summary;
    table.add({"read bandwidth",
               fmt::format("{:.1f} GB/s median of {} samples with {} threads ({:.1f} to {:.1f})",
                           s.median, s.n, bandwidth->threads, s.min, s.max)});
    table.add(
        {"", fmt::format("{} buffer, {} on huge pages, {} loads of {} streams",
                         format_bytes(bandwidth->buffer_bytes),
                         bandwidth->huge_page_bytes < 0 ? "unknown part"
                                                        : format_bytes(bandwidth->huge_page_bytes),
                         bandwidth->isa, bandwidth->streams)});
  }
  if (reading) {
    const measure::Summary& s = reading->summary;
    table.add({"read bandwidth of " + reading->info.name,
               fmt::format("{:.1f} GB/s median of {} samples ({:.1f} to {:.1f}), {} buffer",
                           s.median, s.n, s.min, s.max, format_bytes(reading->buffer_bytes))});
  }
  const BuildInfo& build = build_info();
  table.add({"build", fmt::format("{} {}, {} {}", build.version, build.commit, build.compiler,
                                  build.build_type)});
  table.add({"cache directory", cache_dir()});
  return table;
}

Json document_json(const Context& context, const measure::Machine& m, const Bandwidth* bandwidth,
                   const DeviceReading* reading, const std::vector<Missing>& missing) {
  report::Result document;
  document.command = context.arguments;
  document.machine = report::machine_json(m);
  Json absent = Json::array();
  for (const Missing& item : missing) {
    absent.push_back({{"what", item.what}, {"remedy", item.remedy}});
  }
  document.summary = {{"missing", absent}, {"read_gbps", nullptr}, {"device_read_gbps", nullptr}};
  if (bandwidth) {
    const measure::Summary& s = bandwidth->summary;
    document.samples = {{{"arm", "ceiling"}, {"values", bandwidth->gbps}}};
    document.summary["read_gbps"] = {{"median", s.median},
                                     {"max", s.max},
                                     {"min", s.min},
                                     {"ci", {s.median_ci.lo, s.median_ci.hi}},
                                     {"threads", bandwidth->threads},
                                     {"buffer_bytes", bandwidth->buffer_bytes},
                                     {"huge_page_bytes", bandwidth->huge_page_bytes},
                                     {"streams", bandwidth->streams},
                                     {"isa", bandwidth->isa}};
  }
  if (reading) {
    const measure::Summary& s = reading->summary;
    document.samples.push_back({{"arm", "device_ceiling"}, {"values", reading->gbps}});
    document.summary["device_read_gbps"] = {{"median", s.median},
                                            {"max", s.max},
                                            {"min", s.min},
                                            {"ci", {s.median_ci.lo, s.median_ci.hi}},
                                            {"device", reading->info.name},
                                            {"buffer_bytes", reading->buffer_bytes}};
  }
  return document.to_json();
}

int cmd_doctor(const DoctorFlags& flags, const Context& context) {
  const std::optional<Error> problem = backend_problem(context.flags);
  const measure::Machine machine = measure::inspect_machine();
  std::optional<Bandwidth> bandwidth;
  std::string store_problem;
  std::optional<DeviceReading> device;
  if (!flags.skip_bandwidth) {
    bandwidth = measure_bandwidth(context.flags);
    store_problem = store_peak(
        machine.key(), {bandwidth->threads, bandwidth->summary.median, bandwidth->summary.max});
    if (!problem) device = measure_device(context.flags);
  }
  if (device) {
    store_problem = store_peak(device_key(device->info.name, machine),
                               {0, device->summary.median, device->summary.max});
  }
  const Bandwidth* measured = bandwidth ? &*bandwidth : nullptr;
  const DeviceReading* reading = device ? &*device : nullptr;
  std::vector<Missing> missing = find_missing(machine, measured, reading, store_problem);
  if (problem) missing.push_back({"backend " + context.flags.backend, problem->what()});
  if (context.flags.json) {
    write_stdout(dump_json(document_json(context, machine, measured, reading, missing), 2) + "\n");
    if (problem) throw *problem;
    return 0;
  }
  std::string text = machine_table(machine, measured, reading).text(stdout_colour());
  if (!missing.empty()) {
    report::Table table({{"missing", report::Align::left}, {"remedy", report::Align::left}});
    for (const Missing& item : missing) table.add({item.what, item.remedy});
    text += "\n" + table.text(stdout_colour());
  }
  write_stdout(text);
  if (problem) throw *problem;
  return 0;
}

}  // namespace

RunCommand add_doctor(CLI::App& app, Context& context) {
  auto flags = std::make_shared<DoctorFlags>();
  app.add_flag("--no-bandwidth", flags->skip_bandwidth,
               "Do not measure; takes a moment instead of 3 s");
  return [flags, &context] { return cmd_doctor(*flags, context); };
}

}  // namespace fathom::cli
