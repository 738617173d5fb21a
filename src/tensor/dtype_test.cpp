// SPDX-License-Identifier: Apache-2.0
// The type table: geometry of the sixteen formats, names, and what other ids mean.
#include "tensor/dtype.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace fathom {
namespace {

TEST(DType, GeometryOfAllSixteenFormats) {
  struct Expected {
    const char* name;
    uint32_t id;
    int block_elems, block_bytes;
  };
  constexpr Expected kExpected[] = {
      {"F32", 0, 1, 4},       {"F16", 1, 1, 2},       {"BF16", 30, 1, 2},
      {"Q4_0", 2, 32, 18},    {"Q4_1", 3, 32, 20},    {"Q5_0", 6, 32, 22},
      {"Q5_1", 7, 32, 24},    {"Q8_0", 8, 32, 34},    {"Q2_K", 10, 256, 84},
      {"Q3_K", 11, 256, 110}, {"Q4_K", 12, 256, 144}, {"Q5_K", 13, 256, 176},
      {"Q6_K", 14, 256, 210}, {"IQ4_NL", 20, 32, 18}, {"IQ4_XS", 23, 256, 136},
      {"MXFP4", 39, 32, 17},
  };
  EXPECT_EQ(all_dtypes().size(), std::size(kExpected));
  for (const Expected& e : kExpected) {
    SCOPED_TRACE(e.name);
    const DTypeInfo& info = dtype_info(static_cast<DType>(e.id));
    EXPECT_STREQ(info.name, e.name);
    EXPECT_EQ(info.block_elems, e.block_elems);
    EXPECT_EQ(info.block_bytes, e.block_bytes);
    EXPECT_EQ(lookup_dtype(e.id).status, DTypeStatus::supported);
    EXPECT_EQ(dtype_from_name(e.name), info.type);
  }
}

TEST(DType, NamesIgnoreCaseAndNothingElse) {
  EXPECT_EQ(dtype_from_name("q4_k"), DType::q4_k);
  EXPECT_EQ(dtype_from_name("iq4_XS"), DType::iq4_xs);
  EXPECT_EQ(dtype_from_name("q4k"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
  EXPECT_EQ(dtype_from_name("Q8_1"), std::nullopt) << "known, but not a weight type here";
}

TEST(DType, OtherIdsAreNamed) {
  for (const uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u}) {
    EXPECT_EQ(lookup_dtype(id).status, DTypeStatus::removed) << id;
  }
  EXPECT_STREQ(lookup_dtype(16).name, "IQ2_XXS");
  EXPECT_EQ(lookup_dtype(16).status, DTypeStatus::known_unsupported);
  EXPECT_EQ(lookup_dtype(43).status, DTypeStatus::unknown);
  EXPECT_EQ(lookup_dtype(0xffffffffu).status, DTypeStatus::unknown);
  std::set<std::string> names;
  for (uint32_t id = 0; id < 43; ++id) {
    EXPECT_NE(lookup_dtype(id).status, DTypeStatus::unknown) << id;
    EXPECT_TRUE(names.insert(lookup_dtype(id).name).second) << id;
  }
}

TEST(DType, RowBytesAndBitsPerValue) {
  EXPECT_EQ(row_bytes(DType::q4_k, 3584), 3584 / 256 * 144);
  EXPECT_EQ(row_bytes(DType::bf16, 7), 14);
  EXPECT_EQ(row_bytes(DType::mxfp4, 64), 34);
  EXPECT_DOUBLE_EQ(dtype_info(DType::q6_k).bits(), 6.5625);
  EXPECT_DOUBLE_EQ(dtype_info(DType::q2_k).bits(), 2.625);
}

}  // namespace
}  // namespace fathom
