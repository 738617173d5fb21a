// SPDX-License-Identifier: Apache-2.0
// What the tests of the program share: a tiny synthetic model in a folder of their own, and what
// every command holds to: one line of error, data alone on stdout, documents that fit the schema.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/program.hpp"

namespace fathom::test {

inline size_t line_count(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

class Cli : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ =
        std::filesystem::temp_directory_path() / ("fathom_cli_test." + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    const Finished made = run_program(
        {FATHOM_PROGRAM, "synth", model(), "--shape", "tiny-llama", "--type", "q8_0", "-q"});
    ASSERT_EQ(made.status, 0) << made.err;
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

  static std::string model() { return folder_ / "tiny.gguf"; }

  static Finished fathom(std::vector<std::string> arguments, RunOptions options = {}) {
    arguments.insert(arguments.begin(), FATHOM_PROGRAM);
    options.environment.push_back("FATHOM_CACHE=" + folder_.string());
    options.environment.push_back("HOME=" + folder_.string());
    return run_program(arguments, options);
  }

  static RunOptions input(std::string text) {
    RunOptions options;
    options.in = std::move(text);
    return options;
  }

  static void expect_one_line_error(const Finished& run, int status, const std::string& part) {
    EXPECT_EQ(run.status, status) << run.err;
    EXPECT_THAT(run.out, testing::IsEmpty());
    EXPECT_THAT(run.err, testing::AllOf(testing::StartsWith("fathom"), testing::HasSubstr(part)));
    EXPECT_EQ(line_count(run.err), 1u) << run.err;
  }

  // `report` ends as the files that it read say, not its own document.
  static Json document_of_report(const Finished& run) {
    const Json json = parse_json(run.out, "stdout");
    EXPECT_THAT(result_problems(json), testing::IsEmpty());
    return json;
  }

  static Json document(const Finished& run) {
    const Json json = parse_json(run.out, "stdout");
    EXPECT_THAT(result_problems(json), testing::IsEmpty());
    bool trusted = true;
    for (const Json& gate : json["gates"]) trusted = trusted && gate["pass"].get<bool>();
    EXPECT_EQ(run.status, trusted ? 0 : 4) << run.err;
    return json;
  }

  static inline std::filesystem::path folder_;
};

}  // namespace fathom::test
