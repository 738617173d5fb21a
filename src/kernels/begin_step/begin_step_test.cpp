// SPDX-License-Identifier: Apache-2.0
// The reference of begin_step: places of the ring in turn, tokens that the host does not know, and
// a history without padding.
#include "kernels/begin_step/begin_step.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/begin_step/begin_step_cases.hpp"

namespace fathom {
namespace {

TEST(BeginStep, TakesThePlaceOfItsStep) {
  BeginStepCase c(3, 2);
  ExecContext ctx;
  for (int step = 0; step < 2 * kStepRing + 1; ++step) {
    c.n_steps = step;
    begin_step_ref(ctx, c.args());
    EXPECT_EQ(c.n_steps, step + 1);
    const int place = step % kStepRing;
    EXPECT_EQ(c.rows[0], c.token(place, 0));
    EXPECT_EQ(c.rows[1], c.newest[1]) << "a token that the device drew";
    EXPECT_EQ(c.rows[2], 0);
    for (int row = 0; row < 3; ++row) EXPECT_EQ(c.rows[9 + row], row);
    EXPECT_EQ(c.requests[0], c.request(place, 0));
    EXPECT_EQ(c.requests[1], c.request(place, 1));
    EXPECT_EQ(c.history[static_cast<size_t>(c.pos(place, 0))], c.token(place, 0));
    EXPECT_EQ(c.history[static_cast<size_t>(BeginStepCase::kContext + c.pos(place, 1))],
              c.newest[1]);
  }
  EXPECT_EQ(std::count(c.history.begin(), c.history.end(), 0), 0) << "of padding";
}

}  // namespace
}  // namespace fathom
