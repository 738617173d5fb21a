// SPDX-License-Identifier: Apache-2.0
// `attribute`: documents that fit the schema, files it writes, and what it refuses.
#include <filesystem>
#include <fstream>

#include "tests/e2e/cli_fixture.hpp"

namespace fathom::test {
namespace {

using testing::HasSubstr;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(Cli, AttributePrintsADocumentAndWritesItsFiles) {
  const std::filesystem::path page = folder_ / "growth.html", trace = folder_ / "growth.pftrace";
  const Finished run = fathom({"attribute", model(), "--depths", "8,40", "--seconds", "0.5",
                               "--json", "--html", page, "--perfetto", trace});
  const Json json = document(run);
  const Json& a = json["summary"]["attribution"];
  EXPECT_EQ(a["depths"].size(), 2u);
  EXPECT_GE(a["rounds"].get<int>(), 10);
  EXPECT_GT(a["closure"]["limit_ns"].get<double>(), 0);
  EXPECT_GT(std::filesystem::file_size(page), 20'000u);
  EXPECT_GT(std::filesystem::file_size(trace), 500u);
  EXPECT_THAT(run.err, HasSubstr("ui.perfetto.dev"));

  // Its figures and its page, again from its samples.
  const std::filesystem::path result = folder_ / "result.json", again = folder_ / "again.html";
  std::ofstream(result) << run.out;
  const Finished report = fathom({"report", result, "--html", again});
  EXPECT_EQ(report.status, run.status) << report.out;
  EXPECT_THAT(report.out, testing::AllOf(HasSubstr("step, unwatched"),
                                         HasSubstr("What the file stores is what its samples")));
  EXPECT_EQ(text_of(again), text_of(page));
  expect_one_line_error(fathom({"report", result, result, "--html", again}), 2, "one file");
}

TEST_F(Cli, AttributeConfirmsWithAnotherCacheType) {
  const Json json = document(fathom({"attribute", model(), "--depths", "8,200", "--seconds", "0.5",
                                     "--confirm", "cache-type=f32", "--json"}));
  const Json& confirmation = json["summary"]["attribution"]["confirmation"];
  bool trusted = true;
  for (const Json& gate : json["gates"]) trusted = trusted && gate["pass"].get<bool>();
  ASSERT_EQ(confirmation.is_null(), !trusted) << "nothing is confirmed that cannot be trusted";
  bool second = false;
  for (const Json& sample : json["samples"]) second = second || sample["configuration"] == 1;
  EXPECT_TRUE(second) << "the changed engine runs in the same rounds";
}

TEST_F(Cli, AttributeRefusesWhatItCannotDo) {
  expect_one_line_error(fathom({"attribute", model(), "--depths", "64"}), 2,
                        "two different depths");
  expect_one_line_error(fathom({"attribute", model(), "--depths", "8,16", "--confirm", "warp=3"}),
                        2, "threads=VALUE, cache-type=VALUE");
  expect_one_line_error(
      fathom({"attribute", model(), "--depths", "8,16", "--confirm", "cache-type=f16"}), 2,
      "this type already");
  expect_one_line_error(fathom({"attribute", model(), "--depths", "8,16", "--separate", "--confirm",
                                "cache-type=q8_0"}),
                        2, "same process");
  expect_one_line_error(fathom({"attribute", model(), "--depths", "8,16", "--backend", "guarded",
                                "--backend-dir", FATHOM_TEST_BACKENDS}),
                        3, "cannot trace");
  expect_one_line_error(fathom({"attribute", model(), "--depths", "8,16", "--seconds", "0.2", "-q",
                                "--html", folder_ / "no" / "such.html"}),
                        1, "such.html");
}

}  // namespace
}  // namespace fathom::test
