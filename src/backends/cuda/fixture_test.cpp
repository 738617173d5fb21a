// SPDX-License-Identifier: Apache-2.0
// The fixture of GPU tests itself: copies there and back, and poison.
#include "tests/support/cuda_fixture.hpp"

#include <gtest/gtest.h>

#include "tests/support/compare.hpp"

namespace fathom {
namespace {

class CudaFixture : public test::CudaTest {};

TEST_F(CudaFixture, CopiesThereAndBackAndPoisons) {
  const std::vector<float> values{1, -2, 3.5f};
  EXPECT_TRUE(test::same_bits(download(upload(values)), values));
  for (const int32_t x : download(poisoned<int32_t>(70))) EXPECT_EQ(x, -1);
  EXPECT_TRUE(download(upload(std::vector<int>{})).empty());
  use_workspace(100);
  EXPECT_EQ(ctx().workspace.bytes, 100);
}

}  // namespace
}  // namespace fathom
