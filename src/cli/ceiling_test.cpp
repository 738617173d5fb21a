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
            "above the 40.0 GB/s measured here, as the CPU's cache holds part of the model");
}

}  // namespace
}  // namespace fathom::cli
