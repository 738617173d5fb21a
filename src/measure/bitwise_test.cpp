// SPDX-License-Identifier: Apache-2.0
// Each class from evidence made for it, and the distances by hand.
#include "measure/bitwise.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace fathom::measure {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(CompareBits, CountsStepsBetweenFloats) {
  const float next = std::nextafter(1.0f, 2.0f), tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> base{1.0f, tiny, 2.0f, -3.0f}, got{next, -tiny, 2.0f, -3.0f};
  const BitDifference d = compare_bits(got, base, 4);
  EXPECT_EQ(d.n_values, 4);
  EXPECT_EQ(d.n_different, 2);
  EXPECT_EQ(d.max_ulp, 2);  // over zero
  EXPECT_EQ(d.mean_ulp(), 1.5);
  EXPECT_DOUBLE_EQ(d.max_abs, double{next} - 1);
  EXPECT_EQ(d.n_rows, 1);
  EXPECT_EQ(d.n_argmax_flips, 0);
  EXPECT_DOUBLE_EQ(d.share(), 0.5);
}

TEST(CompareBits, NamesSignedZerosAndPayloads) {
  const float nan = std::bit_cast<float>(0x7fc00000u), other = std::bit_cast<float>(0x7fc00001u);
  const BitDifference d =
      compare_bits(std::vector<float>{0.0f, nan}, std::vector<float>{-0.0f, other}, 1);
  EXPECT_EQ(d.n_different, 2);
  EXPECT_EQ(d.n_signed_zeros, 1);
  EXPECT_EQ(d.n_nan_payloads, 1);
  EXPECT_EQ(d.max_ulp, 0);
  EXPECT_EQ(compare_bits(std::vector<float>{kInf}, std::vector<float>{1.0f}, 1).max_abs, kInf);
}

TEST(CompareBits, SeesAnotherArgmax) {
  const std::vector<float> base{1, 2, 5, 4}, got{1, 2, 4, 5};
  EXPECT_EQ(compare_bits(got, base, 2).n_argmax_flips, 1);
  EXPECT_EQ(compare_bits(base, base, 2).n_argmax_flips, 0);
}

BitEvidence evidence(std::vector<float> values) {
  return {.outputs = {values, values, values},
          .width = 2,
          .repeats = true,
          .batch_invariant = true,
          .problem = ""};
}

TEST(Classify, TheWorstEvidenceDecides) {
  const BitEvidence base = evidence({1, 2});
  EXPECT_EQ(classify(base, base).bit_class, BitClass::free);
  BitEvidence variant = base;
  variant.outputs[2][1] = std::nextafter(2.0f, 3.0f);
  EXPECT_EQ(classify(variant, base).bit_class, BitClass::different);
  EXPECT_EQ(classify(variant, base).difference.n_different, 1);
  variant.batch_invariant = false;
  EXPECT_EQ(classify(variant, base).bit_class, BitClass::shape_dependent);
  variant.repeats = false;
  EXPECT_EQ(classify(variant, base).bit_class, BitClass::nondeterministic);
  variant.problem = "over tolerance";
  EXPECT_EQ(classify(variant, base).bit_class, BitClass::fail);
  EXPECT_EQ(classify(variant, base).why, "over tolerance");
  // A variant that equals the base where it was compared is not free if another run differs.
  BitEvidence moving = base;
  moving.repeats = false;
  EXPECT_EQ(classify(moving, base).bit_class, BitClass::nondeterministic);
  EXPECT_EQ(worst(BitClass::free, BitClass::different), BitClass::different);
}

TEST(Canaries, FindWhatIsWrittenBesideAndWhatIsNotWritten) {
  std::vector<std::byte> bytes = poisoned_with_canaries(8);
  EXPECT_EQ(bytes.size(), 8 + 2 * static_cast<size_t>(kCanaryBytes));
  const auto output = [&] {
    std::vector<float> out(2);
    std::copy_n(reinterpret_cast<const float*>(bytes.data() + kCanaryBytes), 2, out.begin());
    return out;
  };
  EXPECT_EQ(n_unwritten(output()), 2);
  EXPECT_EQ(canary_problem(bytes), "");
  const float one = 1;
  std::copy_n(reinterpret_cast<const std::byte*>(&one), 4, bytes.begin() + kCanaryBytes);
  EXPECT_EQ(n_unwritten(output()), 1);
  bytes[kCanaryBytes - 1] = std::byte{0};
  EXPECT_NE(canary_problem(bytes), "");
  bytes = poisoned_with_canaries(8);
  bytes[kCanaryBytes + 8] = std::byte{0};
  EXPECT_NE(canary_problem(bytes), "");
}

}  // namespace
}  // namespace fathom::measure
