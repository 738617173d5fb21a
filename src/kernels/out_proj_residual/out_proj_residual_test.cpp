// SPDX-License-Identifier: Apache-2.0
// The shared test of the projections into the residual stream, for out_proj_residual.
#include "kernels/out_proj_residual/out_proj_residual.hpp"

#include <gtest/gtest.h>

#include "tests/support/proj_residual_cases.hpp"

namespace fathom {
namespace {

class OutProjResidual : public testing::TestWithParam<test::ProjResidualCase> {};

TEST_P(OutProjResidual, EqualsTheReference) {
  test::expect_equals_reference(out_proj_residual_cpu, out_proj_residual_ref, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Formats, OutProjResidual, test::proj_residual_cases(),
                         test::proj_residual_name);

}  // namespace
}  // namespace fathom
