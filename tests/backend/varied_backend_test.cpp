// SPDX-License-Identifier: Apache-2.0
// The entry that a variant replaces, the others that it leaves, and names that are none.
#include "engine/varied_backend.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu/cpu_backend.hpp"
#include "base/error.hpp"

namespace fathom::engine {
namespace {

void other_attn(ExecContext&, const AttnArgs&) {}

std::span<const OpVariant> two_variants() {
  static const std::vector<OpVariant> kAll{
      {.op = "attn",
       .name = "other",
       .knobs = {{"splits", 32}, {"staging", 4}},
       .apply = [](OpTable& table) { table.attn = other_attn; }},
      {.op = "attn",
       .name = "other:splits=64",
       .knobs = {{"splits", 64}, {"staging", 4}},
       .apply = [](OpTable& table) { table.attn = attn_ref; }}};
  return {kAll.data(), kAll.size()};
}

TEST(VariedBackend, ReplacesOneEntry) {
  Backend backend = cpu_backend();
  backend.variants = two_variants;
  EXPECT_EQ(vary_backend(backend, ""), nullptr);
  const auto varied = vary_backend(backend, "other");
  ASSERT_EQ(varied->backend.ops, &varied->ops);
  EXPECT_EQ(varied->ops.attn, other_attn);
  EXPECT_EQ(varied->ops.norm_head, cpu_ops().norm_head);
  EXPECT_STREQ(varied->backend.name, backend.name);
  EXPECT_EQ(vary_backend(backend, "other:splits=64")->ops.attn, attn_ref);
  EXPECT_EQ(cpu_ops().attn, attn_cpu) << "the backend's own table";
}

TEST(VariedBackend, KnobsStandInAnyOrderAndTheBasesMayBeNamed) {
  Backend backend = cpu_backend();
  backend.variants = two_variants;
  EXPECT_EQ(find_variant(backend, "other:splits=32").name, "other");
  EXPECT_EQ(find_variant(backend, "other:staging=4,splits=64").name, "other:splits=64");
  for (const char* name : {"other:", "other:splits", "other:splits=", "other:splits=64x",
                           "other:warps=1", "oth", "other:splits=64,staging=8"}) {
    EXPECT_THROW(find_variant(backend, name), Error) << name;
  }
}

TEST(VariedBackend, SaysWhichNamesThereAre) {
  const auto error_of = [](const Backend& backend, const char* name) -> std::string {
    try {
      vary_backend(backend, name);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of(cpu_backend(), "seed"), testing::HasSubstr("backend cpu has no variants"));
  Backend backend = cpu_backend();
  backend.variants = two_variants;
  EXPECT_THAT(error_of(backend, "other:splits=7"), testing::HasSubstr("splits=32|64, staging=4"));
}

}  // namespace
}  // namespace fathom::engine
