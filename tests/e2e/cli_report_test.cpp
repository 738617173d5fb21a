// SPDX-License-Identifier: Apache-2.0
// `report` on what the program itself printed, on changed files and on hostile ones.
#include <fstream>
#include <string>

#include "tests/e2e/cli_fixture.hpp"

namespace fathom::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(Cli, ReportAgreesWithWhatBenchPrinted) {
  const Finished bench =
      fathom({"bench", model(), "-p", "8", "-n", "4", "-d", "0,300", "--fill", "real,synthetic",
              "-t", "1,2", "-r", "6", "--json", "--no-warmup"});
  document(bench);
  const Finished report = fathom({"report", "-", "--json"}, input(bench.out));
  const Json json = document_of_report(report);
  const Json& file = json["summary"]["files"][0];
  EXPECT_TRUE(file["differences"].empty()) << dump_json(file["differences"], 2);
  EXPECT_EQ(file["recomputed"]["rows"].size(), 16u);
  EXPECT_EQ(file["recomputed"]["fills"].size(), 4u) << "two tests, two configurations, at d300";
  EXPECT_EQ(report.status, file["trusted"].get<bool>() ? 0 : 4);
}

TEST_F(Cli, ReportFindsAChangedFile) {
  const Finished bench =
      fathom({"bench", model(), "-p", "0", "-n", "4", "-r", "2", "--json", "--no-warmup"});
  Json json = document(bench);
  const std::string good = folder_ / "good.json", bad = folder_ / "bad.json";
  std::ofstream(good) << bench.out;
  json["summary"]["rows"][0]["median_ts"] = 1e9;
  std::ofstream(bad) << dump_json(json);
  const Finished report = fathom({"report", good, bad});
  EXPECT_EQ(report.status, 4);
  EXPECT_THAT(report.out, AllOf(HasSubstr("good.json"), HasSubstr("What the file stores is what"),
                                HasSubstr("summary.rows[0].median_ts: stored 1000000000"),
                                HasSubstr("is not what its samples give")));
}

TEST_F(Cli, ReportReadsOtherCommandsToo) {
  const Finished profile =
      fathom({"bench", model(), "--profile", "--depths", "8,40", "-r", "4", "--json", "-t", "1"});
  const Finished reviewed = fathom({"report", "-"}, input(profile.out));
  EXPECT_EQ(reviewed.status, profile.status) << reviewed.out;
  EXPECT_THAT(reviewed.out, AllOf(HasSubstr("depth 40: the ops add up to"),
                                  HasSubstr("What the file stores is what its samples give")));
  Json changed = parse_json(profile.out, "profile");
  for (Json& sample : changed["samples"]) {  // of a single one nothing need follow
    if (sample.contains("ops_ns")) sample["ops_ns"]["attn"] = 1e12;
  }
  EXPECT_EQ(fathom({"report", "-"}, input(dump_json(changed))).status, 4);
  const Finished doctor = fathom({"doctor", "--json", "-t", "1"});
  EXPECT_EQ(fathom({"report", "-"}, input(doctor.out)).status, 0);
  const std::string text = folder_ / "text.txt";
  std::ofstream(text) << std::string(400, 'a') + " b c d e f g";
  const Finished perplexity = fathom({"perplexity", model(), text, "-c", "16", "--json"});
  ASSERT_EQ(perplexity.status, 0) << perplexity.err;
  const Finished report = fathom({"report", "-"}, input(perplexity.out));
  EXPECT_EQ(report.status, 0) << report.out;
  EXPECT_THAT(report.out, HasSubstr("perplexity"));
  const Finished tokens = fathom({"tokenize", model(), "-p", "a", "--json"});
  EXPECT_THAT(fathom({"report", "-"}, input(tokens.out)).out, HasSubstr("nothing to recompute"));
}

TEST_F(Cli, ReportRefusesHostileFilesInOneLine) {
  const auto report = [&](const std::string& text) { return fathom({"report", "-"}, input(text)); };
  expect_one_line_error(report(""), 1, "-");
  expect_one_line_error(report("{}"), 1, "schema is missing");
  expect_one_line_error(report(std::string(100'000, '[')), 1, "nested");
  expect_one_line_error(report("{\"schema\": \"fathom-result/9\"}"), 1, "fathom-result/1");
  expect_one_line_error(
      report(
          "{\"schema\": \"fathom-result/1\", \"command\": [\"x\"], \"samples\": [{\"arm\": "
          "\"\\u001b[31m\", \"round\": 0, \"ns\": 1e999}], \"summary\": {\"rows\": [{\"n_prompt\": "
          "1, \"n_gen\": 0}]}, \"gates\": []}"),
      1, "");
  expect_one_line_error(fathom({"report", folder_ / "none"}), 1, "none");
  expect_one_line_error(fathom({"report"}), 2, "FILE");
}

}  // namespace
}  // namespace fathom::test
