// SPDX-License-Identifier: Apache-2.0
// fathom probe OP: the production launcher of one op alone, beside its variants: time hot and cold,
// declared bytes, share of the measured peak of that memory level, what the kernels take of the
// device, and the class of their bits against the first variant. With --sweep the freedom map:
// which knobs are free of bits, which are not, which help.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "cli/arguments.hpp"
#include "cli/ceiling.hpp"
#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "cli/model_flags.hpp"
#include "cli/probe_variants.hpp"
#include "cli/terminal.hpp"
#include "convert/model_shape.hpp"
#include "engine/bind_model.hpp"
#include "measure/cached_bandwidth.hpp"
#include "measure/device_bandwidth.hpp"
#include "measure/machine.hpp"
#include "measure/read_bandwidth.hpp"
#include "measure/statistics.hpp"
#include "report/result.hpp"
#include "report/table.hpp"

namespace fathom::cli {
namespace {

using measure::BitEvidence;
using measure::BitVerdict;
using measure::ProbeMemory;
using measure::ProbeSize;
using measure::ProbeTimes;
using measure::ProbeVariant;
using report::Align;
using report::format_figure;

constexpr int64_t kHostBudget = int64_t{1} << 30, kDeviceBudget = int64_t{6} << 30;
constexpr int kMostBatch = 32;
constexpr int64_t kUnknownCacheBytes = int64_t{1} << 20;  // of a device that does not say

struct ProbeFlags {
  std::string op, shape = "qwen2.5-7b", type = "q4_k", cache = "f16";
  std::string batches = "1", depths = "1,512,1641", memory = "hot,cold";
  std::vector<std::string> variants, sweep;
  int page_tokens = 64, n_rounds = 10;
  bool neighbours = false, no_times = false, list = false;
  uint64_t seed = 1;
};

struct Command {
  const ProbeFlags& flags;
  const Context& context;
  const Backend& backend;
  ProbeSet set;
  std::vector<measure::ProbeInput> formats;  // of weights and cache, each with all sizes
  std::vector<ProbeMemory> memories;
  std::vector<ProbeSize> timed;    // in the order given
  std::vector<ProbeSize> classed;  // those and their neighbours
  bool is_sweep() const { return !flags.sweep.empty(); }
};

struct SizeResult {
  measure::ProbeInput input;
  std::vector<BitVerdict> verdicts;  // of each variant, worst over the size's neighbours too
  std::optional<ProbeTimes> times;
};

std::string op_name(const std::string& given) { return given == "attn_decode" ? "attn" : given; }

KvFormat cache_format(const std::string& name) {
  for (int i = 0; i < kKvFormats; ++i) {
    if (name == kv_format_name(static_cast<KvFormat>(i))) return static_cast<KvFormat>(i);
  }
  fail(ErrorCode::usage, "--cache: found '{}', expected f16, bf16, f32, q8_0 or fp8-e4m3", name);
}

measure::ProbeInput input_of(const ProbeFlags& flags, const std::string& type_name,
                             const std::string& cache) {
  const convert::ModelShape& shape = convert::find_model_shape(flags.shape);
  const std::optional<DType> type = dtype_from_name(type_name);
  if (!type) fail(ErrorCode::usage, "--type: no tensor type '{}'", type_name);
  measure::ProbeInput in;
  in.shape = {shape.name,    shape.d_model,    shape.d_ff,    shape.vocab_size,
              shape.n_heads, shape.n_kv_heads, shape.head_dim};
  in.type = *type;
  in.cache = cache_format(cache);
  in.page_tokens = flags.page_tokens;
  return in;
}

std::vector<measure::ProbeInput> formats_of(const ProbeFlags& flags) {
  std::vector<measure::ProbeInput> out;
  for (const std::string& type : split(flags.type, ',')) {
    for (const std::string& cache : split(flags.cache, ','))
      out.push_back(input_of(flags, type, cache));
  }
  return out;
}

std::vector<ProbeMemory> memories_of(const std::string& text) {
  std::vector<ProbeMemory> out;
  for (const std::string& name : split(text, ',')) {
    if (name != "hot" && name != "cold")
      fail(ErrorCode::usage, "--memory: found '{}', expected hot, cold or hot,cold", name);
    out.push_back(name == "hot" ? ProbeMemory::hot : ProbeMemory::cold);
  }
  return out;
}

// Depths, and with neighbours those one token apart.
void add_sizes(const ProbeFlags& flags, Command& c) {
  const std::vector<int64_t> depths = parse_number_list(flags.depths, "--depths");
  std::set<int64_t> all(depths.begin(), depths.end());
  if (flags.neighbours) {
    for (const int64_t depth : depths) all.insert({std::max<int64_t>(1, depth - 1), depth + 1});
  }
  if (*all.begin() < 1)
    fail(ErrorCode::usage, "--depths: a step has at least 1 token in the cache");
  for (const int64_t batch : parse_number_list(flags.batches, "--batch")) {
    if (batch < 1 || batch > kMostBatch)
      fail(ErrorCode::usage, "--batch: found {}, expected 1 to {}", batch, kMostBatch);
    for (const int64_t depth : depths) c.timed.push_back({static_cast<int>(batch), depth});
    for (const int64_t depth : all) c.classed.push_back({static_cast<int>(batch), depth});
  }
}

Command command_of(const ProbeFlags& flags, const Context& context) {
  const Backend& backend = engine::select_backend(context.flags.backend, context.flags.backend_dir);
  const std::string op = op_name(flags.op);
  Command c{.flags = flags,
            .context = context,
            .backend = backend,
            .set = flags.sweep.empty() ? named_variants(backend, op, flags.variants, context.flags)
                                       : swept_variants(backend, op, flags.sweep, context.flags),
            .formats = formats_of(flags),
            .memories = memories_of(flags.memory),
            .timed = {},
            .classed = {}};
  add_sizes(flags, c);
  return c;
}

// The read ceilings of the memory and of its cache, on the host or on the device.
class Ceilings {
 public:
  Ceilings(const Backend& backend, int threads, int64_t cache_bytes) {
    if (backend.device->shares_host_memory) {
      host_ = std::make_unique<measure::ReadBandwidth>(
          measure::ReadBandwidthOptions{.threads = threads, .buffer_bytes = 0});
      host_cached_ = std::make_unique<measure::ReadBandwidth>(
          measure::ReadBandwidthOptions{.threads = threads, .buffer_bytes = cache_bytes / 4});
      return;
    }
    if (backend.device->read_stream)
      device_ = std::make_unique<measure::DeviceBandwidth>(*backend.device);
    if (backend.device->read_cached)
      device_cached_ = std::make_unique<measure::CachedBandwidth>(*backend.device);
  }
  measure::ProbeCeilings functions() {
    measure::ProbeCeilings out;
    if (host_) {
      out.memory = [this] { return host_->sample_gbps(0.05); };
      out.cached = [this] { return host_cached_->sample_gbps(0.005); };
    }
    if (device_) out.memory = [this] { return device_->sample_gbps(0.02); };
    if (device_cached_) out.cached = [this] { return device_cached_->sample_gbps(); };
    return out;
  }

 private:
  std::unique_ptr<measure::ReadBandwidth> host_, host_cached_;
  std::unique_ptr<measure::DeviceBandwidth> device_;
  std::unique_ptr<measure::CachedBandwidth> device_cached_;
};

class Prober {
 public:
  Prober(const Command& c, const measure::Machine& machine)
      : c_(c),
        stream_(make_stream(*c.backend.device)),
        device_{c.backend, *c.set.variants.front().pool, stream_.get()},
        cache_bytes_(c.backend.device->shares_host_memory ? machine.llc_bytes
                                                          : c.backend.device->info().l2_bytes),
        bar_("probing", c.context.flags.quiet) {
    if (cache_bytes_ <= 0) cache_bytes_ = kUnknownCacheBytes;
    if (c.is_sweep()) {
      std::vector<measure::Knobs> knobs;
      for (const ProbeVariant& variant : c.set.variants) knobs.push_back(variant.knobs);
      map_.emplace(std::move(knobs), 0);
    }
  }

  static measure::ProbeInput with_size(measure::ProbeInput input, const ProbeSize& size) {
    input.size = size;
    return input;
  }

  std::vector<SizeResult> run() {
    std::vector<SizeResult> out;
    for (const measure::ProbeInput& format : c_.formats) {
      const size_t first = out.size();
      for (const ProbeSize& size : c_.timed) {
        out.push_back({with_size(format, size), {}, {}});
        out.back().verdicts.resize(c_.set.variants.size());
      }
      for (const ProbeSize& size : c_.classed)
        classify(with_size(format, size), std::span(out).subspan(first));
    }
    if (c_.flags.no_times) return out;
    Ceilings ceilings(c_.backend, device_.pool.size(), cache_bytes_);
    for (SizeResult& result : out) {
      measure::ProbeOptions options;
      options.n_rounds = c_.flags.n_rounds;
      options.seed = c_.flags.seed;
      options.memories = c_.memories;
      options.cache_bytes = cache_bytes_;
      options.budget_bytes = budget();
      options.cancel = &interrupted();
      options.progress = [this](double part) { step(part); };
      result.times = measure::probe_times(op_name(c_.flags.op), result.input, c_.set.variants,
                                          device_, ceilings.functions(), options);
      ++done_;
    }
    return out;
  }
  const std::optional<measure::FreedomMap>& map() const { return map_; }

 private:
  int64_t budget() const {
    if (c_.backend.device->shares_host_memory) return kHostBudget;
    return std::min(kDeviceBudget, c_.backend.device->info().free_bytes / 4);
  }
  void step(double part) {
    const auto total =
        static_cast<double>(c_.classed.size() + (c_.flags.no_times ? 0 : c_.timed.size()));
    bar_.update((done_ + part) / total);
  }
  // Counts for the timed size that it is, or is a neighbour of.
  void classify(const measure::ProbeInput& input, std::span<SizeResult> results) {
    if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
    const ProbeSize& size = input.size;
    const std::vector<BitEvidence> evidence =
        measure::probe_bits(op_name(c_.flags.op), input, c_.set.variants, device_);
    if (map_) map_->add(size, evidence);
    for (SizeResult& result : results) {
      const ProbeSize& of = result.input.size;
      if (of.batch != size.batch || std::abs(of.depth - size.depth) > 1) continue;
      for (size_t i = 0; i < evidence.size(); ++i) {
        const BitVerdict verdict = measure::classify(evidence[i], evidence.front());
        BitVerdict& sum = result.verdicts[i];
        sum.bit_class = measure::worst(sum.bit_class, verdict.bit_class);
        sum.difference += verdict.difference;
        if (sum.why.empty()) sum.why = verdict.why;
      }
    }
    ++done_;
    step(0);
  }

  const Command& c_;
  Stream stream_;
  measure::ProbeDevice device_;
  int64_t cache_bytes_;
  ProgressBar bar_;
  std::optional<measure::FreedomMap> map_;
  double done_ = 0;
};

// Of a variant's times in one kind of memory.
struct Figures {
  double us = 0, gbps = 0;
  measure::Interval us_ci{};
  std::optional<double> peak_gbps, share;  // of the memory level's ceiling, a median over rounds
};

std::optional<Figures> figures_of(const ProbeTimes& times, int variant, ProbeMemory memory,
                                  uint64_t seed) {
  const std::span<const double> us = times.us(variant, memory);
  if (us.empty()) return {};
  const auto bytes = static_cast<double>(times.cost.memory_bytes() + times.cost.act_read_bytes +
                                         times.cost.act_written_bytes);
  Figures f;
  f.us = measure::median(us);
  f.us_ci = measure::bootstrap_median(us, seed);
  f.gbps = bytes / f.us * 1e-3;
  const std::vector<double>& peaks =
      memory == ProbeMemory::cold ? times.memory_gbps : times.cached_gbps;
  if (peaks.empty()) return f;
  std::vector<double> shares;
  for (size_t i = 0; i < us.size(); ++i) shares.push_back(bytes / us[i] * 1e-3 / peaks[i]);
  f.peak_gbps = measure::median(peaks);
  f.share = measure::median(shares);
  return f;
}

// Of a variant's times over the base's, round by round.
struct Ratio {
  double value = 1;
  measure::Interval ci{1, 1};
};
std::optional<Ratio> ratio_of(std::span<const double> us, std::span<const double> base) {
  std::vector<double> logs;
  for (size_t i = 0; i < us.size() && i < base.size(); ++i) {
    if (us[i] > 0 && base[i] > 0) logs.push_back(std::log(us[i] / base[i]));
  }
  if (logs.empty()) return {};
  const measure::Interval ci = measure::hodges_lehmann_interval(logs);
  return Ratio{std::exp(measure::hodges_lehmann(logs)), {std::exp(ci.lo), std::exp(ci.hi)}};
}

std::string ratio_text(const std::optional<Ratio>& ratio) {
  if (!ratio) return "";
  return fmt::format("{:.3f} ({:.3f}..{:.3f})", ratio->value, ratio->ci.lo, ratio->ci.hi);
}

std::string kernels_text(const std::vector<KernelLaunch>& kernels) {
  std::string out;
  for (const KernelLaunch& k : kernels) {
    out +=
        fmt::format("{}{}x{}x{} of {} threads, {} registers, {:.0f} % occupancy, {:.2f} waves",
                    out.empty() ? "" : "; ", k.grid[0], k.grid[1], k.grid[2],
                    k.block[0] * k.block[1] * k.block[2], k.registers, 100 * k.occupancy, k.waves);
  }
  return out;
}

std::string class_text(const BitVerdict& v) {
  std::string out = measure::bit_class_name(v.bit_class);
  if (!v.why.empty()) return out + ": " + v.why;
  if (v.difference.n_different > 0) {
    out += fmt::format(", {:.1e} differ, {:.0f} ulp", v.difference.share(), v.difference.max_ulp);
  }
  return out;
}

std::string size_table(const Command& c, const SizeResult& r) {
  std::vector<report::Table::Column> columns{{"variant", Align::left}, {"bits", Align::left}};
  for (const ProbeMemory memory : c.memories) {
    if (!r.times) break;
    const std::string name = measure::probe_memory_name(memory);
    columns.push_back({name + " us"});
    columns.push_back({"95 %"});
    columns.push_back({"GB/s"});
    columns.push_back({memory == ProbeMemory::cold ? "% of memory" : "% of cache"});
    columns.push_back({"over the first"});
  }
  report::Table table(columns);
  for (size_t i = 0; i < c.set.variants.size(); ++i) {
    std::vector<std::string> cells{c.set.variants[i].name, class_text(r.verdicts[i])};
    for (const ProbeMemory memory : c.memories) {
      if (!r.times) break;
      const int variant = static_cast<int>(i);
      const std::optional<Figures> f = figures_of(*r.times, variant, memory, c.flags.seed);
      cells.push_back(format_figure(f->us));
      cells.push_back(
          fmt::format("{}..{}", format_figure(f->us_ci.lo), format_figure(f->us_ci.hi)));
      cells.push_back(format_figure(f->gbps));
      cells.push_back(f->share ? fmt::format("{:.0f}", 100 * *f->share) : "");
      cells.push_back(
          ratio_text(ratio_of(r.times->us(variant, memory, i == 0), r.times->us(0, memory))));
    }
    table.add(cells);
  }
  return table.text(stdout_colour());
}

std::string size_text(const Command& c, const SizeResult& r) {
  std::string out =
      fmt::format("{} of {}, {} weights, {} cache, batch {}, {} tokens", op_name(c.flags.op),
                  r.input.shape.name, dtype_info(r.input.type).name, kv_format_name(r.input.cache),
                  r.input.size.batch, r.input.size.depth);
  if (!r.times) return out + "\n" + size_table(c, r);
  const measure::ProbeRotation& rotation = r.times->rotation;
  out += fmt::format(
      ": {} declared; cold: {} sets, {:.1f} caches between two visits{}; hot: {}\n",
      report::format_bytes(rotation.set_bytes), rotation.n_sets,
      static_cast<double>(rotation.distinct_bytes) / static_cast<double>(rotation.cache_bytes),
      rotation.is_cold() ? "" : " (WARM: fewer than 3)",
      rotation.is_hot() ? "fits half the cache" : "NOT HOT, more than half the cache");
  out += size_table(c, r);
  if (!c.is_sweep()) {
    for (size_t i = 0; i < r.times->kernels.size(); ++i) {
      if (r.times->kernels[i].empty()) continue;
      out += fmt::format("{}: {}\n", c.set.variants[i].name, kernels_text(r.times->kernels[i]));
    }
  }
  return out;
}

// The variant one knob away from the base.
int changed_variant(const Command& c, const measure::FreedomRow& row) {
  measure::Knobs wanted = c.set.variants.front().knobs;
  wanted[row.knob] = row.to;
  for (size_t i = 0; i < c.set.variants.size(); ++i) {
    if (c.set.variants[i].knobs == wanted) return static_cast<int>(i);
  }
  return -1;
}

// Of the deepest size of a batch, where growth shows most.
const SizeResult* deepest(const std::vector<SizeResult>& results, int batch) {
  const SizeResult* out = nullptr;
  for (const SizeResult& r : results) {
    if (r.input.size.batch == batch && r.times &&
        (!out || r.input.size.depth > out->input.size.depth))
      out = &r;
  }
  return out;
}

std::string freedom_class(const measure::FreedomRow& row) {
  switch (row.bit_class) {
    case measure::BitClass::free:
      return "B0 free";
    case measure::BitClass::fail:
      return "F: " + row.why;
    default:
      return fmt::format("{} tolerance", measure::bit_class_name(row.bit_class));
  }
}

std::string help_text(const std::optional<Ratio>& ratio) {
  if (!ratio) return "";
  return ratio->ci.hi < 1 ? "helps" : ratio->ci.lo > 1 ? "hurts" : "no change seen";
}

std::string map_text(const Command& c, const measure::FreedomMap& map,
                     const std::vector<SizeResult>& results) {
  std::vector<report::Table::Column> columns{{"knob", Align::left},
                                             {"change", Align::left},
                                             {"class", Align::left},
                                             {"pairs"},
                                             {"differ from"},
                                             {"share"},
                                             {"max |d|"},
                                             {"max ulp"},
                                             {"argmax flips"}};
  const int batch = c.timed.front().batch;
  const SizeResult* timed = deepest(results, batch);
  for (const ProbeMemory memory : c.memories) {
    if (timed) columns.push_back({fmt::format("{} time", measure::probe_memory_name(memory))});
    if (timed) columns.push_back({"", Align::left});
  }
  report::Table table(columns);
  for (const measure::FreedomRow& row : map.rows()) {
    const measure::BitDifference& d = row.difference;
    std::vector<std::string> cells{row.knob,
                                   row.from + " -> " + row.to,
                                   freedom_class(row),
                                   std::to_string(row.n_pairs),
                                   row.least_depth ? std::to_string(*row.least_depth) : "",
                                   d.n_different ? fmt::format("{:.1e}", d.share()) : "0",
                                   d.n_different ? fmt::format("{:.1e}", d.max_abs) : "0",
                                   fmt::format("{:.0f}", d.max_ulp),
                                   std::to_string(d.n_argmax_flips)};
    const int variant = changed_variant(c, row);
    for (const ProbeMemory memory : c.memories) {
      if (!timed) break;
      std::optional<Ratio> ratio;
      if (variant >= 0) {
        ratio = ratio_of(timed->times->us(variant, memory), timed->times->us(0, memory));
      }
      cells.push_back(variant >= 0 ? ratio_text(ratio) : "not alone");
      cells.push_back(help_text(ratio));
    }
    table.add(cells);
  }
  std::string out = fmt::format(
      "freedom map of {}: {} variants from {}, the worst class over {} sizes and all settings of "
      "the other knobs\n",
      op_name(c.flags.op), c.set.variants.size(), c.set.variants.front().name,
      c.formats.size() * c.classed.size());
  if (timed) {
    out += fmt::format("times: batch {}, {} tokens, over the base's\n", batch,
                       timed->input.size.depth);
  }
  return out + table.text(stdout_colour());
}

Json difference_json(const measure::BitDifference& d) {
  return {{"n_values", d.n_values},
          {"n_different", d.n_different},
          {"max_abs", std::isfinite(d.max_abs) ? Json(d.max_abs) : Json(nullptr)},
          {"max_ulp", d.max_ulp},
          {"mean_ulp", d.mean_ulp()},
          {"n_signed_zeros", d.n_signed_zeros},
          {"n_nan_payloads", d.n_nan_payloads},
          {"n_rows", d.n_rows},
          {"argmax_flips", d.n_argmax_flips}};
}

Json kernels_json(const std::vector<KernelLaunch>& kernels) {
  Json out = Json::array();
  for (const KernelLaunch& k : kernels) {
    out.push_back({{"kernel", k.kernel},
                   {"grid", k.grid},
                   {"block", k.block},
                   {"shared_bytes", k.shared_bytes},
                   {"local_bytes", k.local_bytes},
                   {"registers", k.registers},
                   {"blocks_per_sm", k.blocks_per_sm},
                   {"occupancy", k.occupancy},
                   {"waves", k.waves}});
  }
  return out;
}

Json ratio_json(const std::optional<Ratio>& ratio) {
  if (!ratio) return nullptr;
  return {{"value", ratio->value}, {"ci", {ratio->ci.lo, ratio->ci.hi}}};
}

Json variant_json(const Command& c, const SizeResult& r, size_t i) {
  const BitVerdict& v = r.verdicts[i];
  Json out{{"name", c.set.variants[i].name},
           {"knobs", c.set.variants[i].knobs},
           {"class", measure::bit_class_name(v.bit_class)},
           {"why", v.why.empty() ? Json(nullptr) : Json(v.why)},
           {"difference", difference_json(v.difference)},
           {"kernels", nullptr},
           {"hot", nullptr},
           {"cold", nullptr}};
  if (!r.times) return out;
  if (!r.times->kernels[i].empty()) out["kernels"] = kernels_json(r.times->kernels[i]);
  const int variant = static_cast<int>(i);
  for (const ProbeMemory memory : c.memories) {
    const std::optional<Figures> f = figures_of(*r.times, variant, memory, c.flags.seed);
    out[measure::probe_memory_name(memory)] = {
        {"us", f->us},
        {"ci", {f->us_ci.lo, f->us_ci.hi}},
        {"gbps", f->gbps},
        {"peak_gbps", f->peak_gbps ? Json(*f->peak_gbps) : Json(nullptr)},
        {"pct_of_peak", f->share ? Json(100 * *f->share) : Json(nullptr)},
        {"over_first",
         ratio_json(ratio_of(r.times->us(variant, memory, i == 0), r.times->us(0, memory)))}};
  }
  return out;
}

Json size_json(const Command& c, const SizeResult& r) {
  Json out{{"batch", r.input.size.batch},
           {"depth", r.input.size.depth},
           {"type", dtype_info(r.input.type).name},
           {"cache", kv_format_name(r.input.cache)},
           {"variants", Json::array()}};
  for (size_t i = 0; i < c.set.variants.size(); ++i)
    out["variants"].push_back(variant_json(c, r, i));
  if (!r.times) return out;
  const measure::ProbeRotation& rotation = r.times->rotation;
  out["declared"] = {{"weight_bytes", r.times->cost.weight_bytes},
                     {"kv_bytes", r.times->cost.kv_bytes},
                     {"act_read_bytes", r.times->cost.act_read_bytes},
                     {"act_written_bytes", r.times->cost.act_written_bytes},
                     {"flops_useful", r.times->cost.flops_useful}};
  out["rotation"] = {{"n_sets", rotation.n_sets},
                     {"set_bytes", rotation.set_bytes},
                     {"distinct_bytes", rotation.distinct_bytes},
                     {"cache_bytes", rotation.cache_bytes},
                     {"cold", rotation.is_cold()},
                     {"hot", rotation.is_hot()}};
  out["order"] = r.times->rounds.order;
  out["arms"] = r.times->rounds.arms;
  return out;
}

Json map_json(const Command& c, const measure::FreedomMap& map,
              const std::vector<SizeResult>& results) {
  Json out = Json::array();
  for (const measure::FreedomRow& row : map.rows()) {
    Json json{{"knob", row.knob},
              {"from", row.from},
              {"to", row.to},
              {"class", measure::bit_class_name(row.bit_class)},
              {"why", row.why.empty() ? Json(nullptr) : Json(row.why)},
              {"n_pairs", row.n_pairs},
              {"least_depth", row.least_depth ? Json(*row.least_depth) : Json(nullptr)},
              {"difference", difference_json(row.difference)},
              {"times", Json::array()}};
    const int variant = changed_variant(c, row);
    for (const SizeResult& r : results) {
      if (!r.times || variant < 0) continue;
      for (const ProbeMemory memory : c.memories) {
        json["times"].push_back({{"batch", r.input.size.batch},
                                 {"depth", r.input.size.depth},
                                 {"memory", measure::probe_memory_name(memory)},
                                 {"ratio", ratio_json(ratio_of(r.times->us(variant, memory),
                                                               r.times->us(0, memory)))}});
      }
    }
    out.push_back(json);
  }
  return out;
}

Json samples_json(const std::vector<SizeResult>& results) {
  Json out = Json::array();
  for (const SizeResult& r : results) {
    if (!r.times) continue;
    const measure::Rounds& rounds = r.times->rounds;
    for (size_t arm = 0; arm < rounds.arms.size(); ++arm) {
      const bool is_ceiling = arm >= r.times->arms.size();
      for (size_t round = 0; round < rounds.values[arm].size(); ++round) {
        const double value = rounds.values[arm][round];
        Json sample{{"arm", rounds.arms[arm]},
                    {"depth", r.input.size.depth},
                    {"batch", r.input.size.batch},
                    {"type", dtype_info(r.input.type).name},
                    {"cache", kv_format_name(r.input.cache)},
                    {"round", round}};
        // The difference of two noisy times may be below zero: kept, under a name of its own.
        if (is_ceiling) {
          sample["gbps"] = value;
        } else {
          sample["launch_ns"] = 1e3 * value;
        }
        out.push_back(sample);
      }
    }
  }
  return out;
}

// The worst share of the memory's peak among cold times; a small set's bytes may hide in a launch.
std::vector<report::Gate> gates_of(const Command& c, const std::vector<SizeResult>& results) {
  std::vector<report::Gate> gates;
  report::Gate ceiling{.id = "ceiling",
                       .pass = true,
                       .value = {},
                       .limit = kCeilingRatio,
                       .why = "no cold times beside a read ceiling"};
  std::vector<double> peaks;
  for (const SizeResult& r : results) {
    if (!r.times) continue;
    peaks.insert(peaks.end(), r.times->memory_gbps.begin(), r.times->memory_gbps.end());
    for (size_t i = 0; i < c.set.variants.size(); ++i) {
      const std::optional<Figures> f =
          figures_of(*r.times, static_cast<int>(i), ProbeMemory::cold, c.flags.seed);
      if (!f || !f->share || (ceiling.value && *ceiling.value >= *f->share)) continue;
      ceiling.value = *f->share;
      ceiling.why = fmt::format(
          "batch {}, {} tokens, {}: cold, the declared bytes come at {:.3f} of the read ceiling",
          r.input.size.batch, r.input.size.depth, c.set.variants[i].name, *f->share);
    }
  }
  ceiling.pass = !ceiling.value || *ceiling.value <= kCeilingRatio;
  gates.push_back(ceiling);
  const std::string device = c.backend.device->info().name;
  if (!peaks.empty() && least_ceiling_gbps(device) > 0)
    gates.push_back(least_ceiling_gate(device, measure::median(peaks)));
  return gates;
}

int print_list(const ProbeFlags& flags, const Context& context) {
  const Backend& backend = engine::select_backend(context.flags.backend, context.flags.backend_dir);
  std::string out;
  if (flags.op.empty()) {
    for (const char* op : measure::probe_op_names()) out += fmt::format("{}\n", op);
  } else {
    for (const std::string& name : variant_names(backend, op_name(flags.op))) out += name + "\n";
  }
  write_stdout(out);
  return 0;
}

int cmd_probe(const ProbeFlags& flags, const Context& context) {
  if (flags.list) return print_list(flags, context);
  if (flags.op.empty()) {
    fail(ErrorCode::usage, "OP is needed: one of {}", fmt::join(measure::probe_op_names(), ", "));
  }
  const Command c = command_of(flags, context);
  const measure::Machine machine = measure::inspect_machine();
  Prober prober(c, machine);
  const std::vector<SizeResult> results = prober.run();
  report::Result document;
  document.gates = gates_of(c, results);
  if (context.flags.json) {
    document.command = context.arguments;
    document.machine = report::machine_json(machine);
    document.samples = samples_json(results);
    Json sizes = Json::array();
    for (const SizeResult& r : results) sizes.push_back(size_json(c, r));
    document.summary = {{"op", op_name(flags.op)},
                        {"backend", c.backend.name},
                        {"device", c.backend.device->info().name},
                        {"shape", c.formats.front().shape.name},
                        {"page_tokens", flags.page_tokens},
                        {"seed", flags.seed},
                        {"n_rounds", flags.n_rounds},
                        {"draws", measure::kProbeDraws},
                        {"n_classed", c.formats.size() * c.classed.size()},
                        {"sizes", sizes},
                        {"freedom_map", nullptr}};
    if (prober.map()) document.summary["freedom_map"] = map_json(c, *prober.map(), results);
    write_stdout(dump_json(document.to_json(), 2) + "\n");
  } else {
    std::string text;
    for (const SizeResult& r : results) text += size_text(c, r) + "\n";
    if (prober.map()) text += map_text(c, *prober.map(), results);
    write_stdout(text);
  }
  for (const std::string& line : report::failed_gates(document.gates)) write_stderr_line(line);
  return document.trusted() ? 0 : exit_status(ErrorCode::untrusted);
}

}  // namespace

RunCommand add_probe(CLI::App& app, Context& context) {
  auto flags = std::make_shared<ProbeFlags>();
  app.add_option("OP", flags->op, "An op of a decode step; --list shows them")->type_name("");
  app.add_option("--shape", flags->shape, "The model whose step it is; fathom synth --list")
      ->capture_default_str()
      ->type_name("NAME");
  app.add_option("--type", flags->type, "Tensor types of weights, a list")
      ->capture_default_str()
      ->type_name("TYPE");
  app.add_option("--cache", flags->cache,
                 "Types of the cache, a list: f16, bf16, f32, q8_0 or fp8-e4m3")
      ->capture_default_str()
      ->type_name("TYPE");
  app.add_option("--page-tokens", flags->page_tokens,
                 "Tokens of a cache page: 16, 64 or 256; 0 = one page per sequence")
      ->capture_default_str()
      ->check(CLI::IsMember({0, 16, 64, 256}))
      ->type_name("N");
  app.add_option("-b,--batch", flags->batches, "Sequences of a step, a list")
      ->capture_default_str()
      ->type_name("N");
  app.add_option("-d,--depths", flags->depths,
                 "Tokens in the cache of each, this step's included, a list")
      ->capture_default_str()
      ->type_name("N");
  app.add_flag("--neighbours", flags->neighbours,
               "Class the bits also one token before and after each depth");
  app.add_option("--memory", flags->memory, "hot, cold or hot,cold")
      ->capture_default_str()
      ->type_name("LIST");
  app.add_option("--variant", flags->variants,
                 "A variant by name, again for each; the first is the base. None: production")
      ->type_name("NAME");
  app.add_option("--sweep", flags->sweep,
                 "Knobs and their values, and print the freedom map: splits=16,32 staging=4,8")
      ->type_name("KNOB=LIST");
  app.add_option("-r,--rounds", flags->n_rounds, "Randomised rounds over all arms")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000))
      ->type_name("N");
  app.add_flag("--no-times", flags->no_times, "The classes of the bits alone");
  app.add_flag("--list", flags->list, "Show the ops, or the variants of OP");
  add_seed_flag(app, "-s,--seed", "Seed of the order of rounds", flags->seed);
  return [flags, &context] { return cmd_probe(*flags, context); };
}

}  // namespace fathom::cli
