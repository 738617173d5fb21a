// SPDX-License-Identifier: Apache-2.0
// What a subcommand is: a row of the table in main.cpp. Its `add` declares flags on a CLI11 app and
// returns what to run once they are parsed; the returned function gives the exit status.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fathom::cli {

// Flags that every command takes.
struct CommonFlags {
  std::string backend = "cpu";
  std::string backend_dir;
  std::string isa;
  int threads = 0;
  bool json = false;
  bool verbose = false;
  bool quiet = false;
};

struct Context {
  std::vector<std::string> arguments;  // as given, the program's name first
  CommonFlags flags;
};

using RunCommand = std::function<int()>;

struct Command {
  const char* name;
  const char* summary;
  const char* example;
  // The context is filled before the returned function runs.
  RunCommand (*add)(CLI::App& app, Context& context);
};

RunCommand add_run(CLI::App& app, Context& context);
RunCommand add_bench(CLI::App& app, Context& context);
RunCommand add_attribute(CLI::App& app, Context& context);
RunCommand add_tokenize(CLI::App& app, Context& context);
RunCommand add_inspect(CLI::App& app, Context& context);
RunCommand add_perplexity(CLI::App& app, Context& context);
RunCommand add_probe(CLI::App& app, Context& context);
RunCommand add_synth(CLI::App& app, Context& context);
RunCommand add_report(CLI::App& app, Context& context);
RunCommand add_doctor(CLI::App& app, Context& context);

}  // namespace fathom::cli
