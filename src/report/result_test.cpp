// SPDX-License-Identifier: Apache-2.0
// Documents against the schema in docs/result_schema.md.
#include "report/result.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "tests/support/json_schema.hpp"

namespace fathom::report {
namespace {

using test::result_problems;

Result example() {
  Result result;
  result.command = {"fathom", "bench"};
  result.machine = machine_json(measure::inspect_machine());
  result.samples.push_back({{"arm", "tg128"}, {"round", 0}, {"ns", 12.5}});
  result.gates = {{"ceiling", true, 0.8, 1.03, "fine"}, {"additivity", true, {}, {}, "no ops"}};
  return result;
}

TEST(Result, MeetsItsSchema) {
  EXPECT_THAT(result_problems(example().to_json()), testing::IsEmpty());
  EXPECT_TRUE(example().trusted());
}

TEST(Result, AFailedGateIsNamedAndNotTrusted) {
  Result result = example();
  result.gates.push_back({"overhead", false, 0.2, 0.1, "watching costs 20 %"});
  EXPECT_FALSE(result.trusted());
  EXPECT_THAT(failed_gates(result.gates),
              testing::ElementsAre("gate overhead failed: watching costs 20 %"));
}

TEST(Result, OnlyKnownGates) {
  Result result = example();
  result.gates.push_back({"vibes", true, {}, {}, ""});
  EXPECT_THROW(result.to_json(), Error);
}

TEST(Result, SchemaRefusesWhatItShould) {
  const Json good = example().to_json();
  for (const char* field : {"schema", "command", "machine", "samples", "summary", "gates"}) {
    Json broken = good;
    broken.erase(field);
    EXPECT_THAT(result_problems(broken), testing::SizeIs(1)) << field;
  }
  Json broken = good;
  broken["schema"] = "fathom-result/2";
  broken["more"] = 1;
  broken["machine"]["usable_cpus"] = 0;
  broken["samples"][0].erase("arm");
  broken["gates"][0]["id"] = "vibes";
  broken["gates"][1]["pass"] = "yes";
  EXPECT_THAT(result_problems(broken), testing::SizeIs(6));
}

TEST(Result, UnknownsAreNull) {
  measure::Machine machine;
  machine.isas = {"scalar"};
  const Json json = machine_json(machine);
  EXPECT_TRUE(json["cpu_mhz"].is_null());
  EXPECT_TRUE(json["cgroup_memory_bytes"].is_null());
  EXPECT_TRUE(json["huge_pages"].is_null());
}

}  // namespace
}  // namespace fathom::report
