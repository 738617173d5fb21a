// SPDX-License-Identifier: Apache-2.0
// The program: a table of subcommands, the flags they share, and the one place where an error
// becomes an exit status (0 done, 1 failed, 2 usage, 3 this machine cannot, 4 untrusted, 130).
#include <exception>
#include <memory>
#include <new>

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/utf8.hpp"
#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/help_formatter.hpp"
#include "cli/interrupt.hpp"
#include "cli/terminal.hpp"
#include "report/table.hpp"

namespace fathom::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "Generate text from a prompt, streamed",
     "  fathom run smollm2-135m -p \"The sea is deep because\" -n 128\n"
     "  fathom run model.gguf -f prompt.txt --temp 0.8 --top-p 0.95 -s 7\n"
     "  fathom run model.gguf -p \"Hello\" -n 16 --profile --depths 64,1641",
     add_run},
    {"bench", "Measure prefill and decode speed, with the read ceiling beside them",
     "  fathom bench model.gguf -p 512 -n 128 -d 0,4096\n"
     "  fathom bench model.gguf -n 64 -p 0 -o json > rows.json\n"
     "  fathom bench model.gguf -p 0 -d 2048 -npl 1,8,32 --fill synthetic\n"
     "  fathom bench model.gguf -r 20 --json > base.json\n"
     "  fathom bench model.gguf -r 20 --compare base.json\n"
     "  fathom bench model.gguf --against old/fathom\n"
     "  fathom bench model.gguf --profile --depths 64,1641",
     add_bench},
    {"attribute", "Find what makes a decode step slower at depth, and why",
     "  fathom attribute model.gguf --depths 64,1641\n"
     "  fathom attribute model.gguf --depths 64,512,1024,2048 --html growth.html\n"
     "  fathom attribute model.gguf -npl 4 --confirm threads=1\n"
     "  fathom attribute model.gguf --json > growth.json",
     add_attribute},
    {"inspect", "Show what is in a GGUF file and how it would be served",
     "  fathom inspect model.gguf\n"
     "  fathom inspect model.gguf --json",
     add_inspect},
    {"tokenize", "Show the tokens of a text",
     "  fathom tokenize model.gguf -p \"Hello world\"\n"
     "  fathom tokenize model.gguf --ids -f - < text.txt",
     add_tokenize},
    {"perplexity", "Perplexity of a text, and KL divergence against stored logits",
     "  fathom perplexity model.gguf text.txt -c 512\n"
     "  fathom perplexity model.gguf text.txt --activations f32 --save-base base.logits\n"
     "  fathom perplexity model.gguf text.txt --base base.logits",
     add_perplexity},
    {"probe", "One op alone: its variants' bits and times, hot and cold",
     "  fathom probe attn --shape smollm2-135m -d 52,512 --variant isa=avx2 --variant isa=scalar\n"
     "  fathom probe attn --sweep isa=avx2,scalar threads=1,2 --no-times\n"
     "  fathom probe norm_gate_up_act --shape smollm2-135m --type q8_0 -b 1,4 -d 1 --json",
     add_probe},
    {"synth", "Write a random-weight model of a known shape, for speed work",
     "  fathom synth qwen7b.gguf --shape qwen2.5-7b --type q4_k_m\n"
     "  fathom synth --list",
     add_synth},
    {"report", "Compute the figures of result files again from their samples, and check them",
     "  fathom report result.json\n"
     "  fathom bench model.gguf --json | fathom report -",
     add_report},
    {"doctor", "Say what this machine has, measure its memory, and name what is missing",
     "  fathom doctor\n"
     "  fathom doctor --backend cuda\n"
     "  fathom doctor --json",
     add_doctor},
};

std::string version_text() {
  const BuildInfo& build = build_info();
  return fmt::format("fathom {} ({}, {}, {}{}{})", build.version, build.commit, build.compiler,
                     build.build_type, *build.cuda ? ", CUDA " : "", build.cuda);
}

void add_common_flags(CLI::App& app, CommonFlags& flags) {
  const char* group = "Common";
  app.add_option("--backend", flags.backend, "cpu, cuda or reference")
      ->capture_default_str()
      ->type_name("NAME")
      ->group(group);
  app.add_option("--backend-dir", flags.backend_dir, "Where backend libraries are looked for first")
      ->type_name("DIR")
      ->group(group);
  if (!app.get_option_no_throw("--threads")) {  // bench takes a list
    app.add_option("-t,--threads", flags.threads, "CPU threads; 0 = the cores this process may use")
        ->capture_default_str()
        ->check(CLI::Range(0, 1024))
        ->type_name("N")
        ->group(group);
  }
  app.add_option("--isa", flags.isa, "Instruction set of the CPU backend, instead of the best here")
      ->check(CLI::IsMember({"scalar", "avx2", "avx512"}))
      ->type_name("NAME")
      ->group(group);
  app.add_flag("--json", flags.json, "One JSON document (schema fathom-result/1) on stdout")
      ->group(group);
  app.add_flag("-v,--verbose", flags.verbose, "Say more")->group(group);
  app.add_flag("-q,--quiet", flags.quiet, "Say only errors and warnings")->group(group);
  app.set_version_flag("--version", version_text(), "Print the version and exit")->group(group);
}

int report_error(const std::string& command, const char* what, int status) {
  write_stderr_line(
      report::painted(fmt::format("fathom{}: {}", command, printable(what, std::string::npos)),
                      report::Paint::bad, stderr_colour()));
  return status;
}

// CLI11 would only say that a subcommand is required.
void check_command(const std::vector<std::string>& arguments) {
  std::string names;
  for (const Command& command : kCommands) {
    if (!arguments.empty() && arguments.front() == command.name) return;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", command.name);
  }
  if (arguments.empty()) fail(ErrorCode::usage, "no command: expected one of {}", names);
  const std::string& first = arguments.front();
  if (first != "-h" && first != "--help" && first != "--version") {
    fail(ErrorCode::usage, "no command '{}': expected one of {}", first, names);
  }
}

int run_program(int argc, char** argv) {
  Context context;
  context.arguments.assign(argv, argv + argc);

  CLI::App app("Fathom runs language models fast at depth, and shows where the time goes.",
               "fathom");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", version_text(), "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(1);
  app.footer(
      "fathom COMMAND --help shows the flags of a command and an example.\n\n"
      "Exit status: 0 done; 1 failed, also when a file is missing, unreadable or damaged; 2 wrong\n"
      "usage; 3 this machine cannot; 4 measured, but a gate says not to trust it; 130 "
      "interrupted.");

  std::vector<std::pair<CLI::App*, RunCommand>> runners;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    sub->footer(fmt::format("Example:\n{}", command.example));
    runners.emplace_back(sub, command.add(*sub, context));
    add_common_flags(*sub, context.flags);
  }

  std::vector<std::string> arguments = expand_short_flags({argv + 1, argv + argc});
  check_command(arguments);
  std::reverse(arguments.begin(), arguments.end());  // the order CLI11 takes them in
  std::string parsed_command;
  try {
    app.parse(arguments);
  } catch (const CLI::Success& e) {  // help or version
    std::ostringstream out, err;
    app.exit(e, out, err);
    write_stdout(out.str());
    return 0;
  } catch (const CLI::ParseError& e) {
    for (const auto& [sub, run] : runners) {
      if (sub->parsed()) parsed_command = " " + sub->get_name();
    }
    return report_error(parsed_command,
                        fmt::format("{} (fathom{} --help)", e.what(), parsed_command).c_str(),
                        exit_status(ErrorCode::usage));
  }
  for (const auto& [sub, run] : runners) {
    if (!sub->parsed()) continue;
    parsed_command = " " + sub->get_name();
    try {
      return run();
    } catch (const Error& e) {
      return report_error(parsed_command, e.what(), exit_status(e.code()));
    } catch (const BrokenPipe&) {
      return 0;
    } catch (const std::bad_alloc&) {
      return report_error(parsed_command,
                          "out of memory: this machine, or a limit on this process, has no room "
                          "left; use a smaller model, context or text",
                          exit_status(ErrorCode::out_of_memory));
    } catch (const std::exception& e) {
      return report_error(parsed_command, e.what(), exit_status(ErrorCode::internal));
    }
  }
  return exit_status(ErrorCode::usage);
}

}  // namespace
}  // namespace fathom::cli

int main(int argc, char** argv) {
  fathom::cli::install_interrupt_handler();
  try {
    return fathom::cli::run_program(argc, argv);
  } catch (const fathom::cli::BrokenPipe&) {
    return 0;
  } catch (const fathom::Error& e) {
    return fathom::cli::report_error("", e.what(), fathom::exit_status(e.code()));
  }
}
