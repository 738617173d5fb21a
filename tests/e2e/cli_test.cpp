// SPDX-License-Identifier: Apache-2.0
// The program as scripts see it, whatever the command: help, usage errors, exit status, JSON and
// colour, on a tiny synthetic model.
#include <pty.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/thread_pool.hpp"
#include "tests/e2e/cli_fixture.hpp"
#include "tests/support/sanitizer.hpp"

namespace fathom::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

TEST_F(Cli, HelpOfEveryCommandHasAnExample) {
  const Finished top = fathom({"--help"});
  EXPECT_EQ(top.status, 0);
  EXPECT_THAT(top.err, IsEmpty());
  for (const char* name :
       {"run", "bench", "inspect", "tokenize", "perplexity", "synth", "doctor"}) {
    EXPECT_THAT(top.out, HasSubstr(name));
    const Finished help = fathom({name, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_THAT(help.out, AllOf(HasSubstr("Example:"), HasSubstr(std::string("fathom ") + name),
                                HasSubstr("--backend"), HasSubstr("--threads")));
    EXPECT_THAT(help.out, Not(HasSubstr("INT in ["))) << "the range of a type says nothing";
    EXPECT_THAT(help.out, Not(testing::ContainsRegex("\n +-m[^\n]*REQUIRED"))) << "MODEL is enough";
    EXPECT_THAT(help.err, IsEmpty());
  }
}

TEST_F(Cli, VersionOnStdout) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--version"}, {"run", "--version"}}) {
    const Finished run = fathom(arguments);
    EXPECT_EQ(run.status, 0);
    EXPECT_THAT(run.out, StartsWith("fathom "));
    EXPECT_EQ(line_count(run.out), 1u);
  }
}

TEST_F(Cli, UsageErrorsAreOneLineAndStatus2) {
  expect_one_line_error(fathom({}), 2, "no command");
  expect_one_line_error(fathom({"dance"}), 2, "dance");
  expect_one_line_error(fathom({"run", model(), "-p", "a", "--no-such-flag"}), 2, "no-such-flag");
  expect_one_line_error(fathom({"run", model(), "-p", "a", "--isa", "mmx"}), 2, "mmx");
  expect_one_line_error(fathom({"run", model()}), 2, "no prompt");
  expect_one_line_error(fathom({"run", model(), "-p", "a", "-f", "b"}), 2, "both -p and -f");
  expect_one_line_error(fathom({"run", model(), "-p", "a", "-ctk", "q4_0", "-ctv", "q4_0"}), 2,
                        "f16, bf16, f32, q8_0 or fp8-e4m3");
  expect_one_line_error(fathom({"run", model(), "-p", "a", "--logit-bias", "12"}), 2,
                        "--logit-bias");
  expect_one_line_error(fathom({"run", model(), "-p", "a", "--logit-bias", "99999999+1"}), 2,
                        "token ids go to");
  expect_one_line_error(fathom({"run", model(), "-p", "a", "--top-p", "7"}), 2, "top");
  expect_one_line_error(fathom({"bench", model(), "-d", "1-x"}), 2, "-d");
  expect_one_line_error(fathom({"bench", model(), "-d", "64-128*1"}), 2, "never end");
  expect_one_line_error(fathom({"bench", model(), "-o", "xml"}), 2, "csv, json, jsonl, md or sql");
  expect_one_line_error(fathom({"bench", model(), "-p", "0", "-n", "0"}), 2, "nothing to measure");
  expect_one_line_error(fathom({"synth"}), 2, "--shape");
  for (const char* threads : {"1025", "-1", "99999999999"}) {
    expect_one_line_error(fathom({"run", model(), "-p", "a", "-t", threads}), 2, "threads");
    expect_one_line_error(fathom({"bench", model(), "-t", threads}), 2, "-t");
  }
  expect_one_line_error(fathom({"-v"}), 2, "expected one of run, bench");
  expect_one_line_error(fathom({"run", model(), "-p", "a", "-ctk", "f16", "-ctv", "q8_0"}), 2,
                        "share one type");
}

TEST_F(Cli, NumbersOutOfRangeAreUsageErrors) {
  const std::string huge = "9223372036854775807";
  for (const char* flag : {"-d", "-p", "-n", "-t", "-ub"}) {
    expect_one_line_error(fathom({"bench", model(), flag, huge}), 2, "too large");
    expect_one_line_error(fathom({"bench", model(), flag, "-1"}), 2, "'-1' is negative");
  }
  for (const char* depths : {huge.c_str(), "-1"}) {
    expect_one_line_error(fathom({"bench", model(), "--profile", "--depths", depths}), 2,
                          "--depths: '" + std::string(depths));
    expect_one_line_error(fathom({"run", model(), "-p", "a", "--profile", "--depths", depths}), 2,
                          "--depths: '" + std::string(depths));
  }
  expect_one_line_error(fathom({"run", model(), "-p", "a", "-c", "-1"}), 2,
                        "not in range 0 to 16777216");
  for (const char* n : {"-5", "-2", "99999999999999999999"}) {
    expect_one_line_error(fathom({"run", model(), "-p", "a", "-n", n}), 2,
                          "not in range -1 to 2147483647");
  }
  for (const char* seed : {"-1", "18446744073709551616", "0x10", "1e3", ""}) {
    const std::string problem = "--seed: '" + std::string(seed) + "' is not a whole number from 0";
    expect_one_line_error(fathom({"run", model(), "-p", "a", "-s", seed}), 2, problem);
    expect_one_line_error(fathom({"bench", model(), "--seed", seed}), 2, problem);
    expect_one_line_error(
        fathom({"synth", folder_ / "seed.gguf", "--shape", "tiny-llama", "-s", seed}), 2, problem);
  }
  EXPECT_EQ(fathom({"run", model(), "-p", "a", "-n", "1", "-s", "18446744073709551615"}).status, 0);
  for (const char* chunks : {"0", "-2"}) {
    expect_one_line_error(fathom({"perplexity", model(), model(), "--chunks", chunks}), 2,
                          "--chunks " + std::string(chunks) + ": expected 1 or more");
  }
}

TEST_F(Cli, DepthsBeyondTheContextEndBeforeTheModelLoads) {
  const std::string problem = "--depths 8 needs a context of 9 tokens, this one has 4: give -c 9";
  for (const std::string& name : {model(), std::string("/nonexistent.gguf")}) {
    expect_one_line_error(
        fathom({"run", name, "-p", "a", "--profile", "--depths", "4,8", "-c", "4"}), 2, problem);
  }
}

TEST_F(Cli, JsonIsHonouredOrRefused) {
  expect_one_line_error(fathom({"tokenize", model(), "-p", "a", "--ids", "--json"}), 2, "--ids");
  expect_one_line_error(fathom({"bench", model(), "--json", "-o", "csv"}), 2, "-o csv");
  const Json json = document(fathom({"synth", "--list", "--json"}));
  EXPECT_TRUE(json["summary"]["shapes"][0]["n_layers"].is_number_integer());
  EXPECT_FALSE(json["summary"]["types"].empty());
}

TEST_F(Cli, FailuresAndTheirStatus) {
  expect_one_line_error(fathom({"run", model(), "-f", "/nonexistent"}), 1, "/nonexistent");
  expect_one_line_error(fathom({"run", "/dev/null", "-p", "a"}), 1, "/dev/null");
  expect_one_line_error(fathom({"run", folder_, "-p", "a"}), 1, "is a folder");
  const Finished abacus = fathom({"run", model(), "-p", "a", "--backend", "abacus"});
  expect_one_line_error(abacus, 3, "abacus");
  EXPECT_THAT(abacus.err, Not(HasSubstr(FATHOM_PROGRAM ";"))) << "the program is no folder";
}

// The library is there, its device is not; only `doctor` has something to print besides.
TEST_F(Cli, ABackendWithoutItsDeviceIsSaidAtOnce) {
  const std::string problem = "no abacus can be used";
  const std::vector<std::string> backend{"--backend", "nodevice", "--backend-dir",
                                         FATHOM_TEST_BACKENDS};
  const auto with_backend = [&](std::vector<std::string> command) {
    command.insert(command.end(), backend.begin(), backend.end());
    return fathom(command);
  };
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"run", model(), "-p", "a"},
        {"bench", model()},
        {"inspect", model()},
        {"perplexity", model(), "-f", std::string(FATHOM_SOURCE_DIR) + "/README.md"}}) {
    expect_one_line_error(with_backend(command), 3, problem);
  }
  const Finished doctor = with_backend({"doctor", "--no-bandwidth"});
  EXPECT_EQ(doctor.status, 3);
  EXPECT_THAT(doctor.out, HasSubstr(problem));
  EXPECT_THAT(doctor.err, HasSubstr(problem));
  const Finished json = with_backend({"doctor", "--no-bandwidth", "--json"});
  EXPECT_EQ(json.status, 3);
  EXPECT_THAT(json.out, HasSubstr(problem));
}

// 3 GB of address space hold 11 stacks of 256 MB.
TEST_F(Cli, MoreThreadsThanTheMachineGives) {
  FATHOM_SKIP_UNDER_SANITIZERS();
  const std::string limited = "ulimit -s 262144; ulimit -v 3000000; exec " FATHOM_PROGRAM " run " +
                              model() + " -p a -n 1 -t 16";
  expect_one_line_error(run_program({"/bin/sh", "-c", limited}), 3, "16 threads are wanted");
}

// 500 threads a core would spin for minutes.
TEST_F(Cli, MoreThreadsThanMakeSense) {
  if (ThreadPool::max_threads() >= 1000) GTEST_SKIP() << "this machine has cores for them";
  const std::string problem =
      fmt::format("found 1000, expected 0 (all cores) to {}", ThreadPool::max_threads());
  const std::string written = folder_ / "threads.gguf";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"run", model(), "-p", "a"},
        {"bench", model()},
        {"perplexity", model(), model()},
        {"synth", written, "--shape", "tiny-llama"},
        {"doctor"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"-t", "1000"});
    expect_one_line_error(fathom(arguments), 2, problem);
  }
  EXPECT_FALSE(std::filesystem::exists(written));
  EXPECT_EQ(fathom({"run", model(), "-p", "a", "-n", "1", "-t", "16"}).status, 0);
}

// A terminal's view: everything that the program wrote to it.
std::string on_terminal(const std::vector<std::string>& command, bool no_color) {
  int master = -1;
  const pid_t pid = forkpty(&master, nullptr, nullptr, nullptr);
  if (pid == 0) {
    setenv("TERM", "xterm", 1);
    setenv("FATHOM_CACHE", "/nonexistent", 1);
    if (no_color) {
      setenv("NO_COLOR", "1", 1);
    } else {
      unsetenv("NO_COLOR");
    }
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(master, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  close(master);
  waitpid(pid, nullptr, 0);
  return text;
}

TEST_F(Cli, ColourOnATerminalAndNeverWithNoColor) {
  const std::vector<std::string> command{FATHOM_PROGRAM, "inspect", model()};
  EXPECT_THAT(on_terminal(command, false), HasSubstr("\x1b[1m"));
  EXPECT_THAT(on_terminal(command, true), Not(HasSubstr("\x1b[1m")));
}

}  // namespace
}  // namespace fathom::test
