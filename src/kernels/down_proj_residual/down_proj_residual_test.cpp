// SPDX-License-Identifier: Apache-2.0
// The shared test of the projections into the residual stream, for down_proj_residual.
#include "kernels/down_proj_residual/down_proj_residual.hpp"

#include <gtest/gtest.h>

#include "tests/support/proj_residual_cases.hpp"

namespace fathom {
namespace {

class DownProjResidual : public testing::TestWithParam<test::ProjResidualCase> {};

TEST_P(DownProjResidual, EqualsTheReference) {
  test::expect_equals_reference(down_proj_residual_cpu, down_proj_residual_ref, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Formats, DownProjResidual, test::proj_residual_cases(),
                         test::proj_residual_name);

}  // namespace
}  // namespace fathom
