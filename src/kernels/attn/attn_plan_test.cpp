// SPDX-License-Identifier: Apache-2.0
// The host's part of attn_cuda: what it refuses, how rows share passes, and the size of scratch.
#include "kernels/attn/attn_plan.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "kernels/exec_context.hpp"

namespace fathom::cuda {
namespace {

AttnArgs::Static shape(int n_heads, int n_kv_heads, int head_dim, KvFormat format = KvFormat::f16) {
  AttnArgs::Static s{};
  s.n_heads = n_heads;
  s.n_kv_heads = n_kv_heads;
  s.head_dim = head_dim;
  s.kv.geometry = {format, n_kv_heads, head_dim, 64};
  s.max_rows = 512;
  s.n_ctx = 32768;
  return s;
}

void expect_unsupported(const AttnArgs::Static& s) {
  try {
    check_attn_cuda(s);
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
  }
}

TEST(AttnPlan, RefusesWhatNoKernelIsBuiltFor) {
  for (const int head_dim : {16, 32, 64, 80, 96, 128, 256}) check_attn_cuda(shape(28, 4, head_dim));
  check_attn_cuda(shape(16, 1, 128, KvFormat::q8_0));
  check_attn_cuda(shape(4, 4, 80, KvFormat::fp8_e4m3));
  expect_unsupported(shape(17, 1, 64));
  expect_unsupported(shape(4, 4, 48));
  expect_unsupported(shape(4, 4, 80, KvFormat::q8_0));
}

TEST(AttnPlan, ColumnsOfAnEntryFitItsTiles) {
  for (int group = 1; group <= kAttnMaxCudaGroup; ++group) {
    for (const KvFormat format :
         {KvFormat::f32, KvFormat::f16, KvFormat::q8_0, KvFormat::fp8_e4m3}) {
      for (const int n_rows : {1, 32, 33, 5000}) {
        for (const bool fits : {false, true}) {
          const AttnArgs::Static s = shape(2 * group, 2, 64, format);
          if (!fits && group > kAttnTileColumns) {
            EXPECT_THROW(plan_attn_cuda(s, n_rows, fits), Error);
            continue;
          }
          const AttnPlan plan = plan_attn_cuda(s, n_rows, fits);
          EXPECT_LE(plan.rows_per_entry * group, plan.n_tiles * kAttnTileColumns);
          EXPECT_GE(plan.rows_per_entry, 1);
          EXPECT_EQ(plan.rows_per_launch % plan.rows_per_entry, 0);
          EXPECT_LE(int64_t{plan.rows_per_launch} * 2 * (plan.n_tiles == 1 ? kAttnCluster : 1) * 4,
                    kCounterBytes);
        }
      }
    }
  }
}

TEST(AttnPlan, ManyRowsOfHalvesAndCodesHaveAKernel) {
  for (const KvFormat format : {KvFormat::f16, KvFormat::bf16, KvFormat::q8_0}) {
    EXPECT_FALSE(plans_attn_flash(shape(28, 4, 128, format), kAttnFlashRows - 1));
    for (const int head_dim : {64, 96, 128, 256}) {
      EXPECT_TRUE(plans_attn_flash(shape(28, 4, head_dim, format), kAttnFlashRows));
    }
    EXPECT_FALSE(plans_attn_flash(shape(28, 4, 32, format), 512));
  }
  EXPECT_FALSE(plans_attn_flash(shape(28, 4, 128, KvFormat::f32), 512));
}

TEST(AttnPlan, ScratchHoldsADecodingSequenceAndStaysBounded) {
  AttnArgs::Static s = shape(28, 4, 128);
  for (const int64_t n_ctx : {300, 32768, 1 << 20}) {
    for (const int64_t max_rows : {1, 8, 2048}) {
      s.n_ctx = n_ctx;
      s.max_rows = max_rows;
      const int64_t one = (n_ctx + 511) / 512 * s.n_kv_heads * attn_slot_bytes(1, s.head_dim);
      EXPECT_GE(attn_scratch_bytes(s), one);
      EXPECT_LE(attn_scratch_bytes(s), std::max(int64_t{64} << 20, 8 * one));
    }
  }
  s.n_ctx = 128;
  EXPECT_EQ(attn_scratch_bytes(s), 0) << "a single unit needs none";
}

}  // namespace
}  // namespace fathom::cuda
