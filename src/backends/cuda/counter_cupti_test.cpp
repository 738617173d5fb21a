// SPDX-License-Identifier: Apache-2.0
// Counters of every chip that CUPTI knows, without a GPU: names, sets, passes, reasons.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "backends/cuda/counter_host.hpp"
#include "backends/cuda/counter_table.hpp"
#include "base/error.hpp"

namespace fathom::cuda {
namespace {

using testing::HasSubstr;

std::vector<Counter> resolved(const CounterHost& host, const std::vector<std::string>& names) {
  return resolve_counters(names, host.chip(), [&](std::string_view m) { return host.has(m); });
}

const Counter& named(const std::vector<Counter>& counters, std::string_view name) {
  const auto found = std::find_if(counters.begin(), counters.end(),
                                  [&](const Counter& counter) { return counter.name == name; });
  EXPECT_NE(found, counters.end()) << name;
  return *found;
}

std::vector<std::string> metrics_of(const std::vector<Counter>& counters) {
  std::vector<std::string> out;
  for (const Counter& counter : counters) {
    if (!counter.metric.empty()) out.push_back(counter.metric);
  }
  return out;
}

class CuptiCounterTable : public testing::Test {
 protected:
  void SetUp() override {
    try {
      api_ = &cupti();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  CounterHost host(const std::string& chip) { return CounterHost(*api_, chip); }
  const Cupti* api_ = nullptr;
};

TEST_F(CuptiCounterTable, EveryChipCountsWhatItHasAndSaysWhatItLacks) {
  const std::vector<std::string> chips = CounterHost::supported_chips(*api_);
  EXPECT_GE(chips.size(), 30u);
  for (const std::string& chip : chips) {
    if (chip == "GV11B") continue;  // listed, but CUPTI 13.0 has no tables for it
    const CounterHost on = host(chip);
    for (const auto& set : {core_counters(), cache_counters(), stall_counters()}) {
      const std::vector<Counter> counters = resolved(on, set);
      for (const Counter& counter : counters) {
        EXPECT_TRUE(!counter.metric.empty() || !counter.note.empty()) << chip << counter.name;
      }
      // Refused as a whole if one name were wrong.
      const CounterPlan plan = on.plan(metrics_of(counters));
      EXPECT_FALSE(plan.image.empty()) << chip;
      EXPECT_GE(plan.n_passes, 1) << chip;
    }
  }
}

TEST_F(CuptiCounterTable, TheCoreSetTakesFewPasses) {
  const std::map<std::string, int> passes = {{"GA100", 2}, {"GH100", 2}, {"GB100", 2}, {"GB110", 2},
                                             {"AD102", 2}, {"GA102", 2}, {"GB202", 3}};
  for (const auto& [chip, expected] : passes) {
    const CounterHost on = host(chip);
    EXPECT_EQ(on.plan(metrics_of(resolved(on, core_counters()))).n_passes, expected) << chip;
  }
}

TEST_F(CuptiCounterTable, NamesDifferFromChipToChip) {
  const auto dram = [&](const char* chip) {
    return resolved(host(chip), {"dram_read_bytes", "dram_write_bytes"});
  };
  for (const char* chip : {"GA100", "GA102", "AD102", "GH100", "GB100", "GB110"}) {
    EXPECT_EQ(dram(chip)[0].metric, "dram__bytes_read.sum") << chip;
    EXPECT_EQ(dram(chip)[1].metric, "dram__bytes_write.sum") << chip;
  }
  EXPECT_EQ(dram("GB202")[0].metric, "dram__bytes_op_read.sum");
  const std::vector<Counter> spark = dram("GB10B");
  EXPECT_EQ(spark[0].metric, "lts__d_sectors_fill_sysmem.sum");
  EXPECT_EQ(spark[0].scale, 32);
  EXPECT_THAT(spark[0].note, HasSubstr("no DRAM counters"));
  EXPECT_EQ(spark[1].metric, "");
  EXPECT_THAT(spark[1].note, HasSubstr("chip GB10B has no dram__bytes_write.sum nor"));

  EXPECT_NE(named(resolved(host("GH100"), stall_counters()), "stall_gmma").metric, "");
  EXPECT_EQ(named(resolved(host("GA100"), stall_counters()), "stall_gmma").metric, "");
  EXPECT_EQ(named(resolved(host("GB100"), stall_counters()), "stall_imc_miss").metric, "");
}

TEST_F(CuptiCounterTable, AnUnknownChipOrMetricIsRefusedInWords) {
  try {
    host("GX999");
    FAIL() << "a chip that does not exist was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_THAT(error.what(), HasSubstr("CUPTI"));
  }
  EXPECT_THROW(host("GH100").plan({"sm__cycles_elapsed.max", "no_such_metric.sum"}), Error);
  EXPECT_FALSE(host("GH100").has("no_such_metric.sum"));
}

TEST(CounterTable, AnUnknownCounterIsAUsageErrorThatNamesTheKnown) {
  try {
    resolve_counters(std::vector<std::string>{"nonsense"}, "GH100",
                     [](std::string_view) { return true; });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("dram_read_bytes"));
  }
}

TEST(CounterTable, SetsHoldDistinctKnownNames) {
  std::vector<std::string> all = all_counters();
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
  size_t in_sets = 0;
  for (const auto& set : {core_counters(), cache_counters(), stall_counters()}) {
    in_sets += set.size();
    for (const std::string& name : set) {
      EXPECT_TRUE(std::binary_search(all.begin(), all.end(), name)) << name;
    }
  }
  EXPECT_EQ(in_sets, all.size() + 1) << "long_scoreboard belongs to two";
}

TEST_F(CuptiCounterTable, ErrorsAreSentences) {
  for (const auto& [code, word] :
       {std::pair{CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, "administrators"},
        {CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, "another profiler"},
        {CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED, "MIG"},
        {CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED, "WSL"},
        {CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED, "virtual GPU"},
        {CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED, "confidential"},
        {CUPTI_ERROR_HARDWARE_BUSY, "another program"},
        {CUPTI_ERROR_INVALID_CHIP_NAME, "does not know the GPU"}}) {
    const std::string text = cupti_problem(*api_, code);
    EXPECT_THAT(text, HasSubstr(word));
    EXPECT_THAT(text, HasSubstr(std::to_string(static_cast<int>(code))));
  }
  EXPECT_THAT(cupti_problem(*api_, CUPTI_ERROR_QUEUE_EMPTY), HasSubstr("refused with 18"));
}

}  // namespace
}  // namespace fathom::cuda
