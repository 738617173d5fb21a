// SPDX-License-Identifier: Apache-2.0
// fathom probe as scripts see it: on the CPU, and on a device that is no GPU but has memory, a
// queue and graphs of its own.
#include <fstream>

#include "tests/e2e/cli_fixture.hpp"

namespace fathom::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> probe(std::vector<std::string> more) {
  std::vector<std::string> out{"probe", "attn", "--shape", "tiny-kquant", "-r", "2", "-q"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

TEST_F(Cli, ProbeNamesItsOpsAndVariants) {
  EXPECT_THAT(fathom({"probe", "--list"}).out,
              AllOf(HasSubstr("attn\n"), HasSubstr("norm_head\n"), HasSubstr("sample\n")));
  EXPECT_THAT(fathom({"probe", "attn", "--list"}).out,
              AllOf(HasSubstr("production\n"), HasSubstr("isa=scalar,threads=N\n")));
  expect_one_line_error(fathom({"probe"}), 2, "OP is needed: one of embed");
  expect_one_line_error(fathom({"probe", "softmax"}), 2, "no op 'softmax'");
  expect_one_line_error(fathom(probe({"-d", "0"})), 2, "at least 1 token");
  expect_one_line_error(fathom(probe({"-b", "33"})), 2, "expected 1 to 32");
  expect_one_line_error(fathom(probe({"--memory", "warm"})), 2, "expected hot, cold");
  expect_one_line_error(fathom(probe({"--variant", "splits=64"})), 2, "no knob 'splits'");
  expect_one_line_error(fathom(probe({"--sweep", "isa"})), 2, "expected a knob and its values");
  expect_one_line_error(fathom(probe({"--sweep", "warps=1,4"})), 2, "there are isa, threads");
}

TEST_F(Cli, ProbeSetsVariantsBesideEachOther) {
  const Finished run = fathom(probe(
      {"--variant", "production", "--variant", "isa=scalar,threads=1", "-d", "3,40", "-b", "1,2"}));
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("attn of tiny-kquant, Q4_K weights, f16 cache, batch 2, 40 tokens"),
                    HasSubstr("isa=scalar,threads=1  B0"), HasSubstr("cold us"),
                    HasSubstr("hot us"), HasSubstr("caches between two visits")));
  const Finished printed =
      fathom(probe({"--variant", "production", "--variant", "isa=scalar", "-d", "40", "--json"}));
  const Json json = document(printed);
  const Finished report = fathom({"report", "-"}, input(printed.out));
  EXPECT_EQ(report.status, printed.status) << report.out;
  EXPECT_THAT(report.out, AllOf(HasSubstr("isa=scalar"), HasSubstr("caches between two visits"),
                                HasSubstr("What the file stores is what its samples")));
  const Json& size = json["summary"]["sizes"][0];
  EXPECT_EQ(size["depth"], 40);
  EXPECT_TRUE(size["rotation"]["cold"].get<bool>());
  EXPECT_GE(size["rotation"]["distinct_bytes"].get<int64_t>(),
            3 * size["rotation"]["cache_bytes"].get<int64_t>());
  ASSERT_EQ(size["variants"].size(), 2u);
  const Json& scalar = size["variants"][1];
  EXPECT_EQ(scalar["class"], "B0");
  EXPECT_TRUE(scalar["kernels"].is_null()) << "a host has none";
  for (const char* memory : {"hot", "cold"}) {
    EXPECT_GT(scalar[memory]["us"].get<double>(), 0);
    EXPECT_GT(scalar[memory]["peak_gbps"].get<double>(), 0);
  }
  const Json formats =
      document(fathom(probe({"--cache", "f16,q8_0", "-d", "40", "--no-times", "--json"})));
  EXPECT_EQ(formats["summary"]["sizes"][0]["cache"], "f16");
  EXPECT_EQ(formats["summary"]["sizes"][1]["cache"], "q8_0");
  // Three arms of each kind of memory and two ceilings, in two rounds.
  EXPECT_EQ(json["samples"].size(), 2u * (3 * 2 + 2));
}

TEST_F(Cli, ProbeDrawsTheFreedomMap) {
  const std::vector<std::string> sweep =
      probe({"-d", "30", "--neighbours", "--no-times", "--sweep", "isa=scalar", "threads=1,2"});
  EXPECT_THAT(fathom(sweep).out, AllOf(HasSubstr("freedom map of attn"), HasSubstr("B0 free"),
                                       HasSubstr("over 3 sizes")));
  std::vector<std::string> with_json = sweep;
  with_json.push_back("--json");
  const Json json = document(fathom(with_json));
  for (const Json& row : json["summary"]["freedom_map"]) {
    EXPECT_EQ(row["class"], "B0");
    EXPECT_EQ(row["difference"]["n_different"], 0);
    EXPECT_GT(row["difference"]["n_values"].get<int64_t>(), 0);
  }
  EXPECT_EQ(json["samples"].size(), 0u);
}

TEST_F(Cli, ProbeWorksOnADeviceOfItsOwnMemory) {
  for (const char* device : {"guarded", "guardedeager"}) {
    for (const char* op : {"embed", "norm_qkv_rope_append", "attn", "out_proj_residual",
                           "norm_gate_up_act", "down_proj_residual", "norm_head", "sample"}) {
      const Json json = document(fathom(
          {"probe", op, "--shape", "tiny-kquant", "--type", "q8_0", "-d", "5", "-b", "2", "-r", "2",
           "-q", "--json", "--backend", device, "--backend-dir", FATHOM_TEST_BACKENDS}));
      const Json& variant = json["summary"]["sizes"][0]["variants"][0];
      EXPECT_EQ(variant["class"], "B0") << op << ": " << variant["why"];
    }
  }
}

// A driver that says what the lines tell it to, and the guarded device in the place of its GPU.
TEST_F(Cli, ProbeRefusesABusyGpu) {
  const std::string fixture = folder_ / "probe_nvml.txt";
  std::ofstream(fixture) << "name guarded device\nuuid GPU-1\ntotal 100000000000\nused 1000000\n"
                            "sm_clock 1500\nmax_sm_clock 1500\nutilisation 0\nthrottle 1\n"
                            "process 4242 3000000000\n";
  RunOptions driver;
  driver.environment = {"FAKE_NVML=" + fixture,
                        std::string("LD_LIBRARY_PATH=") + FATHOM_TEST_BACKENDS + "/gpu"};
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> words = probe({"-d", "5", "--backend", "cuda", "--backend-dir",
                                            std::string(FATHOM_TEST_BACKENDS) + "/gpu"});
    words.insert(words.end(), more.begin(), more.end());
    return fathom(words, driver);
  };
  expect_one_line_error(run({}), 3, "pid 4242");
  const Finished marked = run({"--allow-busy", "--json"});
  const Json json = document(marked);
  EXPECT_EQ(marked.status, 4);
  EXPECT_THAT(json["summary"]["watermark"].get<std::string>(), HasSubstr("pid 4242"));
  EXPECT_EQ(json["gates"][0]["id"], "gpu_idle");
  EXPECT_FALSE(json["gates"][0]["pass"].get<bool>());
  EXPECT_EQ(json["machine"]["state"]["after"]["gpus"][0]["processes"][0]["pid"], 4242);
  EXPECT_THAT(fathom({"report", "-"}, input(marked.out)).out,
              AllOf(HasSubstr("pid 4242"), HasSubstr("What the file stores is what its samples")));
  EXPECT_EQ(run({"--no-times"}).status, 0) << "bits are the same on a busy GPU";
}

}  // namespace
}  // namespace fathom::test
