// SPDX-License-Identifier: Apache-2.0
// fathom synth: writes a random-weight GGUF of a known shape. The same flags give the same bytes.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.hpp"
#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "cli/model_flags.hpp"
#include "cli/terminal.hpp"
#include "convert/synth.hpp"
#include "measure/clock.hpp"
#include "report/result.hpp"
#include "report/table.hpp"

namespace fathom::cli {
namespace {

struct SynthFlags {
  convert::SynthOptions options;
  std::string out;
  bool list = false;
};

std::string shapes_table() {
  report::Table table({{"shape", report::Align::left},
                       {"family", report::Align::left},
                       {"layers"},
                       {"d_model"},
                       {"d_ff"},
                       {"heads"},
                       {"kv heads"},
                       {"head dim"},
                       {"vocabulary"}});
  for (const convert::ModelShape& shape : convert::all_model_shapes()) {
    table.add({shape.name, shape.arch, fmt::format("{}", shape.n_layers),
               fmt::format("{}", shape.d_model), fmt::format("{}", shape.d_ff),
               fmt::format("{}", shape.n_heads), fmt::format("{}", shape.n_kv_heads),
               fmt::format("{}", shape.head_dim), fmt::format("{}", shape.vocab_size)});
  }
  return table.text(stdout_colour());
}

Json shapes_json() {
  Json shapes = Json::array();
  for (const convert::ModelShape& shape : convert::all_model_shapes()) {
    shapes.push_back({{"name", shape.name},
                      {"family", shape.arch},
                      {"n_layers", shape.n_layers},
                      {"d_model", shape.d_model},
                      {"d_ff", shape.d_ff},
                      {"n_heads", shape.n_heads},
                      {"n_kv_heads", shape.n_kv_heads},
                      {"head_dim", shape.head_dim},
                      {"vocab_size", shape.vocab_size}});
  }
  return shapes;
}

void print_document(const Context& context, Json summary) {
  report::Result document;
  document.command = context.arguments;
  document.machine = report::machine_json(measure::inspect_machine());
  document.summary = std::move(summary);
  write_stdout(dump_json(document.to_json(), 2) + "\n");
}

int cmd_synth(const SynthFlags& flags, const Context& context) {
  if (flags.list && context.flags.json) {
    print_document(context,
                   {{"shapes", shapes_json()}, {"types", split(convert::recipe_names(), ' ')}});
    return 0;
  }
  if (flags.list) {
    write_stdout(shapes_table());
    write_stdout(fmt::format("\ntypes: {}\n", convert::recipe_names()));
    return 0;
  }
  if (flags.out.empty() || flags.options.shape.empty()) {
    fail(ErrorCode::usage, "OUT and --shape are needed: fathom synth --list shows the shapes");
  }
  convert::SynthOptions options = flags.options;
  options.n_threads = context.flags.threads;
  ProgressBar bar("writing", context.flags.quiet);
  options.progress = [&bar](uint64_t done, uint64_t total) {
    if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
    bar.update(static_cast<double>(done) / static_cast<double>(total));
  };
  const int64_t start = measure::now_ns();
  const convert::SynthResult result = convert::synth(options, flags.out);
  const double seconds = static_cast<double>(measure::now_ns() - start) * 1e-9;
  bar.clear();
  if (context.flags.json) {
    print_document(context, {{"path", flags.out},
                             {"file_bytes", result.file_bytes},
                             {"tensor_bytes", result.tensor_bytes},
                             {"n_params", result.n_params},
                             {"n_tensors", result.n_tensors},
                             {"seconds", seconds}});
    return 0;
  }
  say(context.flags.quiet, "{}: {} parameters in {} tensors, {}, written in {:.1f} s ({:.2f} GB/s)",
      flags.out, report::format_count(static_cast<int64_t>(result.n_params)), result.n_tensors,
      report::format_bytes(static_cast<int64_t>(result.file_bytes)), seconds,
      static_cast<double>(result.file_bytes) / seconds * 1e-9);
  return 0;
}

}  // namespace

RunCommand add_synth(CLI::App& app, Context& context) {
  auto flags = std::make_shared<SynthFlags>();
  convert::SynthOptions& options = flags->options;
  app.add_option("OUT,-o,--output", flags->out, "The GGUF file to write")->type_name("");
  app.add_option("--shape", options.shape, "A model shape; --list shows them")->type_name("NAME");
  app.add_option("--type", options.type, "A tensor type or a mix such as q4_k_m")
      ->capture_default_str()
      ->type_name("TYPE");
  app.add_flag("--pure", options.pure, "The type for every matrix, without the mix of its name");
  add_seed_flag(app, "-s,--seed", "Seed of the weights", options.seed);
  app.add_option("--vocab-size", options.vocab_size, "Instead of the shape's own; 0 keeps it")
      ->type_name("N");
  app.add_option("--layers", options.n_layers, "Instead of the shape's own; 0 keeps it")
      ->type_name("N");
  app.add_option("-c,--ctx,--ctx-size", options.n_ctx,
                 "Trained context, instead of the shape's own; 0 keeps it")
      ->type_name("N");
  app.add_flag("--list", flags->list, "Show the shapes and the types, write nothing");
  return [flags, &context] { return cmd_synth(*flags, context); };
}

}  // namespace fathom::cli
