// SPDX-License-Identifier: Apache-2.0
// `perplexity`: stored logits as a base for the divergence, and what storing them never replaces.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/e2e/cli_fixture.hpp"

namespace fathom::test {
namespace {

namespace fs = std::filesystem;

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

}  // namespace
}  // namespace fathom::test
