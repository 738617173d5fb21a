// SPDX-License-Identifier: Apache-2.0
// `run`: text on stdout and figures on stderr, prompts, sampling, and every way in which generation
// ends.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/e2e/cli_fixture.hpp"
#include "tests/support/edited_gguf.hpp"
#include "tests/support/sanitizer.hpp"

namespace fathom::test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST_F(Cli, RunPutsTextOnStdoutAndFiguresOnStderr) {
  const Finished run = fathom({"run", model(), "-p", "Hello world", "-n", "16", "--ignore-eos"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(Not(IsEmpty()), EndsWith("\n"), Not(HasSubstr("tok/s")),
                             Not(HasSubstr("Hello world"))));
  EXPECT_THAT(run.err, AllOf(HasSubstr("16 tokens"), HasSubstr("tok/s"), HasSubstr("ms/token"),
                             HasSubstr("GB/s"), HasSubstr("logits "), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(fathom({"run", model(), "-p", "Hello world", "-n", "1"}).err, HasSubstr("1 token;"));
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
  EXPECT_THAT(run.err, HasSubstr(" token"));  // one or more
}

// The tiny model with a longer context, which then needs no warning.
EditedGguf with_context(const std::string& model, uint32_t n_ctx) {
  GgufEdit edit;
  edit.without_keys = {"llama.context_length"};
  edit.add_keys = [=](gguf::Writer& w) { w.add_u32("llama.context_length", n_ctx); };
  return {model, edit};
}

// The reference backend takes minutes for this prompt; the model and the tokens take milliseconds.
TEST_F(Cli, CtrlCEndsThePrefill) {
  const EditedGguf deep = with_context(model(), 1 << 18);
  const std::string text = folder_ / "prompt_160k.txt";
  {
    std::ofstream file(text);
    for (int i = 0; i < 20000; ++i) file << "words and ";
  }
  RunOptions options;
  options.interrupt_after = std::chrono::milliseconds(1000);
  options.timeout = std::chrono::seconds(20);
  const auto start = std::chrono::steady_clock::now();
  const Finished run =
      fathom({"run", deep.path(), "-f", text, "-c", "262144", "--backend", "reference"}, options);
  EXPECT_GE(std::chrono::steady_clock::now() - start, options.interrupt_after);
  expect_one_line_error(run, 130, "interrupted");
}

TEST_F(Cli, ACacheBeyondTheAddressSpaceIsRefused) {
  FATHOM_SKIP_UNDER_SANITIZERS();
  const EditedGguf deep = with_context(model(), 1 << 22);
  RunOptions options;
  options.address_space_limit = uint64_t{1} << 30;  // the cache takes 1.5 times as much
  const Finished run =
      fathom({"run", deep.path(), "-p", "a", "-n", "1", "-t", "1", "-c", "4194304"}, options);
  expect_one_line_error(run, 3, "MB are available: use a smaller context (-c)");
  EXPECT_EQ(
      fathom({"run", deep.path(), "-p", "a", "-n", "1", "-t", "1", "-c", "64"}, options).status, 0);
}

// No plan counts the text.
TEST_F(Cli, AFailedAllocationIsOneLine) {
  FATHOM_SKIP_UNDER_SANITIZERS();
  const std::string text = folder_ / "zeros.txt";
  std::ofstream(text).put('a');
  std::filesystem::resize_file(text, 64 << 20);
  RunOptions options;
  options.address_space_limit = uint64_t{400} << 20;  // the tokens take 1.5 GB
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"run", model(), "-f", text, "-t", "1"},
        {"tokenize", model(), "-f", text}}) {
    expect_one_line_error(fathom(command, options), 3, "out of memory");
  }
  std::filesystem::remove(text);
}

TEST_F(Cli, CtrlCEndsTheWaitForAFifo) {
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  RunOptions options;
  options.interrupt_after = std::chrono::milliseconds(700);
  options.timeout = std::chrono::seconds(20);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"run", model(), "-f", fifo, "-n", "1"},
        std::vector<std::string>{"tokenize", model(), "-f", fifo}}) {
    expect_one_line_error(fathom(arguments, options), 130, "interrupted");
  }
  // As a model it is refused at once.
  expect_one_line_error(fathom({"inspect", fifo}), 1, "not a regular file");
  unlink(fifo.c_str());
}

TEST_F(Cli, CtrlCEndsTheWaitForAReader) {
  const std::string text = folder_ / "long.txt";
  {
    std::ofstream file(text);
    for (int i = 0; i < 40000; ++i) file << "words and words ";
  }
  RunOptions options;
  options.stall_stdout = true;
  options.interrupt_after = std::chrono::milliseconds(1500);
  options.timeout = std::chrono::seconds(20);
  EXPECT_EQ(fathom({"tokenize", model(), "-f", text}, options).status, 130);
}

TEST_F(Cli, AFileSizeLimitIsAnErrorAndLeavesNothing) {
  RunOptions options;
  options.file_size_limit = 20000;
  const std::string out = folder_ / "limited.gguf";
  const Finished run = fathom({"synth", out, "--shape", "tiny-llama", "--type", "f32"}, options);
  EXPECT_EQ(run.status, 3) << run.err;
  EXPECT_THAT(run.err, HasSubstr("File too large"));
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_THAT(entry.path().filename().string(), Not(testing::StartsWith("limited")));
  }
}

TEST_F(Cli, AClosedPipeEndsQuietly) {
  RunOptions options;
  options.close_stdout_early = true;
  const Finished run =
      fathom({"run", model(), "-p", "a", "--ignore-eos", "--backend", "reference"}, options);
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, IsEmpty());
}

}  // namespace
}  // namespace fathom::test
