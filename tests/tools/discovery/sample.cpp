// SPDX-License-Identifier: Apache-2.0
// One case of each outcome. That Fails fails is the point: ctest must say so beside the skipped
// one.
#include <gtest/gtest.h>

TEST(Sample, Passes) { EXPECT_EQ(1 + 1, 2); }
TEST(Sample, Skips) { GTEST_SKIP() << "this machine lacks something"; }
TEST(Sample, Fails) { EXPECT_EQ(1 + 1, 3); }
