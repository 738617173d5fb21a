// SPDX-License-Identifier: Apache-2.0
// The program as scripts see it: exit status, what goes to stdout and what to stderr, on a tiny
// synthetic model. One test with a real terminal checks colour and the progress bar.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <sstream>

#include "base/json.hpp"
#include "tests/support/edited_gguf.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/program.hpp"

namespace fathom::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

size_t line_count(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

class Cli : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::temp_directory_path() / ("fathom_cli_test." + std::to_string(getpid()));
    fs::create_directories(folder_);
    const Finished made = run_program(
        {FATHOM_PROGRAM, "synth", model(), "--shape", "tiny-llama", "--type", "q8_0", "-q"});
    ASSERT_EQ(made.status, 0) << made.err;
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }

  static std::string model() { return folder_ / "tiny.gguf"; }

  static Finished fathom(std::vector<std::string> arguments, RunOptions options = {}) {
    arguments.insert(arguments.begin(), FATHOM_PROGRAM);
    options.environment.push_back("FATHOM_CACHE=" + folder_.string());
    options.environment.push_back("HOME=" + folder_.string());
    return run_program(arguments, options);
  }

  static void expect_one_line_error(const Finished& run, int status, const std::string& part) {
    EXPECT_EQ(run.status, status) << run.err;
    EXPECT_THAT(run.out, IsEmpty());
    EXPECT_THAT(run.err, AllOf(StartsWith("fathom"), HasSubstr(part)));
    EXPECT_EQ(line_count(run.err), 1u) << run.err;
  }

  static Json document(const Finished& run) {
    const Json json = parse_json(run.out, "stdout");
    EXPECT_THAT(result_problems(json), IsEmpty());
    bool trusted = true;
    for (const Json& gate : json["gates"]) trusted = trusted && gate["pass"].get<bool>();
    EXPECT_EQ(run.status, trusted ? 0 : 4) << run.err;
    return json;
  }

  static inline fs::path folder_;
};

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
                        "f16, bf16, f32 or q8_0");
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
  for (const char* chunks : {"0", "-2"}) {
    expect_one_line_error(fathom({"perplexity", model(), model(), "--chunks", chunks}), 2,
                          "--chunks " + std::string(chunks) + ": expected 1 or more");
  }
}

TEST_F(Cli, JsonIsHonouredOrRefused) {
  expect_one_line_error(fathom({"tokenize", model(), "-p", "a", "--ids", "--json"}), 2, "--ids");
  expect_one_line_error(fathom({"bench", model(), "--json", "-o", "csv"}), 2, "-o csv");
  const Json json = document(fathom({"synth", "--list", "--json"}));
  EXPECT_TRUE(json["summary"]["shapes"][0]["n_layers"].is_number_integer());
  EXPECT_FALSE(json["summary"]["types"].empty());
}

// What a file says reaches the terminal escaped: no line break, no control sequence.
TEST_F(Cli, TextOfAFileIsEscaped) {
  const std::string hostile = "x\x1b[31m\ny", shown = "x\\x1b[31m\\x0ay";
  const auto with = [&](std::set<std::string> without, const std::string& key) {
    GgufEdit edit;
    edit.without_keys = std::move(without);
    edit.add_keys = [=](gguf::Writer& writer) { writer.add_string(key, hostile); };
    return edit;
  };
  const EditedGguf architecture(model(), with({"general.architecture"}, "general.architecture"));
  const EditedGguf key(model(), with({}, "llama." + hostile));
  const EditedGguf scaling(model(), with({}, "llama.rope.scaling.type"));
  for (const EditedGguf* file : {&architecture, &key, &scaling}) {
    expect_one_line_error(fathom({"run", file->path(), "-p", "a"}), 1, shown);
    const Finished inspect = fathom({"inspect", file->path()});
    EXPECT_EQ(inspect.status, 0) << inspect.err;
    EXPECT_THAT(inspect.out, AllOf(HasSubstr(shown), Not(HasSubstr("\x1b"))));
    EXPECT_THAT(inspect.out, Not(HasSubstr("[31m\n")));
  }
  const EditedGguf name(model(), with({"general.name"}, "general.name"));
  const Finished bench = fathom({"bench", name.path(), "-p", "0", "-n", "1", "-r", "1", "-q"});
  EXPECT_THAT(bench.out, AllOf(HasSubstr(shown), Not(HasSubstr("\x1b"))));
}

TEST_F(Cli, LogitsThatAreNotFiniteEndWithStatus1) {
  const std::string damaged = folder_ / "nan.gguf", text = folder_ / "nan.txt";
  // f32: rounding to int8 would turn NaN into zero.
  ASSERT_EQ(fathom({"synth", damaged, "--shape", "tiny-llama", "--type", "f32", "-q"}).status, 0);
  {
    const gguf::File file = gguf::File::open(damaged);
    const gguf::TensorInfo* norm = file.find_tensor("output_norm.weight");
    ASSERT_NE(norm, nullptr);
    // Where the file holds these values, which are random and so occur once.
    const auto all = gguf::File::open(damaged).file_bytes();
    std::string text_of_file(all, '\0');
    std::ifstream(damaged, std::ios::binary).read(text_of_file.data(), std::streamoff(all));
    const auto values = file.data(*norm);
    const auto offset = static_cast<std::streamoff>(text_of_file.find(
        std::string_view(reinterpret_cast<const char*>(values.data()), values.size())));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::fstream bytes(damaged, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(offset);
    bytes.write(reinterpret_cast<const char*>(&nan), sizeof nan);
    std::ofstream words(text);
    for (int i = 0; i < 60; ++i) words << "line " << i << " of a text with some words\n";
  }
  const std::string found = "are not finite";
  expect_one_line_error(fathom({"run", damaged, "-p", "a", "-q"}), 1, "the logits at position ");
  expect_one_line_error(fathom({"run", damaged, "-p", "a", "--temp", "1", "-q"}), 1, found);
  expect_one_line_error(fathom({"perplexity", damaged, text, "-c", "64", "-q"}), 1, found);
  expect_one_line_error(fathom({"bench", damaged, "-p", "0", "-n", "1", "-q"}), 1, found);
  expect_one_line_error(fathom({"bench", damaged, "--profile", "--depths", "16", "-q"}), 1, found);
}

TEST_F(Cli, StdinThatCannotBeReadIsAnError) {
  const auto in_shell = [&](const std::string& line) {
    return run_program({"/bin/sh", "-c", "exec " FATHOM_PROGRAM " " + line});
  };
  const std::string tokenize = "tokenize --stdin " + model();
  expect_one_line_error(in_shell(tokenize + " < /"), 1, "cannot read stdin: Is a directory");
  expect_one_line_error(in_shell(tokenize + " <&-"), 1, "cannot read stdin: Bad file descriptor");
  // A pipe that the shell holds open and never writes to.
  const std::string silent = folder_ / "silent";
  ASSERT_EQ(mkfifo(silent.c_str(), 0600), 0);
  expect_one_line_error(run_program({"/bin/sh", "-c",
                                     "exec 3<>" + silent + "; " FATHOM_PROGRAM " " + tokenize +
                                         " <&3 & sleep 0.5; kill -INT $!; wait $!"}),
                        130, "interrupted");
}

TEST_F(Cli, BytesWithoutATokenAreNamed) {
  const gguf::File file = gguf::File::open(model());
  const auto texts = file.find("tokenizer.ggml.tokens")->strings();
  ASSERT_TRUE(texts.has_value());
  std::vector<std::string> tokens(texts->begin(), texts->end());
  std::replace(tokens.begin(), tokens.end(), std::string("\u00ff"), std::string("gone"));
  GgufEdit edit;
  edit.without_keys = {"tokenizer.ggml.tokens"};
  edit.add_keys = [&](gguf::Writer& w) { w.add_array("tokenizer.ggml.tokens", tokens); };
  const EditedGguf lacking(model(), edit);
  const std::string what = "warning: 1 of the 3 bytes of the text are left out";
  const Finished tokenize = fathom({"tokenize", lacking.path(), "-p",
                                    "a\xff"
                                    "b",
                                    "--ids"});
  EXPECT_EQ(tokenize.status, 0) << tokenize.err;
  EXPECT_THAT(tokenize.err, HasSubstr(what));
  EXPECT_THAT(fathom({"run", lacking.path(), "-p",
                      "a\xff"
                      "b",
                      "-n", "1"})
                  .err,
              HasSubstr(what));
  EXPECT_THAT(fathom({"tokenize", model(), "-p",
                      "a\xff"
                      "b",
                      "--ids"})
                  .err,
              IsEmpty());
}

TEST_F(Cli, FailuresAndTheirStatus) {
  expect_one_line_error(fathom({"run", model(), "-f", "/nonexistent"}), 1, "/nonexistent");
  expect_one_line_error(fathom({"run", "/dev/null", "-p", "a"}), 1, "/dev/null");
  expect_one_line_error(fathom({"run", folder_, "-p", "a"}), 1, "is a folder");
  const Finished abacus = fathom({"run", model(), "-p", "a", "--backend", "abacus"});
  expect_one_line_error(abacus, 3, "abacus");
  EXPECT_THAT(abacus.err, Not(HasSubstr(FATHOM_PROGRAM ";"))) << "the program is no folder";
}

// 3 GB of address space hold the stacks of some hundred threads.
TEST_F(Cli, MoreThreadsThanTheMachineGives) {
  const std::string limited = "ulimit -s 8192; ulimit -v 3000000; exec " FATHOM_PROGRAM " run " +
                              model() + " -p a -n 1 -t 1024";
  expect_one_line_error(run_program({"/bin/sh", "-c", limited}), 3, "1024 threads are wanted");
}

TEST_F(Cli, SynthReplacesOnlyRegularFiles) {
  const std::string pipe = folder_ / "pipe", subfolder = folder_ / "subfolder";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  fs::create_directories(subfolder);
  for (const std::string& out : {pipe, subfolder}) {
    expect_one_line_error(fathom({"synth", out, "--shape", "tiny-llama"}), 1, out + ": found");
  }
  EXPECT_TRUE(fs::is_fifo(pipe));
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_NE(entry.path().extension(), ".partial") << entry.path();
  }
}

TEST_F(Cli, AMissingModelSaysWhereItLooked) {
  expect_one_line_error(fathom({"run", "nothing", "-p", "a"}), 1,
                        "looked for nothing, " + folder_.string() + "/nothing, " +
                            folder_.string() + "/nothing.gguf");
}

TEST_F(Cli, AModelIsFoundByNameInTheCache) {
  const Finished by_name = fathom({"tokenize", "tiny", "--ids", "-p", "hello"});
  EXPECT_EQ(by_name.status, 0) << by_name.err;
  EXPECT_EQ(by_name.out, fathom({"tokenize", model(), "--ids", "-p", "hello"}).out);
}

TEST_F(Cli, RunPutsTextOnStdoutAndFiguresOnStderr) {
  const Finished run = fathom({"run", model(), "-p", "Hello world", "-n", "16", "--ignore-eos"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(Not(IsEmpty()), EndsWith("\n"), Not(HasSubstr("tok/s")),
                             Not(HasSubstr("Hello world"))));
  EXPECT_THAT(run.err, AllOf(HasSubstr("16 tokens"), HasSubstr("tok/s"), HasSubstr("ms/token"),
                             HasSubstr("GB/s"), HasSubstr("logits "), Not(HasSubstr("\x1b"))));
  const Finished quiet =
      fathom({"run", model(), "-p", "Hello world", "-n", "16", "--ignore-eos", "-q"});
  EXPECT_EQ(quiet.out, run.out) << "greedy text repeats";
  EXPECT_THAT(quiet.err, IsEmpty());
  const Finished echo =
      fathom({"run", model(), "-p", "Hello world", "-n", "16", "--ignore-eos", "-q", "--echo"});
  EXPECT_EQ(echo.out, "Hello world" + run.out);
}

TEST_F(Cli, ThePromptComesFromFlagFileOrStdin) {
  const std::string file = folder_ / "prompt.txt";
  std::ofstream(file) << "Some words";
  const std::vector<std::string> tail{"-n", "8", "--ignore-eos", "-q"};
  const auto with = [&](std::vector<std::string> prompt, const std::string& in = "") {
    std::vector<std::string> arguments{"run", model()};
    arguments.insert(arguments.end(), prompt.begin(), prompt.end());
    arguments.insert(arguments.end(), tail.begin(), tail.end());
    RunOptions options;
    options.in = in;
    const Finished run = fathom(arguments, options);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.out;
  };
  const std::string expected = with({"-p", "Some words"});
  EXPECT_EQ(with({"-f", file}), expected);
  EXPECT_EQ(with({"-f", "-"}, "Some words"), expected);
  EXPECT_EQ(with({"-p", "-"}, "Some words"), expected);
  EXPECT_NE(with({"-p", "Other text"}), expected);
}

TEST_F(Cli, SamplingRepeatsByItsSeed) {
  const auto text = [&](const std::string& seed) {
    return fathom({"run",
                   model(),
                   "-p",
                   "x",
                   "-n",
                   "24",
                   "--ignore-eos",
                   "-q",
                   "--temp",
                   "1",
                   "--top-k",
                   "50",
                   "--top-p",
                   "0.95",
                   "--min-p",
                   "0.01",
                   "--repeat-penalty",
                   "1.1",
                   "--repeat-last-n",
                   "-1",
                   "-s",
                   seed})
        .out;
  };
  EXPECT_EQ(text("7"), text("7"));
  EXPECT_NE(text("7"), text("8"));
}

TEST_F(Cli, LogitBiasForbidsAToken) {
  const auto first_token = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"run", model(), "-p",           "x",
                                       "-n",  "1",     "--ignore-eos", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return document(fathom(arguments))["summary"]["tokens"][0].get<int>();
  };
  const int best = first_token({});
  EXPECT_NE(first_token({"--logit-bias", std::to_string(best) + "-inf"}), best);
  EXPECT_EQ(first_token({"--logit-bias", "5+1000"}), 5);
}

TEST_F(Cli, APromptLongerThanTheContextIsAnError) {
  std::string words;
  for (int i = 0; i < 200; ++i) words += "many words ";
  const Finished run = fathom({"run", model(), "-p", words, "-c", "32", "-n", "4"});
  expect_one_line_error(run, 2, "32");
}

TEST_F(Cli, GenerationEndsWhenTheContextIsFull) {
  const Finished run = fathom({"run", model(), "-p", "a", "-c", "32", "--ignore-eos"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("context of 32 tokens is full"));
}

TEST_F(Cli, CtrlCStopsWith130AndFigures) {
  RunOptions options;
  options.interrupts = 1;
  const Finished run =
      fathom({"run", model(), "-p", "a", "--ignore-eos", "--backend", "reference"}, options);
  EXPECT_EQ(run.status, 130) << run.err;
  EXPECT_THAT(run.out, EndsWith("\n"));
  EXPECT_THAT(run.err, HasSubstr("tokens"));
}

TEST_F(Cli, AClosedPipeEndsQuietly) {
  RunOptions options;
  options.close_stdout_early = true;
  const Finished run =
      fathom({"run", model(), "-p", "a", "--ignore-eos", "--backend", "reference"}, options);
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, IsEmpty());
}

TEST_F(Cli, TokenizeShowsIdsPiecesAndOffsets) {
  const Finished ids = fathom({"tokenize", model(), "--ids", "-p", "Hello world"});
  EXPECT_EQ(ids.status, 0) << ids.err;
  EXPECT_THAT(ids.err, IsEmpty());
  EXPECT_TRUE(std::regex_match(ids.out, std::regex("[0-9]+( [0-9]+)*\n"))) << ids.out;

  RunOptions from_stdin;
  from_stdin.in = "Hello world";
  EXPECT_EQ(fathom({"tokenize", model(), "--ids", "--stdin"}, from_stdin).out, ids.out);

  const Json json = document(fathom({"tokenize", model(), "--json", "-p", "Hello world"}));
  std::string text;
  std::ostringstream listed;
  size_t at = 0;
  for (const Json& token : json["summary"]["tokens"]) {
    if (listed.tellp() > 0) listed << ' ';
    listed << token["id"].get<int>();
    if (token["control"].get<bool>()) continue;
    EXPECT_EQ(token["begin"].get<size_t>(), at);
    at = token["end"].get<size_t>();
    text += token["piece"].get<std::string>();
  }
  EXPECT_EQ(text, "Hello world");
  EXPECT_EQ(listed.str() + "\n", ids.out);
  expect_one_line_error(fathom({"tokenize", model()}), 2, "-p TEXT");
}

TEST_F(Cli, InspectNamesKernelsAndCacheBytes) {
  const Finished table = fathom({"inspect", model()});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("Q8_0"), HasSubstr("general.architecture"),
                               HasSubstr("a token"), HasSubstr("int8 activations")));
  const Json json = document(fathom({"inspect", model(), "--json", "-ctk", "f32", "-ctv", "f32"}));
  const Json& summary = json["summary"];
  ASSERT_TRUE(summary["servable"].get<bool>());
  const Json& m = summary["model"];
  EXPECT_EQ(summary["cache"]["bytes_per_token"].get<int64_t>(),
            m["n_layers"].get<int64_t>() * m["n_kv_heads"].get<int64_t>() *
                m["head_dim"].get<int64_t>() * 2 * 4);
  for (const Json& tensor : summary["tensors"]) {
    EXPECT_TRUE(tensor["kernel"].is_string()) << dump_json(tensor);
  }
}

TEST_F(Cli, BenchPrintsRowsInFiveFormats) {
  const auto bench = [&](const std::string& format) {
    const Finished run = fathom({"bench", model(), "-p", "16", "-n", "4", "-pg", "8,2", "-d",
                                 "0,32", "-r", "2", "--no-warmup", "-o", format});
    EXPECT_THAT(run.status, testing::AnyOf(0, 4)) << run.err;
    return run.out;
  };
  const Json rows = parse_json(bench("json"), "rows");
  ASSERT_EQ(rows.size(), 6u);  // (pp, tg, pg) at two depths
  for (const Json& row : rows) {
    EXPECT_EQ(row["samples_ns"].size(), 2u);
    EXPECT_GT(row["avg_ts"].get<double>(), 0);
    EXPECT_GT(row["peak_gbps"].get<double>(), 0);
    EXPECT_GT(row["gbps"].get<double>(), 0);
    EXPECT_EQ(row["logits_hash"].get<std::string>().size(), 16u);
  }
  EXPECT_EQ(line_count(bench("jsonl")), 6u);
  EXPECT_EQ(line_count(bench("csv")), 7u);
  EXPECT_THAT(bench("sql"), HasSubstr("INSERT INTO llama_bench"));
  EXPECT_THAT(bench("md"),
              AllOf(HasSubstr(" pp16 |"), HasSubstr("pp8+tg2 @ d32"), HasSubstr("t/s")));
}

TEST_F(Cli, BenchGivesTheSameLogitsForAnyThreadsAndPages) {
  const auto hash = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"bench", model(), "-p", "0",  "-n",   "8",          "-d",
                                       "40",    "-r",    "2",  "-o", "json", "--no-warmup"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return parse_json(fathom(arguments).out, "rows")[0]["logits_hash"].get<std::string>();
  };
  const std::string one = hash({"-t", "1"});
  EXPECT_EQ(hash({"-t", "2"}), one);
  EXPECT_EQ(hash({"--page-tokens", "16"}), one);
  EXPECT_EQ(hash({"-ub", "7"}), one);
  EXPECT_NE(hash({"--seed", "2"}), one);
}

TEST_F(Cli, BenchDocumentHasSamplesOrderAndGates) {
  const Json json = document(fathom({"bench", model(), "-p", "8", "-n", "4", "-r", "3", "--json"}));
  size_t tests = 0, ceilings = 0;
  for (const Json& sample : json["samples"]) {
    (sample["arm"] == "ceiling" ? ceilings : tests) += 1;
  }
  EXPECT_EQ(tests, 6u);
  EXPECT_EQ(ceilings, 3u);
  EXPECT_EQ(json["summary"]["orders"][0].size(), 3u);
  std::vector<std::string> ids;
  for (const Json& gate : json["gates"]) {
    ids.push_back(gate["id"].get<std::string>());
    EXPECT_TRUE(ids.back() != "output_hash" || gate["pass"].get<bool>());
  }
  EXPECT_THAT(ids, testing::UnorderedElementsAre("output_hash", "output_hash", "ceiling"));
}

TEST_F(Cli, ProfileAddsUpAndHasBothDepths) {
  // Of a size whose steps take milliseconds, so that what lies between the ops is small beside
  // them.
  const std::string large = folder_ / "profile.gguf";
  const Finished made = fathom({"synth", large, "--shape", "smollm2-135m", "--type", "q4_0", "-q"});
  ASSERT_EQ(made.status, 0) << made.err;
  const Json json =
      document(fathom({"bench", large, "--profile", "--depths", "16,200", "--json", "-t", "1"}));
  const Json& profile = json["summary"]["profile"];
  ASSERT_EQ(profile["depths"].size(), 2u);
  EXPECT_EQ(profile["depths"][0]["depth"], 16);
  EXPECT_EQ(profile["depths"][1]["depth"], 200);
  std::vector<Json> additivity;
  for (const Json& gate : json["gates"]) {
    if (gate["id"] == "additivity") additivity.push_back(gate);
  }
  int64_t attention_bytes[2] = {0, 0};
  for (size_t d = 0; d < 2; ++d) {
    const Json& depth = profile["depths"][d];
    double sum = 0;
    std::vector<std::string> ops;
    for (const Json& op : depth["ops"]) {
      ops.push_back(op["op"].get<std::string>());
      EXPECT_GT(op["ns"].get<double>(), 0) << ops.back();
      sum += op["ns"].get<double>();
      if (op["op"] == "attn") attention_bytes[d] = op["bytes"].get<int64_t>();
    }
    EXPECT_NEAR(sum, depth["sum_ns"].get<double>(), 1);
    const double wall = depth["wall_ns"].get<double>();
    EXPECT_NEAR(depth["difference_ns"].get<double>(), wall - sum, 1);
    EXPECT_LE(sum, wall * 1.0001);
    EXPECT_GE(sum, wall * 0.95);
    // Against steps that nobody watched, which know nothing of the ops.
    EXPECT_GE(sum, depth["untraced_ns"].get<double>() * 0.7);
    EXPECT_THAT(ops, testing::UnorderedElementsAre("embed", "norm_qkv_rope_append", "attn",
                                                   "out_proj_residual", "norm_gate_up_act",
                                                   "down_proj_residual", "norm_head", "sample"));
    const double limit_us = std::max(0.02 * wall, 10e3) * 1e-3;
    ASSERT_LT(d, additivity.size());
    EXPECT_NEAR(additivity[d]["value"].get<double>(), (wall - sum) * 1e-3, 1e-3);
    EXPECT_NEAR(additivity[d]["limit"].get<double>(), limit_us, 1e-3);
    EXPECT_EQ(additivity[d]["pass"].get<bool>(), (wall - sum) * 1e-3 <= limit_us);
  }
  EXPECT_EQ(additivity.size(), 2u);
  // The step's own token counts: depth + 1 tokens are read.
  ASSERT_GT(attention_bytes[0], 0);
  EXPECT_EQ(attention_bytes[1] * 17, attention_bytes[0] * 201);

  const Finished table = fathom({"bench", model(), "--profile", "--depths", "16,200", "-t", "1"});
  EXPECT_THAT(table.out, AllOf(HasSubstr("attn"), HasSubstr("sample"), HasSubstr("ms @16"),
                               HasSubstr("growth ms"), HasSubstr("sum of the ops"),
                               HasSubstr("wall time"), HasSubstr("difference")));
}

TEST_F(Cli, RunProfileNeedsRoomForItsDepths) {
  expect_one_line_error(fathom({"run", model(), "-p", "a", "-n", "1", "-q", "-c", "64", "--profile",
                                "--depths", "16,100", "--json"}),
                        2, "-c 101");
}

TEST_F(Cli, PerplexityAgainstItsOwnLogitsIsZeroDivergence) {
  const std::string text = folder_ / "text.txt", base = folder_ / "base.logits";
  {
    std::ofstream out(text);
    for (int i = 0; i < 60; ++i) out << "line " << i << " of a text with some words\n";
  }
  const Json first =
      document(fathom({"perplexity", model(), text, "-c", "64", "--save-base", base, "--json"}));
  EXPECT_GT(first["summary"]["perplexity"].get<double>(), 1);
  const int64_t windows = first["summary"]["windows"].get<int64_t>();
  EXPECT_EQ(first["summary"]["scored_tokens"].get<int64_t>(), windows * (64 - 32 - 1));

  const Json again =
      document(fathom({"perplexity", model(), text, "-c", "64", "--base", base, "--json"}));
  EXPECT_EQ(again["summary"]["perplexity"], first["summary"]["perplexity"]);
  EXPECT_NEAR(again["summary"]["kl"]["mean"].get<double>(), 0, 1e-12);
  EXPECT_EQ(again["summary"]["top1_agreement_pct"].get<double>(), 100);

  const Json other = document(fathom(
      {"perplexity", model(), text, "-c", "64", "--base", base, "--activations", "f32", "--json"}));
  EXPECT_GT(other["summary"]["kl"]["mean"].get<double>(), 0);

  expect_one_line_error(fathom({"perplexity", model(), text, "-c", "32", "--base", base, "-q"}), 1,
                        "another text");
  expect_one_line_error(fathom({"perplexity", model(), text, "--base", text, "-c", "64", "-q"}), 1,
                        "--save-base");
  expect_one_line_error(fathom({"perplexity", model(), text, "-c", "2000", "-q"}), 2, "tokens");
}

TEST_F(Cli, SaveBaseNeverReplacesWhatTheRunReads) {
  const std::string text = folder_ / "words.txt", base = folder_ / "kept.logits";
  {
    std::ofstream out(text);
    for (int i = 0; i < 60; ++i) out << "line " << i << " of a text with some words\n";
  }
  const std::vector<std::string> command{"perplexity", model(), text, "-c", "64", "-q"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), command.begin(), command.end());
    return fathom(more);
  };
  ASSERT_EQ(with({"--save-base", base}).status, 0);
  const auto bytes = fs::file_size(base);
  fs::create_hard_link(base, folder_ / "other_name.logits");
  for (const std::string& same : {base, (folder_ / "other_name.logits").string()}) {
    expect_one_line_error(with({"--base", base, "--save-base", same}), 2,
                          "the same file as --base");
  }
  expect_one_line_error(with({"--save-base", text}), 2, "the same file as the text");
  expect_one_line_error(with({"--save-base", model()}), 2, "the same file as the model");
  expect_one_line_error(with({"--save-base", "/dev/null"}), 1, "/dev/null: found");
  EXPECT_EQ(fs::file_size(base), bytes);

  // A run that fails after it began to store: the base is cut short.
  const std::string cut = folder_ / "cut.logits", unfinished = folder_ / "unfinished.logits";
  fs::copy_file(base, cut);
  fs::resize_file(cut, bytes - 4);
  expect_one_line_error(with({"--base", cut, "--save-base", unfinished}), 1, "ends too early");
  EXPECT_FALSE(fs::exists(unfinished));
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_NE(entry.path().extension(), ".partial") << entry.path();
  }
}

TEST_F(Cli, DoctorMeasuresAndRunUsesIt) {
  const Json json = document(fathom({"doctor", "--json", "-t", "1"}));
  const double gbps = json["summary"]["read_gbps"]["median"].get<double>();
  EXPECT_GT(gbps, 0.1);
  const auto expect_doctors_ceiling = [&] {
    const Json run = document(
        fathom({"run", model(), "-p", "a", "-n", "8", "--ignore-eos", "-t", "1", "--json"}));
    EXPECT_EQ(run["summary"]["run"]["peak_gbps"].get<double>(), gbps);
  };
  expect_doctors_ceiling();
  // bench and --profile take ceilings of their own and leave doctor's alone.
  document(fathom({"bench", model(), "-p", "0", "-n", "4", "-r", "1", "-t", "1", "--json"}));
  expect_doctors_ceiling();
  document(fathom({"bench", model(), "--profile", "--depths", "8", "-t", "1", "--json"}));
  expect_doctors_ceiling();
  const Finished run = fathom({"run", model(), "-p", "a", "-n", "8", "--ignore-eos", "-t", "1"});
  EXPECT_THAT(run.err, HasSubstr(fmt::format("% of the {:.1f} GB/s measured here", gbps)));
  const Finished table = fathom({"doctor", "--no-bandwidth"});
  EXPECT_THAT(table.out, AllOf(HasSubstr("CPU"), HasSubstr("remedy"), Not(HasSubstr("\x1b"))));
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
