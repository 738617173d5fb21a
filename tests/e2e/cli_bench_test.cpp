// SPDX-License-Identifier: Apache-2.0
// What measures: `bench` in its formats, the profile of a step, and `doctor`, whose ceiling the
// others use.
#include <algorithm>
#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <vector>

#include "tests/e2e/cli_fixture.hpp"
#include "tests/support/sanitizer.hpp"

namespace fathom::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

// A device that is no GPU, but has memory and graphs of its own.
std::vector<std::string> on_device(std::vector<std::string> command,
                                   const std::string& device = "guarded") {
  command.insert(command.end(), {"--backend", device, "--backend-dir", FATHOM_TEST_BACKENDS});
  return command;
}

TEST_F(Cli, BenchCountsGraphsAndSetsADeviceAgainstItsOwnMemory) {
  const Json json =
      document(fathom(on_device({"bench", model(), "-p", "5", "-n", "6", "-r", "2", "--json"})));
  const Json& rows = json["summary"]["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["graph_replays"], 0) << "a prompt runs op by op";
  EXPECT_EQ(rows[1]["graph_replays"], 6);
  EXPECT_EQ(rows[1]["graph_captures"], 0) << "captured while warming up";
  EXPECT_EQ(rows[1]["kernel_launches"], 0);
  EXPECT_GT(rows[1]["peak_gbps"].get<double>(), 0);
  EXPECT_EQ(json["summary"]["orders"][0][0].size(), 3u) << "two tests and the ceiling";
  const Json without = document(fathom(
      on_device({"bench", model(), "-p", "0", "-n", "6", "-r", "1", "--json"}, "guardedeager")));
  EXPECT_TRUE(without["summary"]["rows"][0]["peak_gbps"].is_null()) << "it has no read stream";
  const std::vector<std::string> run{"run", model(), "-p", "a", "-n", "8", "--ignore-eos"};
  std::vector<std::string> reference = run;
  reference.insert(reference.end(), {"--backend", "reference"});
  EXPECT_EQ(fathom(on_device(run)).out, fathom(reference).out);
  EXPECT_THAT(fathom(on_device({"bench", model(), "--profile", "--depths", "4,8", "-r", "3"})).out,
              AllOf(HasSubstr("norm_qkv_rope_append"), HasSubstr("our read stream")));
}

TEST_F(Cli, DoctorMeasuresADeviceAndRunUsesIt) {
  const std::vector<std::string> run =
      on_device({"run", model(), "-p", "a", "-n", "8", "--ignore-eos"});
  EXPECT_THAT(fathom(run).err, HasSubstr("(run `fathom doctor --backend guarded` once)"));
  const Json json = document(fathom(on_device({"doctor", "--json", "-t", "1"})));
  const Json& measured = json["summary"]["device_read_gbps"];
  EXPECT_EQ(measured["device"], "guarded device");
  EXPECT_GT(json["summary"]["read_gbps"]["median"].get<double>(), 0) << "the host's is kept beside";
  std::vector<std::string> with_json = run;
  with_json.push_back("--json");
  EXPECT_EQ(document(fathom(with_json))["summary"]["run"]["peak_gbps"], measured["median"]);
  EXPECT_THAT(fathom(run).err, HasSubstr(fmt::format("the {:.1f} GB/s measured here",
                                                     measured["median"].get<double>())));
  const Json none = document(fathom(on_device({"doctor", "--json", "-t", "1"}, "guardedeager")));
  EXPECT_TRUE(none["summary"]["device_read_gbps"].is_null());
}

TEST_F(Cli, BenchMeasuresSequencesSideBySide) {
  const auto rows = [&](std::vector<std::string> more) {
    std::vector<std::string> command{"bench", model(), "-n", "4",    "-d",         "40",
                                     "-r",    "3",     "-o", "json", "--no-warmup"};
    command.insert(command.end(), more.begin(), more.end());
    return parse_json(fathom(command).out, "rows");
  };
  const Json found = rows({"-p", "3", "-npl", "1,3"});
  ASSERT_EQ(found.size(), 3u) << "a prompt is of one sequence";
  EXPECT_EQ(found[0]["n_seqs"], 1);
  EXPECT_EQ(found[0]["n_prompt"], 3);
  EXPECT_EQ(found[1]["n_seqs"], 1);
  const Json& batch = found[2];
  EXPECT_EQ(batch["n_seqs"], 3);
  EXPECT_EQ(batch["n_gen"], 4) << "tokens of each";
  const double ns = batch["median_ns"].get<double>();
  EXPECT_NEAR(batch["median_ts"].get<double>(), 12e9 / ns, 0.01 * 12e9 / ns);
  EXPECT_NEAR(batch["median_seq_ts"].get<double>(), 4e9 / ns, 0.01 * 4e9 / ns);
  const auto bytes = [](const Json& row) {
    return row["gbps"].get<double>() * row["median_ns"].get<double>();
  };
  EXPECT_GT(bytes(batch), 1.001 * bytes(found[1])) << "the caches of three";
  EXPECT_LT(bytes(batch), 2 * bytes(found[1])) << "the weights once";
  EXPECT_EQ(rows({"-p", "0"})[0]["logits_hash"], found[1]["logits_hash"]);
  EXPECT_EQ(rows({"-p", "0", "-npl", "3", "--page-tokens", "16"})[0]["logits_hash"],
            batch["logits_hash"]);
  const Json device = parse_json(fathom(on_device({"bench", model(), "-p", "0", "-n", "4", "-npl",
                                                   "3", "-r", "1", "-o", "json"}))
                                     .out,
                                 "rows");
  EXPECT_EQ(device[0]["graph_replays"], 4) << "one step for all three";
  EXPECT_THAT(fathom({"bench", model(), "-p", "0", "-n", "4", "-npl", "3", "-r", "1"}).out,
              HasSubstr("tg4 x3"));
  for (const char* wrong : {"0", "1025", "x"}) {
    EXPECT_EQ(fathom({"bench", model(), "-npl", wrong}).status, 2) << wrong;
  }
}

TEST_F(Cli, BenchMarksASyntheticCache) {
  const auto rows = [&](const std::string& fill) {
    return parse_json(fathom({"bench", model(), "-p", "0", "-n", "2", "-d", "64,400", "-r", "1",
                              "--no-warmup", "--fill", fill, "-o", "json"})
                          .out,
                      "rows");
  };
  const Json real = rows("real"), synthetic = rows("synthetic");
  EXPECT_EQ(real[1]["kv_fill"], "real");
  EXPECT_EQ(synthetic[0]["kv_fill"], "real");  // all of it fits into the source
  EXPECT_EQ(synthetic[1]["kv_fill"], "synthetic");
  EXPECT_EQ(synthetic[0]["logits_hash"], real[0]["logits_hash"]);
  EXPECT_NE(synthetic[1]["logits_hash"], real[1]["logits_hash"]);
  const Json both = rows("real,synthetic");
  ASSERT_EQ(both.size(), 4u) << "each depth with each fill, in the same rounds";
  EXPECT_EQ(both[2]["logits_hash"], real[1]["logits_hash"]);
  EXPECT_EQ(both[3]["logits_hash"], synthetic[1]["logits_hash"]);
  EXPECT_EQ(fathom({"bench", model(), "--fill", "zeros"}).status, 2);
  const Finished profile =
      fathom({"bench", model(), "--profile", "--depths", "16,400", "--fill", "synthetic"});
  EXPECT_THAT(profile.out, HasSubstr("synthetic cache behind 256 real tokens"));
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
    if (sample["arm"] == "gap") continue;  // beside the rounds
    (sample["arm"] == "ceiling" ? ceilings : tests) += 1;
    EXPECT_GT(sample["clock_mhz"].get<double>(), 300);
    const size_t round = sample["round"].get<size_t>(), place = sample["place"].get<size_t>();
    const int arm = json["summary"]["orders"][0][round][place].get<int>();
    EXPECT_EQ(sample["arm"], std::vector<std::string>({"pp8", "tg4", "ceiling"})[arm]);
  }
  EXPECT_EQ(tests, 6u);
  EXPECT_EQ(ceilings, 3u);
  EXPECT_EQ(json["summary"]["orders"][0].size(), 3u);
  std::vector<std::string> ids;
  for (const Json& gate : json["gates"]) {
    ids.push_back(gate["id"].get<std::string>());
    EXPECT_TRUE(ids.back() != "output_hash" || gate["pass"].get<bool>());
  }
  // Of each test: bytes and arithmetic against what this machine can, its logits, whether it
  // settled.
  EXPECT_THAT(
      ids, testing::UnorderedElementsAre("ceiling", "ceiling", "ceiling", "ceiling", "output_hash",
                                         "output_hash", "steady", "steady", "clock_drift"));
  for (const char* when : {"before", "after"}) {
    EXPECT_TRUE(json["machine"]["state"][when]["cpu"]["load"].is_number()) << when;
  }
  EXPECT_EQ(json["summary"]["configurations"][0]["stop"], "fixed n");
  EXPECT_TRUE(json["summary"]["watermark"].is_null());
  const Json& tg = json["summary"]["rows"][1];
  EXPECT_GT(tg["gap_pct"].get<double>(), 0);
  EXPECT_LT(tg["gap_pct"].get<double>(), 100);
  EXPECT_TRUE(json["summary"]["rows"][0]["gap_pct"].is_null());
  EXPECT_EQ(tg["gbps_source"], "declared bytes / time");
  EXPECT_EQ(tg["memory"], "warm") << "the tiny model lies in the cache";
  EXPECT_EQ(tg["recaptures"], 0);
}

TEST_F(Cli, BenchHasATwinAndStopsByItsRule) {
  const Json six = document(
      fathom({"bench", model(), "-p", "0", "-n", "4,8", "-r", "6", "--json", "--no-warmup"}));
  size_t twins = 0;
  for (const Json& sample : six["samples"]) twins += sample.contains("twin_of");
  EXPECT_EQ(twins, 6u);
  ASSERT_EQ(six["summary"]["noise"].size(), 1u);
  EXPECT_GE(six["summary"]["noise"][0]["floor"].get<double>(), 0);
  const Json none =
      document(fathom({"bench", model(), "-p", "0", "-n", "4", "-r", "6", "--json", "--no-aa"}));
  EXPECT_TRUE(none["summary"]["noise"].empty());
  const Json capped = document(fathom({"bench", model(), "-p", "0", "-n", "4", "-r", "1", "--json",
                                       "--stop-within", "0.01", "--time-cap", "1"}));
  const Json& configuration = capped["summary"]["configurations"][0];
  EXPECT_EQ(configuration["stop"], "time cap");
  EXPECT_THAT(configuration["stop_rule"].get<std::string>(), HasSubstr("0.01 %, or 1 s"));
  EXPECT_GE(capped["summary"]["orders"][0].size(), 6u);
}

TEST_F(Cli, BenchReachesGreatDepths) {
  const Finished run = fathom({"bench", model(), "-p", "0", "-n", "2", "-d", "0,4096,131072", "-r",
                               "1", "--no-warmup", "--fill", "synthetic", "-o", "json"});
  const Json rows = parse_json(run.out, "rows");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2]["n_depth"], 131072);
  EXPECT_GT(rows[2]["test_bytes"].get<int64_t>(), 20 * rows[1]["test_bytes"].get<int64_t>());
}

TEST_F(Cli, BenchChecksItsOutputAgainstAFile) {
  const std::string logits = folder_ / "logits.json", rows = folder_ / "rows.json";
  const std::vector<std::string> bench{"bench", model(), "-p", "6",           "-n", "4",   "-d",
                                       "20",    "-r",    "1",  "--no-warmup", "-o", "json"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> command = bench;
    command.insert(command.end(), more.begin(), more.end());
    return fathom(command);
  };
  const Finished reference = with({"--save-logits", logits, "--backend", "reference"});
  ASSERT_EQ(reference.status, 0) << reference.err;
  EXPECT_EQ(with({"--check-output", logits}).status, 0) << "the CPU against the reference";
  std::ofstream(rows) << with({}).out;
  const Finished same = with({"--check-output", rows, "-t", "1"});
  EXPECT_EQ(same.status, 0) << same.err;
  const Finished other = with({"--check-output", rows, "--seed", "2"});
  expect_one_line_error(other, 2, "make it with the same flags");
  std::string text = with({}).out;
  const size_t at = text.find("\"logits_hash\": \"") + 16;
  text[at] = text[at] == '0' ? '1' : '0';
  std::ofstream(rows) << text;
  const Finished changed = with({"--check-output", rows});
  EXPECT_EQ(changed.status, 4);
  EXPECT_THAT(changed.err, HasSubstr("the file to check against has"));
  std::ofstream(rows) << "{\"schema\": \"fathom-logits/1\", \"rows\": [{\"key\": 5}]}";
  expect_one_line_error(with({"--check-output", rows}), 1, "expected text");
}

// A driver that says what the lines tell it to, and the guarded device in the place of its GPU.
RunOptions with_driver(const std::filesystem::path& folder, const std::string& lines) {
  const std::string fixture = folder / "nvml.txt";
  std::ofstream(fixture) << "name guarded device\nuuid GPU-1\ntotal 100000000000\nused 1000000\n"
                            "sm_clock 1500\nmax_sm_clock 1500\nutilisation 0\nthrottle 1\n"
                         << lines;
  RunOptions options;
  options.environment = {"FAKE_NVML=" + fixture,
                         std::string("LD_LIBRARY_PATH=") + FATHOM_TEST_BACKENDS + "/gpu"};
  return options;
}

// Each looks for up to four seconds whether the GPU becomes idle: at once, they take no longer.
TEST_F(Cli, BenchRefusesABusyGpu) {
  const auto bench = [&](const std::string& name, const std::string& driver,
                         std::vector<std::string> more) {
    std::vector<std::string> command{"bench",
                                     model(),
                                     "-p",
                                     "0",
                                     "-n",
                                     "4",
                                     "-r",
                                     "1",
                                     "--backend",
                                     "cuda",
                                     "--backend-dir",
                                     std::string(FATHOM_TEST_BACKENDS) + "/gpu"};
    command.insert(command.end(), more.begin(), more.end());
    std::filesystem::create_directory(folder_ / name);
    const RunOptions options = with_driver(folder_ / name, driver);
    return std::async(std::launch::async, [=] { return fathom(command, options); });
  };
  const std::string busy = "process 4242 3000000000\n";
  auto refused = bench("refused", busy, {});
  auto computing = bench("computing", "utilisation 40\n", {});
  auto unknown = bench("unknown", "without nvmlDeviceGetComputeRunningProcesses_v3\n", {});
  auto hidden = bench("hidden", "used 50000000000\n", {"--profile", "--depths", "4"});
  auto allowed = bench("allowed", busy, {"--allow-busy", "--json"});
  auto allowed_text = bench("text", busy, {"--allow-busy"});
  expect_one_line_error(refused.get(), 3,
                        "1 other process runs on it: pid 4242 (3000 MB) (--allow-busy");
  expect_one_line_error(computing.get(), 3, "it is 40 % busy");
  expect_one_line_error(unknown.get(), 3, "cannot prove it idle");
  expect_one_line_error(hidden.get(), 3, "though no process is listed");

  const Finished marked = allowed.get();
  const Json json = document(marked);
  EXPECT_EQ(marked.status, 4);
  EXPECT_THAT(json["summary"]["watermark"].get<std::string>(), HasSubstr("pid 4242"));
  EXPECT_EQ(json["summary"]["rows"][0]["watermark"], json["summary"]["watermark"]);
  EXPECT_EQ(json["gates"][0]["id"], "gpu_idle");
  EXPECT_FALSE(json["gates"][0]["pass"].get<bool>());
  EXPECT_EQ(json["samples"][0]["arm"], "canary");
  EXPECT_EQ(json["samples"][0]["values"].size(), 200u);
  EXPECT_EQ(json["samples"][1]["clock_mhz"], 1500) << "of the GPU";
  EXPECT_EQ(json["machine"]["state"]["before"]["gpus"][0]["processes"][0]["pid"], 4242);
  const Json& row = json["summary"]["rows"][0];
  EXPECT_NE(row["gap_pct"].is_null(), row["gap_why"].is_null()) << "a share, or why there is none";
  EXPECT_EQ(json["samples"].back()["arm"], "gap");
  EXPECT_EQ(json["samples"].back()["waited_ns"].size(), 40u);
  EXPECT_THAT(fathom({"report", "-"}, input(marked.out)).out,
              HasSubstr("What the file stores is what its samples"));
  const Finished text = allowed_text.get();
  EXPECT_THAT(text.out, HasSubstr("NOT TO BE QUOTED"));
  EXPECT_THAT(text.err, HasSubstr("measured on a GPU that is not idle"));
}

// Catalogue 17: throttling that comes and goes is in the samples' flags.
TEST_F(Cli, BenchFlagsAThrottledGpu) {
  const Finished run = fathom(
      {"bench", model(), "-p", "0", "-n", "4", "-r", "10", "--no-warmup", "--backend", "cuda",
       "--backend-dir", std::string(FATHOM_TEST_BACKENDS) + "/gpu", "--allow-busy", "--json"},
      with_driver(folder_, "throttle 4\n"));
  const Json json = document(run);
  EXPECT_EQ(run.status, 4);
  EXPECT_EQ(json["summary"]["rows"][0]["n_flagged"], 10);
  EXPECT_THAT(run.err, AllOf(HasSubstr("gate steady failed"), HasSubstr("10 of 10 samples flagged"),
                             HasSubstr("power cap")));
}

TEST_F(Cli, ProfileAddsUpAndHasBothDepths) {
  if (kThreadSanitizer) GTEST_SKIP() << "its steps would take seconds, and it is about times";
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

  EXPECT_EQ(profile["order"].size(), 15u);
  const Finished table =
      fathom({"bench", model(), "--profile", "--depths", "16,200", "-t", "1", "-r", "3"});
  EXPECT_THAT(table.out,
              AllOf(HasSubstr("attn"), HasSubstr("sample"), HasSubstr("ms @16"),
                    HasSubstr("growth ms"), Not(HasSubstr("-0.000")), HasSubstr("sum of the ops"),
                    HasSubstr("wall time"), HasSubstr("difference")));
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
  document(
      fathom({"bench", model(), "--profile", "--depths", "8", "-t", "1", "-r", "3", "--json"}));
  expect_doctors_ceiling();
  const Finished run = fathom({"run", model(), "-p", "a", "-n", "8", "--ignore-eos", "-t", "1"});
  const std::string ceiling = fmt::format("the {:.1f} GB/s measured here", gbps);
  EXPECT_THAT(run.err,
              testing::AnyOf(HasSubstr("% of " + ceiling),
                             HasSubstr("above " + ceiling + ", as the processor's cache")));

  const std::string cache = folder_ / "machine.json";
  std::ifstream file(cache);
  const std::string kept(std::istreambuf_iterator<char>(file), {});
  Json edited = parse_json(kept, cache);
  for (Json& peak : edited["peaks"]) peak["median_gbps"] = 0.001;
  std::ofstream(cache) << dump_json(edited);
  const Finished faster = fathom({"run", model(), "-p", "a", "-n", "8", "--ignore-eos", "-t", "1"});
  EXPECT_THAT(faster.err,
              AllOf(HasSubstr("above the 0.0 GB/s measured here, "), Not(HasSubstr("%"))));
  const Finished table = fathom({"doctor", "--no-bandwidth"});
  EXPECT_THAT(table.out, AllOf(HasSubstr("CPU"), HasSubstr("remedy"), Not(HasSubstr("\x1b"))));
}

}  // namespace
}  // namespace fathom::test
