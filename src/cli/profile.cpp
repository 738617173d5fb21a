// SPDX-License-Identifier: Apache-2.0
// Taking the profile (an arm per depth and one for the ceiling), its gates, and its table and JSON.
#include "cli/profile.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.hpp"
#include "base/finite.hpp"
#include "cli/cache_dir.hpp"
#include "cli/interrupt.hpp"
#include "cli/read_ceiling.hpp"
#include "cli/terminal.hpp"
#include "cli/watched_model.hpp"
#include "measure/clock.hpp"
#include "measure/rounds.hpp"
#include "measure/statistics.hpp"
#include "report/table.hpp"

namespace fathom::cli {
namespace {

using measure::median;
using measure::now_ns;

constexpr double kBlockNs = 30e6;  // a block is at least so long
constexpr int kMaxStepsPerBlock = 200;

// A sequence that stands at one depth and steps from there again and again.
class DepthArm {
 public:
  DepthArm(Model& model, int64_t depth, const ProfileOptions& options,
           const std::function<void(double)>& progress)
      : model_(model), sequence_(model.sequence()), timer_(model.info().n_layers) {
    profile_.depth = depth;
    profile_.kv_fill = fill_name(options.fill, depth);
    token_ = random_tokens(model, depth + 1, options.seed).back();
    fill_to_depth(model, sequence_, depth, options.fill, options.seed, progress);
    const measure::WarmUp warm = measure::warm_up([this] { return step_ns(); });
    if (!all_finite(sequence_.logits())) {
      fail(ErrorCode::bad_file,
           "the logits at position {} are not finite, so nothing is measured: check the model file",
           depth);
    }
    profile_.steps_per_block = std::clamp(
        static_cast<int>(std::ceil(kBlockNs / median(warm.values))), 1, kMaxStepsPerBlock);
  }

  // Nanoseconds of a step of the block.
  double untraced() {
    std::vector<double> walls;
    for (int step = 0; step < profile_.steps_per_block; ++step) walls.push_back(step_ns());
    profile_.untraced_ns.push_back(report::middle_mean(walls));
    return profile_.untraced_ns.back();
  }
  double traced() {
    const Watched watched(model_, &timer_);
    std::vector<double> walls;
    std::vector<DepthProfile::Round> steps;
    for (int step = 0; step < profile_.steps_per_block; ++step) {
      timer_.reset();
      walls.push_back(step_ns());
      const measure::Ledger ledger = timer_.ledger(static_cast<int64_t>(walls.back()));
      if (profile_.ops.empty()) name_ops(ledger);
      DepthProfile::Round& record = steps.emplace_back();
      record.wall_ns = walls.back();
      record.outside_ns = static_cast<double>(ledger.difference_ns());
      for (const measure::LedgerRow& row : ledger.rows) {
        record.op_ns.push_back(static_cast<double>(row.ns));
      }
    }
    profile_.traced.push_back(report::middle_mean(steps));
    return profile_.traced.back().wall_ns;
  }

  DepthProfile finish() {
    report::fill_depth_figures(profile_);
    return std::move(profile_);
  }

 private:
  void name_ops(const measure::Ledger& ledger) {
    for (const measure::LedgerRow& row : ledger.rows) {
      profile_.ops.push_back({row.op, 0, row.calls, row.cost.memory_bytes()});
    }
  }

  double step_ns() {
    sequence_.truncate(profile_.depth);
    const int64_t start = now_ns();
    sequence_.step(token_, LogitsMode::last);
    sequence_.sample(SamplerParams{});  // greedy, so that a step is what a token takes
    return static_cast<double>(now_ns() - start);
  }

  Model& model_;
  Sequence sequence_;
  measure::OpTimer timer_;
  int32_t token_ = 0;
  DepthProfile profile_;
};

// A growth that rounds to nothing has no sign.
std::string milliseconds(double ns) {
  return fmt::format("{:.3f}", std::abs(ns) < 500 ? 0 : ns * 1e-6);
}

std::string gbps_text(int64_t bytes, double ns) {
  return bytes > 0 ? fmt::format("{:.1f}", static_cast<double>(bytes) / ns) : "-";
}

}  // namespace

void require_depths(const std::vector<int64_t>& depths, int64_t n_ctx) {
  const int64_t deepest = *std::max_element(depths.begin(), depths.end());
  if (deepest + 1 <= n_ctx) return;
  fail(ErrorCode::usage, "--depths {} needs a context of {} tokens, this one has {}: give -c {}",
       deepest, deepest + 1, n_ctx, deepest + 1);
}

Profile profile_decode(Model& model, const measure::Machine& machine, const ProfileOptions& options,
                       const CommonFlags& common) {
  require_depths(options.depths, model.info().n_ctx);
  ProgressBar bar("profile", common.quiet);
  std::vector<std::unique_ptr<DepthArm>> depth_arms;
  double filled = 0;
  const double total = static_cast<double>(options.depths.size());
  for (int64_t depth : options.depths) {
    depth_arms.push_back(std::make_unique<DepthArm>(
        model, depth, options, [&](double part) { bar.update(0.5 * (filled + part) / total); }));
    ++filled;
  }

  Profile profile;
  profile.threads = model.info().threads;
  std::vector<measure::Arm> arms;
  for (const auto& arm : depth_arms) {
    arms.push_back({"untraced", [&arm] { return arm->untraced(); }});
    arms.push_back({"traced", [&arm] { return arm->traced(); }});
  }
  ReadCeiling ceiling(model.info(), common);
  if (ceiling) arms.push_back({"ceiling", [&] { return ceiling.sample_gbps(); }});
  measure::Rounds rounds = measure::run_rounds(
      arms, {.n_rounds = options.rounds,
             .seed = options.seed,
             .cancel = &interrupted(),
             .progress = [&](int done, int of) { bar.update(0.5 + 0.5 * done / of); }});
  bar.clear();

  profile.seed = rounds.seed;
  profile.order = std::move(rounds.order);
  if (ceiling) {
    profile.ceiling_gbps = rounds.values.back();
    profile.peak_gbps = median(profile.ceiling_gbps);
  }
  profile.cache_bytes = cache_bytes_of(model.info(), machine, common);
  for (const auto& arm : depth_arms) profile.depths.push_back(arm->finish());
  profile.gates = report::profile_gates(profile.depths, profile.ceiling_gbps, profile.cache_bytes);
  return profile;
}

std::string Profile::text(bool colour) const {
  using report::Align;
  std::vector<report::Table::Column> columns{{"op", Align::left}};
  for (const DepthProfile& depth : depths) {
    columns.push_back({fmt::format("ms @{}", depth.depth)});
    columns.push_back({"MB"});
    columns.push_back({"GB/s"});
    columns.push_back({"% of peak"});
  }
  const bool growth = depths.size() > 1;
  if (growth) columns.push_back({"growth ms"});
  report::Table table(columns);

  const auto add_row = [&](const std::string& name, const auto& ns_of, const auto& bytes_of,
                           report::Paint paint) {
    std::vector<std::string> cells{name};
    for (const DepthProfile& depth : depths) {
      const double ns = ns_of(depth);
      const int64_t bytes = bytes_of(depth);
      cells.push_back(milliseconds(ns));
      cells.push_back(bytes > 0 ? fmt::format("{:.2f}", static_cast<double>(bytes) * 1e-6) : "-");
      cells.push_back(gbps_text(bytes, ns));
      cells.push_back(bytes > 0 && peak_gbps > 0
                          ? fmt::format("{:.0f}", 100 * static_cast<double>(bytes) / ns / peak_gbps)
                          : "-");
    }
    if (growth) cells.push_back(milliseconds(ns_of(depths.back()) - ns_of(depths.front())));
    table.add(std::move(cells), paint);
  };
  const auto no_bytes = [](const DepthProfile&) { return int64_t{0}; };
  const auto all_bytes = [](const DepthProfile& depth) {
    int64_t bytes = 0;
    for (const DepthProfile::Op& op : depth.ops) bytes += op.bytes;
    return bytes;
  };
  for (size_t i = 0; i < depths.front().ops.size(); ++i) {
    add_row(
        depths.front().ops[i].name, [i](const DepthProfile& d) { return d.ops[i].ns; },
        [i](const DepthProfile& d) { return d.ops[i].bytes; }, report::Paint::plain);
  }
  table.add_rule();
  add_row(
      "sum of the ops", [](const DepthProfile& d) { return d.sum_ns; }, all_bytes,
      report::Paint::heading);
  add_row(
      "wall time", [](const DepthProfile& d) { return d.wall_ns; }, all_bytes,
      report::Paint::plain);
  add_row(
      "difference", [](const DepthProfile& d) { return d.wall_ns - d.sum_ns; }, no_bytes,
      report::Paint::plain);
  add_row(
      "not watched", [](const DepthProfile& d) { return d.untraced_mean_ns; }, all_bytes,
      report::Paint::dim);

  std::string out = table.text(colour);
  out += fmt::format(
      "A decode step, middle half of {} rounds in random order (seed {}), {} threads; "
      "not watched = without a timer around each op",
      order.size(), seed, threads);
  if (std::any_of(depths.begin(), depths.end(),
                  [](const DepthProfile& d) { return d.kv_fill == "synthetic"; })) {
    out += fmt::format("; synthetic cache behind {} real tokens", kSyntheticSource);
  }
  if (peak_gbps > 0) {
    out += fmt::format("; peak = {:.1f} GB/s, our read stream between the same rounds", peak_gbps);
  }
  return out + ".";
}

void Profile::add_to(report::Result& document) const {
  Json summary = Json::array();
  for (const DepthProfile& depth : depths) {
    summary.push_back(report::depth_json(depth, peak_gbps));
    for (size_t round = 0; round < depth.traced.size(); ++round) {
      Json ops = Json::object();
      for (size_t op = 0; op < depth.ops.size(); ++op) {
        ops[depth.ops[op].name] = depth.traced[round].op_ns[op];
      }
      document.samples.push_back({{"arm", "traced"},
                                  {"depth", depth.depth},
                                  {"round", round},
                                  {"steps", depth.steps_per_block},
                                  {"ns", depth.traced[round].wall_ns},
                                  {"outside_ns", depth.traced[round].outside_ns},
                                  {"ops_ns", ops}});
      document.samples.push_back({{"arm", "untraced"},
                                  {"depth", depth.depth},
                                  {"round", round},
                                  {"steps", depth.steps_per_block},
                                  {"ns", depth.untraced_ns[round]}});
    }
  }
  for (size_t round = 0; round < ceiling_gbps.size(); ++round) {
    document.samples.push_back(
        {{"arm", "ceiling"}, {"round", round}, {"gbps", ceiling_gbps[round]}});
  }
  document.summary["profile"] = {{"depths", summary},
                                 {"peak_gbps", peak_gbps > 0 ? Json(peak_gbps) : Json(nullptr)},
                                 {"cache_bytes", cache_bytes},
                                 {"threads", threads},
                                 {"seed", seed},
                                 {"order", order}};
  document.gates.insert(document.gates.end(), gates.begin(), gates.end());
}

int report_gates(const std::vector<report::Gate>& gates) {
  const std::vector<std::string> failed = report::failed_gates(gates);
  for (const std::string& line : failed) {
    write_stderr_line(report::painted(line, report::Paint::bad, stderr_colour()));
  }
  return failed.empty() ? 0 : exit_status(ErrorCode::untrusted);
}

}  // namespace fathom::cli
