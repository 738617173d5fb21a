// SPDX-License-Identifier: Apache-2.0
// `attribute`: documents that fit the schema, files it writes, and what it refuses.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <set>

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
  const Finished run = fathom({"attribute", model(), "--depths", "8,40", "--seconds", "0.5", "-r",
                               "6", "-t", "1", "--json", "--html", page, "--perfetto", trace});
  const Json json = document(run);
  const Json& a = json["summary"]["attribution"];
  EXPECT_EQ(a["depths"].size(), 2u);
  EXPECT_GE(a["rounds"].get<int>(), 6);
  EXPECT_GT(a["closure"]["limit_ns"].get<double>(), 0);
  EXPECT_GT(std::filesystem::file_size(page), 20'000u);
  EXPECT_GT(std::filesystem::file_size(trace), 500u);
  EXPECT_THAT(run.err, HasSubstr("ui.perfetto.dev"));

  const Json& why = json["machine"]["counters_why"];
  for (const Json& evidence : a["evidence"]) {
    if (!why.is_null()) {
      EXPECT_EQ(evidence["why_no_counters"], why);
    }
    EXPECT_TRUE(evidence["memory_bytes"][1].is_null()) << "misses are not all traffic";
  }
  EXPECT_EQ(json["summary"].contains("watched"), why.is_null());

  // Its figures and its page, again from its samples.
  const std::filesystem::path result = folder_ / "result.json", again = folder_ / "again.html";
  std::ofstream(result) << run.out;
  const Finished report = fathom({"report", result, "--html", again});
  EXPECT_EQ(report.status, run.status) << report.out;
  EXPECT_THAT(report.out, testing::AllOf(HasSubstr("step, unwatched"),
                                         HasSubstr("What the file stores is what its samples")));
  EXPECT_EQ(text_of(again), text_of(page));
  expect_one_line_error(fathom({"report", result, result, "--html", again}), 2, "one file");
  Json stranger = json;
  stranger["summary"]["watermark"] = "\x1b[2Jbusy";
  EXPECT_THAT(fathom({"report", "-"}, input(dump_json(stranger))).out,
              testing::AllOf(HasSubstr("\\x1b[2Jbusy"), testing::Not(HasSubstr("\x1b"))))
      << "nothing in a file moves the cursor";
}

TEST_F(Cli, AttributeConfirmsWithAnotherCacheType) {
  const Finished run = fathom({"attribute", model(), "--depths", "8,200", "--seconds", "0.5", "-r",
                               "6", "-t", "1", "--confirm", "cache-type=f32", "--json"});
  const Json json = document(run);
  EXPECT_THAT(fathom({"report", "-"}, input(run.out)).out,
              HasSubstr("What the file stores is what its samples"));
  const Json& confirmations = json["summary"]["attribution"]["confirmations"];
  bool trusted = true;
  for (const Json& gate : json["gates"]) trusted = trusted && gate["pass"].get<bool>();
  ASSERT_EQ(confirmations.empty(), !trusted) << "nothing is confirmed that cannot be trusted";
  for (const Json& confirmation : confirmations) {
    EXPECT_EQ(confirmation["probed_op"], "attn");
    ASSERT_EQ(confirmation["probed"].size(), 2u);
    for (const Json& probed : confirmation["probed"]) EXPECT_GT(probed["us"][1].get<double>(), 0);
    EXPECT_GT(confirmation["engine_ratio"].get<double>(), 0);
  }
  bool second = false;
  for (const Json& sample : json["samples"]) second = second || sample["configuration"] == 1;
  EXPECT_TRUE(second) << "the changed engine runs in the same rounds";
}

TEST_F(Cli, AttributeStepsSeveralSequencesAtOnce) {
  const auto anchors = [&](const std::string& n) {
    const Json json = document(fathom({"attribute", model(), "--depths", "8,40", "--seconds", "0.3",
                                       "-r", "6", "-t", "1", "-npl", n, "--separate", "--json"}));
    EXPECT_EQ(json["summary"]["attribution"]["n_parallel"], std::stoi(n));
    std::vector<int64_t> bytes;
    for (const Json& gate : json["gates"]) {
      if (gate["id"] != "anchor" && gate["id"] != "plan") continue;
      EXPECT_TRUE(gate["pass"].get<bool>()) << gate["why"];
      if (gate["id"] == "anchor") bytes.push_back(gate["value"].get<int64_t>());
    }
    return bytes;
  };
  const std::vector<int64_t> one = anchors("1"), three = anchors("3");
  ASSERT_EQ(one.size(), 2u);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(three[i], 3 * one[i]);
}

TEST_F(Cli, AttributeConfirmsSeveralKnobsInTheSameRounds) {
  for (const bool apart : {false, true}) {
    std::vector<std::string> words{
        "attribute",      model(),     "--depths",        "8,200", "--seconds", "0.5", "--confirm",
        "cache-type=f32", "--confirm", "cache-type=bf16", "-r",    "6",         "-t",  "1",
        "--json"};
    if (apart) words.push_back("--separate");
    const Json json = document(fathom(words));
    std::set<int> configurations;
    for (const Json& sample : json["samples"]) {
      if (sample["arm"] == "traced") configurations.insert(sample["configuration"].get<int>());
    }
    EXPECT_EQ(configurations, (std::set{0, 1, 2}));
    const size_t n = json["summary"]["attribution"]["confirmations"].size();
    EXPECT_TRUE(n == 0 || n == 2) << n;
    EXPECT_EQ(json["summary"]["observation"]["order_watched"].empty(), !apart);
  }
}

// The guarded device in the place of a GPU, behind a driver that says what it is told to.
struct Gpu {
  std::filesystem::path folder;
  std::string model;

  std::vector<std::string> command(std::vector<std::string> more) const {
    std::vector<std::string> out{"attribute",
                                 model,
                                 "--depths",
                                 "8,200",
                                 "--seconds",
                                 "0.2",
                                 "-r",
                                 "6",
                                 "-q",
                                 "--backend",
                                 "cuda",
                                 "--backend-dir",
                                 std::string(FATHOM_TEST_BACKENDS) + "/gpu"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  RunOptions options(const std::string& driver, const std::string& watch = "") const {
    const std::string fixture = folder / "attribute_nvml.txt";
    std::ofstream(fixture) << "name guarded device\nuuid GPU-1\ntotal 100000000000\nused 1000000\n"
                              "sm_clock 1500\nmax_sm_clock 1500\nutilisation 0\nthrottle 1\n"
                           << driver;
    RunOptions out;
    out.environment = {"FAKE_NVML=" + fixture, "FAKE_WATCH=" + watch,
                       std::string("LD_LIBRARY_PATH=") + FATHOM_TEST_BACKENDS + "/gpu"};
    return out;
  }
};

// What the processes beside the first send: counters of every op at both depths, samples of some.
TEST_F(Cli, AttributeCountsAndSamplesInProcessesOfTheirOwn) {
  const Gpu gpu{folder_, model()};
  const auto child = [&](const std::string& what, const std::string& watch) {
    const Finished run = fathom(gpu.command({"--evidence-child", what}), gpu.options("", watch));
    EXPECT_EQ(run.status, 0) << run.err;
    return parse_json(run.out, "stdout");
  };
  const Json counted = child("counters", "");
  EXPECT_TRUE(counted["problem"].is_null());
  ASSERT_EQ(counted["runs"].size(), 2u);
  for (const Json& run : counted["runs"]) EXPECT_GT(run["ops"].size(), 5u);
  const Json sampled = child("stalls:attn,norm_head", "");
  EXPECT_EQ(sampled["ops"].size(), 2u);
  EXPECT_EQ(sampled["ops"]["attn"]["kernels"][0]["places"][0]["producers"][0]["instruction"],
            "LDG");

  const Json denied = child("counters", "denied");
  EXPECT_THAT(denied["runs"][0]["problem"].get<std::string>(), HasSubstr("only (35)"));
  EXPECT_THAT(child("stalls:attn", "denied")["problem"].get<std::string>(), HasSubstr("only (35)"));
  const Json lacking = child("counters", "lacks");
  EXPECT_TRUE(lacking["runs"][1]["counters"][0]["metric"].is_null());
  EXPECT_TRUE(lacking["runs"][1]["ops"][0]["values"][0].is_null());
  expect_one_line_error(fathom(gpu.command({"--evidence-child", "times"}), gpu.options("")), 2,
                        "expected counters, or stalls:");
}

// The whole of it on a device. Which ops grow there is up to the machine's noise.
TEST_F(Cli, AttributeMarksABusyGpuAndReadsItsEvidence) {
  const Gpu gpu{folder_, model()};
  const RunOptions busy = gpu.options("process 4242 3000000000\n");
  // Both look for four seconds whether the GPU becomes idle.
  auto refused = std::async(std::launch::async, [&] { return fathom(gpu.command({}), busy); });
  const std::filesystem::path page = folder_ / "device.html";
  const Finished marked = fathom(gpu.command({"--allow-busy", "--json", "--html", page}), busy);
  expect_one_line_error(refused.get(), 3, "pid 4242");
  const Json json = document(marked);
  EXPECT_EQ(marked.status, 4);
  EXPECT_THAT(json["summary"]["watermark"].get<std::string>(), HasSubstr("pid 4242"));
  EXPECT_EQ(json["gates"][0]["id"], "gpu_idle");
  EXPECT_FALSE(json["gates"][0]["pass"].get<bool>());
  for (const char* when : {"before", "after"}) {
    EXPECT_EQ(json["machine"]["state"][when]["gpus"][0]["processes"][0]["pid"], 4242) << when;
  }
  const Json& a = json["summary"]["attribution"];
  for (const Json& sample : json["samples"]) {
    if (!sample.contains("clock")) continue;
    EXPECT_EQ(sample["clock"], 1500) << sample["arm"];
  }
  EXPECT_EQ(a["clock_drift"], 0) << "watched and unwatched, in their processes";
  EXPECT_EQ(a["eager_ns"].size(), 2u);
  EXPECT_GT(a["peaks"]["f16_tensor_gflops"].get<double>(), 0);
  EXPECT_EQ(a["evidence"].size(), a["decompositions"].size());
  for (const Json& evidence : a["evidence"]) {
    EXPECT_EQ(evidence["top_stall"], "long_scoreboard") << evidence;
    EXPECT_TRUE(evidence["why_no_counters"].is_null()) << evidence;
  }
  std::ifstream file(page);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(text, HasSubstr("What counters and records say"));
  EXPECT_THAT(text, HasSubstr("pid 4242"));
}

TEST_F(Cli, AttributeMarksABrokenWindowOfABusyGpu) {
  const Gpu gpu{folder_, model()};
  const std::string busy = "process 4242 3000000000\n";
  const Finished run = fathom(gpu.command({"--allow-busy", "--json"}), gpu.options(busy, "loses"));
  EXPECT_EQ(run.status, 4);
  const Json json = document(run);
  EXPECT_THAT(json["summary"]["watermark"].get<std::string>(), HasSubstr("pid 4242"));
  EXPECT_EQ(json["gates"][0]["id"], "gpu_idle");
  EXPECT_THAT(json["gates"].back()["why"].get<std::string>(), HasSubstr("3 records were lost"));
  EXPECT_FALSE(json["summary"].contains("attribution"));
  const Finished text = fathom(gpu.command({"--allow-busy"}), gpu.options(busy, "loses"));
  EXPECT_THAT(text.out, HasSubstr("pid 4242"));
  EXPECT_THAT(text.err, HasSubstr("3 records were lost"));
}

TEST_F(Cli, AttributeRefusesWhatItCannotDo) {
  expect_one_line_error(fathom({"attribute", model(), "--depths", "64"}), 2,
                        "two different depths");
  expect_one_line_error(fathom({"attribute", model(), "--depths", "8,16", "--confirm", "warp=3"}),
                        2, "threads=VALUE, cache-type=VALUE");
  expect_one_line_error(
      fathom({"attribute", model(), "--depths", "8,16", "--confirm", "cache-type=f16"}), 2,
      "this type already");
  expect_one_line_error(
      fathom({"attribute", model(), "--depths", "8,16", "--confirm", "variant=seed"}), 2,
      "has no variants");
  expect_one_line_error(fathom({"attribute", model(), "--depths", "8,16", "-npl", "0"}), 2,
                        "--n-parallel");
  expect_one_line_error(fathom({"attribute", model(), "--depths", "8,16", "--backend", "guarded",
                                "--backend-dir", FATHOM_TEST_BACKENDS}),
                        3, "cannot trace");
  expect_one_line_error(fathom({"attribute", model(), "--depths", "8,16", "--seconds", "0.2", "-q",
                                "--html", folder_ / "no" / "such.html"}),
                        1, "such.html");
}

}  // namespace
}  // namespace fathom::test
