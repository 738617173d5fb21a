// SPDX-License-Identifier: Apache-2.0
// `bench --compare` against stored results, with times that the test sets, and `--against` another
// program.
#include <algorithm>
#include <fstream>
#include <string>

#include "tests/e2e/cli_fixture.hpp"

namespace fathom::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The lines of llama-bench's json that a comparison reads, with times of our choice.
Json rows_with(const Json& rows, double factor) {
  Json out = rows;
  for (Json& row : out) {
    for (Json& ns : row["samples_ns"]) {
      ns = static_cast<int64_t>(ns.get<double>() * factor);
    }
  }
  return out;
}

TEST_F(Cli, CompareIsHonestAboutRunsThatDidNotAlternate) {
  const std::string base = folder_ / "base.json";
  const std::vector<std::string> bench{"bench", model(), "-p", "0", "-n", "4", "-r", "5"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> command = bench;
    command.insert(command.end(), more.begin(), more.end());
    return fathom(command);
  };
  const Finished first = with({"--json"});
  document(first);
  std::ofstream(base) << first.out;
  const Finished text = with({"--compare", base});
  EXPECT_THAT(text.out, AllOf(HasSubstr("speed ratio"), HasSubstr("unpaired"),
                              HasSubstr("--against PROGRAM")));
  const Finished second = with({"--compare", base, "--json"});
  const Json json = document_of_report(second);
  const Json& comparison = json["summary"]["comparison"];
  // The machine may be slower than it was, and the status says so, after the gates.
  const auto passes = [](const Json& gate) { return gate["pass"].get<bool>(); };
  const auto is_slower = [](const Json& row) { return row["verdict"] == "slower"; };
  EXPECT_EQ(second.status, !std::ranges::all_of(json["gates"], passes)          ? 4
                           : std::ranges::any_of(comparison["rows"], is_slower) ? 1
                                                                                : 0);
  EXPECT_EQ(comparison["paired"], false);
  EXPECT_EQ(comparison["baseline_command"][1], "bench");
  EXPECT_EQ(comparison["rows"][0]["n"], Json({5, 5}));
  EXPECT_GT(comparison["rows"][0]["floor"].get<double>(), 0);

  // A hundred times as slow as what is stored; the same program, so nothing else differs.
  Json fast = parse_json(first.out, "first");
  for (Json& sample : fast["samples"]) {
    if (sample.contains("ns")) sample["ns"] = sample["ns"].get<double>() / 100;
  }
  std::ofstream(base) << dump_json(fast);
  const Json doubtful = document(with({"--compare", base, "--json"}));
  EXPECT_EQ(doubtful["summary"]["comparison"]["rows"][0]["verdict"], "cannot tell");
  EXPECT_THAT(doubtful["summary"]["comparison"]["rows"][0]["why"].get<std::string>(),
              HasSubstr("not to be trusted"))
      << "its summary is not of these samples";

  // Rows alone say nothing of the machine in between.
  const Json rows = parse_json(with({"-o", "json"}).out, "rows");
  std::ofstream(base) << dump_json(rows_with(rows, 0.01));
  const Finished plain = with({"--compare", base});
  EXPECT_THAT(plain.out, AllOf(HasSubstr("cannot tell"), HasSubstr("read ceiling in both runs")));
  std::ofstream(base) << "[]";
  expect_one_line_error(with({"--compare", base}), 1, "expected at least one");
  std::ofstream(base) << "[{\"n_prompt\": 0, \"n_gen\": 4, \"samples_ns\": [0]}]";
  expect_one_line_error(with({"--compare", base}), 1, "expected more than 0");
  expect_one_line_error(with({"--compare", folder_ / "none.json"}), 1, "none.json");
}

TEST_F(Cli, AgainstRunsTwoProgramsInTurns) {
  const Finished run = fathom({"bench", model(), "-p", "0", "-n", "2,4", "-r", "6", "--against",
                               FATHOM_PROGRAM, "--json", "--no-warmup"});
  const Json json = document(run);
  EXPECT_EQ(json["samples"].size(), 6u * 3 * 2);
  EXPECT_EQ(json["summary"]["orders"].size(), 6u);
  const Json& rows = json["summary"]["against"]["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["test"], "tg2");
  EXPECT_EQ(rows[0]["paired"], true);
  EXPECT_THAT(rows[0]["verdict"], testing::AnyOf("same", "cannot tell"));
  EXPECT_EQ(rows[0]["logits_hash"], rows[0]["baseline_logits_hash"]) << "the same program";
  const Finished again = fathom({"report", "-"}, input(run.out));
  EXPECT_EQ(again.status, run.status) << again.out;
  EXPECT_THAT(again.out, HasSubstr("is what its samples give"));
  expect_one_line_error(fathom({"bench", model(), "-r", "6", "--against", folder_ / "no_program"}),
                        3, "cannot run");
  expect_one_line_error(fathom({"bench", model(), "--against", "/bin/true", "-o", "json"}), 2,
                        "its own table");
  expect_one_line_error(fathom({"bench", model(), "--profile", "--compare", "x"}), 2, "no rows");
  expect_one_line_error(fathom({"bench", model(), "-r", "6", "--against", "/bin/false"}), 1,
                        "ended with status 1");
}

}  // namespace
}  // namespace fathom::test
