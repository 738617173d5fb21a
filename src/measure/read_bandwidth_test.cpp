// SPDX-License-Identifier: Apache-2.0
// Each stream reads every line exactly once, and the figure comes with what it was taken with.
#include "measure/read_bandwidth.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "base/cpu_features.hpp"
#include "measure/read_stream.hpp"

namespace fathom::measure {
namespace {

constexpr int64_t kBytes = 64 << 10;

struct alignas(64) Buffer {
  std::byte bytes[kBytes];
};

// A stream that skipped or repeated a line would not feel that line's change exactly once.
TEST(ReadStream, EveryLineCountsOnce) {
  const auto buffer = std::make_unique<Buffer>();
  for (const ReadStreamTable* table : {&kReadStreamScalar, &kReadStreamAvx2, &kReadStreamAvx512}) {
    if (!cpu_isa_usable(table->isa)) {
      GTEST_LOG_(INFO) << table->isa << " is not supported by this machine: not run";
      continue;
    }
    for (int variant = 0; variant < kStreamVariants; ++variant) {
      std::memset(buffer->bytes, 0, kBytes);
      const ReadStream read = table->variants[variant];
      EXPECT_EQ(read(buffer->bytes, kBytes), 0u);
      for (int64_t at = 0; at < kBytes; at += 8) {
        const uint64_t mark = 1;
        std::memcpy(buffer->bytes + at, &mark, 8);
        ASSERT_EQ(read(buffer->bytes, kBytes), 1u)
            << table->isa << " streams " << kStreamCounts[variant] << " at byte " << at;
        std::memset(buffer->bytes + at, 0, 8);
      }
    }
  }
}

TEST(ReadBandwidth, GivesAPlausibleRateAndWhatItWasTakenWith) {
  ReadBandwidth bandwidth({.threads = 1, .buffer_bytes = 64 << 20});
  const double gbps = bandwidth.sample_gbps(0.02);
  EXPECT_GT(gbps, 0.1);
  EXPECT_LT(gbps, 2000);
  EXPECT_EQ(bandwidth.threads(), 1);
  EXPECT_EQ(bandwidth.buffer_bytes(), 64 << 20);
  EXPECT_LE(bandwidth.huge_page_bytes(), bandwidth.buffer_bytes());
}

TEST(ReadBandwidth, LastLevelCacheIsKnownOrAssumed) {
  EXPECT_GE(last_level_cache_bytes(), 256 << 10);
}

}  // namespace
}  // namespace fathom::measure
