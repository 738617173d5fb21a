// SPDX-License-Identifier: Apache-2.0
// A rate beside the read bandwidth that was measured earlier: its share, or why it lies above.
#include "cli/ceiling.hpp"

#include <gmock/gmock.h>

namespace fathom::cli {
namespace {

constexpr int64_t kLlcBytes = 32 << 20;
constexpr int64_t kModelBytes = 400 << 20;

TEST(ShareOfPeak, UpToTheCeilingItIsAPercentage) {
  EXPECT_EQ(share_of_peak(10, 40, kModelBytes, kLlcBytes), "25 % of the 40.0 GB/s measured here");
  EXPECT_EQ(share_of_peak(40, 40, kModelBytes, kLlcBytes), "100 % of the 40.0 GB/s measured here");
}

TEST(ShareOfPeak, AboveItTheCeilingIsTooLowOrTheBytesComeFromTheCache) {
  EXPECT_EQ(share_of_peak(41, 40, kModelBytes, kLlcBytes),
            "above the 40.0 GB/s measured here, which is too low (run `fathom doctor` again)");
  EXPECT_EQ(share_of_peak(41, 40, kModelBytes, 0),
            "above the 40.0 GB/s measured here, which is too low (run `fathom doctor` again)");
  EXPECT_EQ(share_of_peak(41, 40, kLlcBytes, kLlcBytes),
            "above the 40.0 GB/s measured here, as the processor's cache holds part of the model");
  EXPECT_EQ(share_of_peak(41, 40, kModelBytes, 0, "fathom doctor --backend cuda"),
            "above the 40.0 GB/s measured here, which is too low (run `fathom doctor --backend "
            "cuda` again)");
}

TEST(LeastCeiling, FailsBelowWhatTheDeviceIsKnownToGive) {
  EXPECT_EQ(least_ceiling_gbps("some device"), 0);
  EXPECT_TRUE(least_ceiling_gate("NVIDIA H200", 4612).pass);
  const report::Gate low = least_ceiling_gate("NVIDIA H200", 4321.4);
  EXPECT_FALSE(low.pass);
  EXPECT_EQ(low.id, "ceiling");
  EXPECT_EQ(low.value, 4321.4);
  EXPECT_EQ(low.limit, 4500);
  EXPECT_EQ(low.why, "the read ceiling is 4321 GB/s, of an NVIDIA H200 at least 4500 are expected");
}

}  // namespace
}  // namespace fathom::cli
