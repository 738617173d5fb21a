// SPDX-License-Identifier: Apache-2.0
// Results of `probe` that an H200 gave: their figures follow from their samples, and no others do.
#include "report/probe_report.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "report/recompute.hpp"
#include "tests/support/refused_document.hpp"

namespace fathom::report {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

Json stored(const std::string& name) {
  std::ifstream file(FATHOM_SOURCE_DIR "/bench/results/h200/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return parse_json(text.str(), name);
}

// One size and the first variants of a document, with the gates that these give.
Json only_size(Json document, size_t place, size_t n_variants = 2) {
  Json size = document["summary"]["sizes"][place];
  Json variants = Json::array();
  for (size_t i = 0; i < n_variants; ++i) variants.push_back(size["variants"][i]);
  size["variants"] = variants;
  document["summary"]["sizes"] = Json::array({size});
  Json samples = Json::array();
  for (const Json& sample : document["samples"]) {
    if (sample["batch"] == size["batch"] && sample["depth"] == size["depth"])
      samples.push_back(sample);
  }
  document["samples"] = samples;
  document["gates"] = Json::array();
  for (const Gate& gate : review(document).recomputed.gates) {
    document["gates"].push_back(gate_json(gate));
  }
  return document;
}

TEST(ProbeReport, WhatAnH200GaveFollowsFromItsSamples) {
  std::string text;
  for (const char* name : {"probe_variants.json", "probe_times.json", "probe_freedom.json"}) {
    const Reviewed reviewed = review(stored(name));
    EXPECT_THAT(reviewed.differences, IsEmpty()) << name;
    EXPECT_EQ(reviewed.n_missing, 0u) << name;
    EXPECT_EQ(reviewed.n_stored, 0u) << name << ": samples decide all gates";
    EXPECT_TRUE(reviewed.trusted()) << name;
    text += reviewed.recomputed.text;
  }
  // The tables of the command.
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("attn of qwen2.5-7b, Q4_K weights, f16 cache, batch 4, 1641 tokens: 12.93 "
                      "MiB declared; cold: "),
            HasSubstr("cold us"), HasSubstr("% of memory"),
            HasSubstr("seed: 32x28x1 of 32 threads, 64 registers, 50 % occupancy, 0.21 waves; "
                      "28x1x1 of 128 threads"),
            HasSubstr("freedom map of attn: 24 variants from seed\ntimes: batch 1, 1641 tokens, "
                      "over the base's\n"),
            HasSubstr("staging  4 -> 8     B0 free"), HasSubstr("0.660 (0.657..0.665)  helps")));
}

TEST(ProbeReport, AChangedFigureIsFound) {
  const Json good = only_size(stored("probe_variants.json"), 2);
  ASSERT_THAT(review(good).differences, IsEmpty());
  size_t n_changed = 0;
  for (size_t i = 0; i < 2; ++i) {
    for (const char* memory : {"hot", "cold"}) {
      const Json figures = good["summary"]["sizes"][0]["variants"][i][memory].flatten();
      for (const auto& [path, value] : figures.items()) {
        Json bad = good;
        Json& figure = bad["summary"]["sizes"][0]["variants"][i][memory][Json::json_pointer(path)];
        figure = value.get<double>() * 1.001;
        ++n_changed;
        EXPECT_THAT(review(bad).differences,
                    Contains(HasSubstr(fmt::format("summary.sizes[0].variants[{}].{}", i, memory))))
            << path;
      }
    }
  }
  EXPECT_EQ(n_changed, 2u * 2u * 9u);
  Json bad = good;
  bad["gates"][0]["value"] = 0.1;
  EXPECT_THAT(review(bad).differences, Contains(HasSubstr("gates")));
}

TEST(ProbeReport, AMarkIsTold) {
  Json marked = only_size(stored("probe_variants.json"), 2);
  marked["summary"]["watermark"] = "measured on a GPU that is not idle";
  EXPECT_THAT(review(marked).recomputed.text,
              testing::StartsWith("measured on a GPU that is not idle\n"));
}

TEST(ProbeReport, KernelsApartFollowFromTheirValues) {
  Json apart = only_size(stored("probe_variants.json"), 2);
  apart["summary"]["sizes"][0]["variants"][0]["cold"]["kernels"] = {
      {{"kernel", "partial"}, {"us", 4}, {"ci", {3, 5}}, {"values_us", {3, 4, 5}}},
      {{"kernel", "combine"}, {"us", 2}, {"ci", {1, 3}}, {"values_us", {1, 2, 3}}}};
  EXPECT_THAT(review(apart).differences, IsEmpty());
  EXPECT_THAT(review(apart).recomputed.text, HasSubstr("  cold: partial 4.00 us, combine 2.00 us"));
  apart["summary"]["sizes"][0]["variants"][0]["cold"]["kernels"][1]["us"] = 1;
  EXPECT_THAT(review(apart).differences, Contains(HasSubstr("variants[0].cold.kernels[1].us")));
}

TEST(ProbeReport, AChangedSampleAndAChangedMapAreFound) {
  Json bad = only_size(stored("probe_variants.json"), 2);
  for (Json& sample : bad["samples"]) {
    if (sample["arm"] == "production cold" && sample["round"] < 8) sample["launch_ns"] = 1000;
  }
  EXPECT_THAT(review(bad).differences,
              AllOf(Contains(HasSubstr("variants[1].cold.us")),
                    Contains(HasSubstr("variants[1].cold.over_first.value"))));
  bad = only_size(stored("probe_times.json"), 4, 24);
  for (Json& row : bad["summary"]["freedom_map"]) row["times"] = Json::array();
  EXPECT_THAT(review(bad).differences, Contains(HasSubstr("freedom_map[0].times")));
}

// Catalogue 3 and 4, and more than the memory can give.
TEST(ProbeReport, BytesFasterThanMemoryFailTheCeiling) {
  Json fast = only_size(stored("probe_variants.json"), 2);
  for (Json& sample : fast["samples"]) {
    if (sample["arm"] == "production cold") sample["launch_ns"] = 100;
  }
  const Reviewed reviewed = review(fast);
  EXPECT_THAT(failed_gates(reviewed.gates), Contains(HasSubstr("production: cold")));
  EXPECT_FALSE(reviewed.trusted());
}

TEST(ProbeReport, HostileDocumentsGetOneLine) {
  const Json good = only_size(stored("probe_variants.json"), 0);
  const auto refused = [&](const std::function<void(Json&)>& change) {
    return test::refusal(good, change);
  };
  EXPECT_THAT(refused([](Json& d) { d["samples"].erase(0); }), HasSubstr("round: expected 0"));
  EXPECT_THAT(refused([](Json& d) { d["samples"][0]["launch_ns"] = "fast"; }),
              HasSubstr("expected a number"));
  EXPECT_THAT(refused([](Json& d) { d["samples"][0].erase("type"); }), HasSubstr("is missing"));
  EXPECT_THAT(refused([](Json& d) { d["summary"]["sizes"][0]["variants"][1]["cold"] = 5; }),
              "accepted");
  EXPECT_THAT(refused([](Json& d) { d["summary"]["sizes"][0]["declared"]["kv_bytes"] = -1; }),
              HasSubstr("at least 0"));
  EXPECT_THAT(refused([](Json& d) { d["summary"]["sizes"] = 7; }), HasSubstr("expected an array"));
  EXPECT_THAT(refused([](Json& d) { d["summary"]["sizes"][0]["variants"] = Json::array(); }),
              "accepted");
  EXPECT_THAT(refused([](Json& d) {
                d["summary"]["freedom_map"] = {{{"knob", "a"}, {"to", "1"}}};
                d["summary"]["sizes"][0]["variants"][0]["knobs"] = 5;
              }),
              HasSubstr("expected an object"));
  EXPECT_THAT(refused([](Json& d) {
                d["summary"]["sizes"][0]["variants"][0]["difference"]["n_different"] = 3;
                d["summary"]["sizes"][0]["variants"][0]["difference"]["n_values"] = 0;
              }),
              HasSubstr("more than 0"));
  EXPECT_THAT(refused([](Json& d) {
                Json kept = Json::array();
                for (const Json& s : d["samples"]) {
                  if (s["arm"] != "ceiling" || s["round"] < 3) kept.push_back(s);
                }
                d["samples"] = kept;
              }),
              HasSubstr("3 rounds of a ceiling, 15 of the variant"));
}

}  // namespace
}  // namespace fathom::report
