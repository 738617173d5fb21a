// SPDX-License-Identifier: Apache-2.0
// Names, refusals and scratch of the seed's attention.
#include "kernels/attn/attn_seed_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.hpp"

namespace fathom::cuda {
namespace {

AttnArgs::Static shape(KvFormat format, int head_dim) {
  AttnArgs::Static s{};
  s.n_heads = 28;
  s.n_kv_heads = 4;
  s.head_dim = head_dim;
  s.kv.geometry = {format, 4, head_dim, 64};
  s.max_rows = 512;
  s.n_ctx = 4096;
  return s;
}

TEST(AttnSeedPlan, NamesTellVariantsApart) {
  EXPECT_EQ(attn_seed_name({}), "seed");
  EXPECT_EQ(attn_seed_name(kAttnSeedKnobs[0]), "seed");
  EXPECT_EQ(attn_seed_name({.splits = 8, .stages_values = true, .warps = 8, .window = 256}),
            "seed:splits=8,values=1,warps=8,window=256");
  std::set<std::string> names;
  for (const AttnSeedKnobs& knobs : kAttnSeedKnobs) {
    names.insert(attn_seed_name(knobs));
    EXPECT_GE(knobs.window / knobs.warps, 4) << "a warp takes whole quads of a window";
    EXPECT_EQ(knobs.window & (knobs.window - 1), 0);
  }
  EXPECT_EQ(names.size(), kAttnSeedVariants);
}

TEST(AttnSeedPlan, RefusesByName) {
  const auto error_of = [](const AttnArgs::Static& s) -> std::string {
    try {
      check_attn_seed(s);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(shape(KvFormat::f16, 128)), "");
  EXPECT_EQ(error_of(shape(KvFormat::f16, 64)), "");
  EXPECT_THAT(error_of(shape(KvFormat::q8_0, 128)), testing::HasSubstr("f16 cache, not q8_0"));
  EXPECT_THAT(error_of(shape(KvFormat::f16, 96)), testing::HasSubstr("head dim 96"));
}

TEST(AttnSeedPlan, ScratchHoldsTheMostSplitsOfAStep) {
  AttnArgs::Static s = shape(KvFormat::f16, 128);
  EXPECT_EQ(attn_seed_scratch_bytes(s), int64_t{32} * 28 * 128 * 130 * 4);
  s.max_rows = 1;
  EXPECT_EQ(attn_seed_scratch_bytes(s), int64_t{28} * 128 * 130 * 4);
}

}  // namespace
}  // namespace fathom::cuda
