// SPDX-License-Identifier: Apache-2.0
// `tokenize`: ids, pieces and offsets, the text from stdin, and bytes that no token stands for.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/cli_fixture.hpp"
#include "tests/support/edited_gguf.hpp"

namespace fathom::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

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
  RunOptions options;
  options.interrupt_after = std::chrono::milliseconds(700);
  options.timeout = std::chrono::seconds(20);
  const std::string wait = "exec 3<>" + silent + "; exec " FATHOM_PROGRAM " " + tokenize + " <&3";
  expect_one_line_error(run_program({"/bin/sh", "-c", wait}, options), 130, "interrupted");
  // A program that was started with SIGINT ignored, as a script's background job is, stays so.
  options.timeout = std::chrono::seconds(3);
  EXPECT_EQ(run_program({"/bin/sh", "-c", "trap '' INT; " + wait}, options).status, 137);
}

TEST_F(Cli, BytesWithoutATokenAreNamed) {
  // U+0107 stands for byte 7 in the vocabulary.
  const gguf::File file = gguf::File::open(model());
  const auto texts = file.find("tokenizer.ggml.tokens")->strings();
  ASSERT_TRUE(texts.has_value());
  std::vector<std::string> tokens(texts->begin(), texts->end());
  std::replace(tokens.begin(), tokens.end(), std::string("\u0107"), std::string("gone"));
  GgufEdit edit;
  edit.without_keys = {"tokenizer.ggml.tokens"};
  edit.add_keys = [&](gguf::Writer& w) { w.add_array("tokenizer.ggml.tokens", tokens); };
  const EditedGguf lacking(model(), edit);
  const std::string what = "warning: 1 of the 3 bytes of the text are left out";
  const Finished tokenize = fathom({"tokenize", lacking.path(), "-p", "a\ab", "--ids"});
  EXPECT_EQ(tokenize.status, 0) << tokenize.err;
  EXPECT_THAT(tokenize.err, HasSubstr(what));
  EXPECT_THAT(fathom({"run", lacking.path(), "-p", "a\ab", "-n", "1"}).err, HasSubstr(what));
  EXPECT_THAT(fathom({"tokenize", model(), "-p",
                      "a\xff"
                      "b",
                      "--ids"})
                  .err,
              IsEmpty());
}

}  // namespace
}  // namespace fathom::test
