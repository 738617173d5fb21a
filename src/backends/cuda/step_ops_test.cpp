// SPDX-License-Identifier: Apache-2.0
// One small launch for every kernel of a step, for the sanitizers (scripts/gpu/check.sh): twice to
// equal bits over poisoned outputs and scratch, with counters left as they were.
#include "tests/support/step_ops.hpp"

#include "tests/support/emulated.hpp"

namespace fathom {
namespace {

using namespace test;

class StepOps : public StepOpTest {};

TEST_P(StepOps, HasTheSameBitsAgain) {
  const StepOpKind kind = GetParam().kind;
  if (kIsEmulated && kind == StepOpKind::attn) GTEST_SKIP() << "few variants are emulated";
  if (kIsEmulated && GetParam().outputs > 2048) GTEST_SKIP() << "too large for the emulator";
  const StepOp op = make();
  std::vector<std::vector<std::byte>> first;
  for (int i = 0; i < 2; ++i) {
    prepare(op);
    op.launch();
    const std::vector<std::vector<std::byte>> got = results(op);
    if (i == 0) first = got;
    EXPECT_EQ(got, first);
    EXPECT_TRUE(counters_are_zero());
  }
  // All that is not a cache or codes are finite floats.
  const bool is_floats = kind != StepOpKind::gate_up_codes;
  for (size_t i = 0; i < (is_floats ? first.size() : 0); ++i) {
    if (kind == StepOpKind::qkv && i > 0) continue;
    const auto* values = reinterpret_cast<const float*>(first[i].data());
    for (size_t k = 0; k < first[i].size() / sizeof(float); ++k) {
      ASSERT_TRUE(std::isfinite(values[k])) << "output " << i << ", value " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sanitized, StepOps, testing::ValuesIn(kStepOpCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace fathom
