// SPDX-License-Identifier: Apache-2.0
// fathom probe OP: the production launcher of one op alone, beside its variants: time hot and cold,
// declared bytes, share of the measured peak of that memory level, what the kernels take of the
// device, and the class of their bits against the first variant. With --sweep the freedom map:
// which knobs are free of bits, which are not, which help.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "cli/arguments.hpp"
#include "cli/attribute_census.hpp"
#include "cli/command.hpp"
#include "cli/gpu_guard.hpp"
#include "cli/interrupt.hpp"
#include "cli/model_flags.hpp"
#include "cli/probe_figures.hpp"
#include "cli/probe_kernels.hpp"
#include "cli/probe_output.hpp"
#include "cli/terminal.hpp"
#include "convert/model_shape.hpp"
#include "engine/bind_model.hpp"
#include "measure/machine.hpp"
#include "report/probe_report.hpp"
#include "report/result.hpp"

namespace fathom::cli {
namespace {

using measure::BitEvidence;
using measure::BitVerdict;
using measure::ProbeMemory;
using measure::ProbeSize;
using measure::ProbeVariant;

constexpr int kMostBatch = 32;

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
void add_sizes(const ProbeFlags& flags, ProbeCommand& c) {
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

ProbeCommand command_of(const ProbeFlags& flags, const Context& context) {
  const Backend& backend = engine::select_backend(context.flags.backend, context.flags.backend_dir);
  const std::string op = probed_op(flags);
  ProbeCommand c{.flags = flags,
                 .context = context,
                 .backend = backend,
                 .set = flags.sweep.empty()
                            ? named_variants(backend, op, flags.variants, context.flags)
                            : swept_variants(backend, op, flags.sweep, context.flags),
                 .formats = formats_of(flags),
                 .memories = memories_of(flags.memory),
                 .timed = {},
                 .classed = {}};
  add_sizes(flags, c);
  return c;
}

class Prober {
 public:
  Prober(const ProbeCommand& c, const measure::Machine& machine)
      : c_(c),
        stream_(make_stream(*c.backend.device)),
        device_{c.backend, *c.set.variants.front().pool, stream_.get()},
        cache_bytes_(probe_cache_bytes(c.backend, machine)),
        bar_("probing", c.context.flags.quiet) {
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
        out.push_back({with_size(format, size), {}, {}, {}});
        out.back().verdicts.resize(c_.set.variants.size());
      }
      for (const ProbeSize& size : c_.classed)
        classify(with_size(format, size), std::span(out).subspan(first));
    }
    if (c_.flags.no_times) return out;
    ProbeCeilingSamplers ceilings(c_.backend, device_.pool.size(), cache_bytes_);
    for (SizeResult& result : out) {
      measure::ProbeOptions options;
      options.n_rounds = c_.flags.n_rounds;
      options.seed = c_.flags.seed;
      options.memories = c_.memories;
      options.cache_bytes = cache_bytes_;
      options.budget_bytes = probe_budget_bytes(c_.backend);
      options.cancel = &interrupted();
      options.progress = [this](double part) { step(part); };
      result.times = measure::probe_times(probed_op(c_.flags), result.input, c_.set.variants,
                                          device_, ceilings.functions(), options);
      ++done_;
    }
    return out;
  }
  const std::optional<measure::FreedomMap>& map() const { return map_; }

 private:
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
        measure::probe_bits(probed_op(c_.flags), input, c_.set.variants, device_);
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

  const ProbeCommand& c_;
  Stream stream_;
  measure::ProbeDevice device_;
  int64_t cache_bytes_;
  ProgressBar bar_;
  std::optional<measure::FreedomMap> map_;
  double done_ = 0;
};

int print_list(const ProbeFlags& flags, const Context& context) {
  const Backend& backend = engine::select_backend(context.flags.backend, context.flags.backend_dir);
  std::string out;
  if (flags.op.empty()) {
    for (const char* op : measure::probe_op_names()) out += fmt::format("{}\n", op);
  } else {
    for (const std::string& name : variant_names(backend, probed_op(flags))) out += name + "\n";
  }
  write_stdout(out);
  return 0;
}

// The source must be there before the device is used.
int kernels_child(const ProbeFlags& flags, const Context& context) {
  const std::unique_ptr<TraceSource> source = make_trace_source(context.flags, 0);
  const ProbeCommand c = command_of(flags, context);
  write_stdout(dump_json(watch_kernels(c, measure::inspect_machine(), *source)));
  return 0;
}

int cmd_probe(const ProbeFlags& flags, const Context& context) {
  if (flags.list) return print_list(flags, context);
  if (flags.op.empty()) {
    fail(ErrorCode::usage, "OP is needed: one of {}", fmt::join(measure::probe_op_names(), ", "));
  }
  if (flags.kernels_child) return kernels_child(flags, context);
  std::optional<GpuGuard> guard;  // bits are the same on a busy GPU
  if (!flags.no_times) guard.emplace(context.flags, flags.allow_busy);
  const ProbeCommand c = command_of(flags, context);
  if (guard) guard->run_canary();
  const measure::Machine machine = measure::inspect_machine();
  Json machine_json = report::machine_json(machine);
  if (guard) machine_json["state"]["before"] = guard->state();
  Prober prober(c, machine);
  ProbeResults results = prober.run();
  if (guard) machine_json["state"]["after"] = guard->state();
  if (has_kernels_apart(c, results)) add_kernels_apart(c, results);
  report::Result document;
  document.samples = probe_samples(results);
  document.summary = probe_summary(c, results, prober.map());
  document.gates = report::probe_gates(document.samples, document.summary);
  if (guard) {
    const std::vector<report::Gate> idle = guard->all_gates();
    document.gates.insert(document.gates.begin(), idle.begin(), idle.end());
    if (!guard->watermark().empty()) document.summary["watermark"] = guard->watermark();
  }
  if (context.flags.json) {
    document.command = context.arguments;
    document.machine = std::move(machine_json);
    write_stdout(dump_json(document.to_json(), 2) + "\n");
  } else {
    write_stdout(report::probe_text(document.summary, stdout_colour()));
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
  app.add_flag("--allow-busy", flags->allow_busy,
               "Measure on a GPU that is not idle, and mark the result");
  app.add_flag(kKernelsChildFlag, flags->kernels_child)->group("");
  app.add_flag("--list", flags->list, "Show the ops, or the variants of OP");
  add_seed_flag(app, "-s,--seed", "Seed of the order of rounds", flags->seed);
  return [flags, &context] { return cmd_probe(*flags, context); };
}

}  // namespace fathom::cli
