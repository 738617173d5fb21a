// SPDX-License-Identifier: Apache-2.0
// Descriptions of nodes as a device gives them: addresses may differ, nothing else may.
#include "measure/verbatim.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fathom::measure {
namespace {

using testing::HasSubstr;

KernelLaunch partial() {
  KernelLaunch out;
  out.kernel = "attn_seed_partial_kernel<128, 4, false, 1>";
  out.grid = {32, 28, 1};
  out.block = {32, 1, 1};
  out.shared_bytes = 0;
  out.code_hash = 0x1234;
  out.arguments = {
      {0, 0, 8, 0x0000000400000001, false}, {0, 8, 8, 0x7f1200000000, true}, {0, 16, 4, 1, false}};
  return out;
}

std::string difference_with(const std::function<void(KernelLaunch&)>& change) {
  KernelLaunch probed = partial();
  change(probed);
  return verbatim_difference({partial()}, {{probed}, {probed}}).value_or("");
}

TEST(Verbatim, AddressesMayDifferAndNothingElse) {
  EXPECT_EQ(difference_with([](KernelLaunch&) {}), "");
  EXPECT_EQ(difference_with([](KernelLaunch& k) { k.arguments[1].value += 4096; }), "");
  EXPECT_THAT(
      difference_with([](KernelLaunch& k) { k.kernel = "attn_seed_partial_kernel<128, 8>"; }),
      HasSubstr("symbol: attn_seed_partial_kernel<128, 4, false, 1> in the engine"));
  EXPECT_THAT(difference_with([](KernelLaunch& k) { k.code_hash = 7; }), HasSubstr("code: hash"));
  EXPECT_THAT(difference_with([](KernelLaunch& k) { k.code_hash = 0; }),
              HasSubstr("nothing is known"));
  EXPECT_THAT(difference_with([](KernelLaunch& k) {
                k.grid = {64, 28, 1};
              }),
              HasSubstr("grid: 32 x 28 x 1 in the engine, 64 x 28 x 1 in the probe"));
  EXPECT_THAT(difference_with([](KernelLaunch& k) { k.block = {256, 1, 1}; }), HasSubstr("block"));
  EXPECT_THAT(difference_with([](KernelLaunch& k) { k.shared_bytes = 16; }),
              HasSubstr("shared memory: 0 in the engine, 16"));
  EXPECT_THAT(difference_with([](KernelLaunch& k) { k.arguments[2].value = 4; }),
              HasSubstr("argument 0 at byte 16: 0x1 in the engine, 0x4 in the probe"));
  EXPECT_THAT(difference_with([](KernelLaunch& k) { k.arguments[1].is_address = false; }),
              HasSubstr("an address in the engine, a value in the probe"));
  EXPECT_THAT(difference_with([](KernelLaunch& k) { k.arguments.pop_back(); }),
              HasSubstr("words of arguments: 3"));
  EXPECT_THAT(difference_with([](KernelLaunch& k) { k.arguments.clear(); }),
              HasSubstr("none were recorded"));
}

TEST(Verbatim, KernelsOfACallAreComparedInTheirOrder) {
  KernelLaunch combine = partial();
  combine.kernel = "attn_seed_combine_kernel<128>";
  const std::vector<KernelLaunch> both{partial(), combine}, twice{partial(), partial()},
      one{partial()}, none;
  EXPECT_FALSE(verbatim_difference(both, {both, both}).has_value());
  EXPECT_THAT(*verbatim_difference(both, {twice, twice}), HasSubstr("kernel 2 of 2: symbol"));
  EXPECT_THAT(*verbatim_difference(both, {one, one}), HasSubstr("kernels: 2"));
  EXPECT_THAT(*verbatim_difference(both, {both, one}), HasSubstr("second capture"));
  EXPECT_TRUE(verbatim_difference(none, {none, none}).has_value()) << "nothing proves nothing";
  const ComparedBytes bytes = compared_bytes({both, both});
  EXPECT_EQ(bytes.values, 24);
  EXPECT_EQ(bytes.padding, 0);
  EXPECT_EQ(bytes.addresses, 16);
}

// As the production kernel of attention had it: three bytes behind a bool.
TEST(Verbatim, PaddingIsNobodys) {
  const auto with = [](uint64_t value) {
    KernelLaunch out = partial();
    out.arguments[0].value = value;
    return std::vector<KernelLaunch>{out};
  };
  const std::vector<KernelLaunch> engine = with(0x3f80000000000001),
                                  probed = with(0x3f8000007f010001);
  EXPECT_THAT(*verbatim_difference(engine, {probed, probed}), HasSubstr("argument 0 at byte 0"));
  const ProbedCall known{probed, with(0x3f800000aaaa0001)};
  EXPECT_FALSE(verbatim_difference(engine, known).has_value());
  EXPECT_EQ(compared_bytes(known).padding, 2);
  EXPECT_EQ(compared_bytes(known).values, 10);
  EXPECT_TRUE(verbatim_difference(with(0x3f80000000000002), known).has_value())
      << "the bytes beside it are compared";
}

}  // namespace
}  // namespace fathom::measure
