// SPDX-License-Identifier: Apache-2.0
// Planned bytes equal allocated ones, tiles never overlap, pages come and go, and a refused append
// changes nothing.
#include "cache/gqa/gqa_cache.hpp"

#include <gmock/gmock.h>

#include <set>

#include "base/error.hpp"
#include "device/host_device.hpp"
#include "tests/support/kv_formats.hpp"

namespace fathom {
namespace {

GqaCacheConfig small(int page_tokens = 0, KvFormat format = KvFormat::f16) {
  return {format, 3, 2, 64, 100, 2, page_tokens};
}

class GqaCacheGeometry : public testing::TestWithParam<std::tuple<int, KvFormat>> {};

TEST_P(GqaCacheGeometry, PlannedEqualsAllocated) {
  const auto [page_tokens, format] = GetParam();
  const GqaCacheConfig config = small(page_tokens, format);
  const GqaCache cache(host_device(), config);
  EXPECT_EQ(cache.allocated_bytes(), GqaCache::planned_bytes(config));
}

// Every token of every head has its own tile lane: no two offsets collide, none leaves the memory.
TEST_P(GqaCacheGeometry, TilesAreDisjointAndInside) {
  const auto [page_tokens, format] = GetParam();
  GqaCache cache(host_device(), small(page_tokens, format));
  const int first = cache.open_slot(), second = cache.open_slot();
  cache.append(first, 40);
  cache.append(second, 100);
  cache.append(first, 60);
  const KvLayerView view = cache.layer(1);
  std::set<int64_t> tiles;
  for (const int slot : {first, second}) {
    const int32_t* pages = cache.page_table() + int64_t{slot} * cache.max_pages();
    for (int head = 0; head < 2; ++head) {
      for (int64_t token = 0; token < 100; token += kKvTileTokens) {
        const int64_t offset = view.tile_offset(pages, head, token);
        EXPECT_TRUE(tiles.insert(offset).second) << slot << " " << head << " " << token;
        EXPECT_LE(view.k + offset + view.geometry.tile_bytes(), view.v);
        EXPECT_LE(view.v + offset + view.geometry.tile_bytes(), cache.layer(2).k);
      }
    }
  }
  EXPECT_EQ(tiles.size(), 2u * 2 * 7);
}

INSTANTIATE_TEST_SUITE_P(All, GqaCacheGeometry,
                         testing::Combine(testing::Values(0, 16, 64, 256),
                                          testing::ValuesIn(test::all_kv_formats())));

TEST(GqaCache, BytesByHand) {
  // f16, 2 heads of 64: 2*2*64*2 = 512 bytes a token; 112 tokens padded, 2 slots, 3 layers; table.
  EXPECT_EQ(GqaCache::geometry(small()).token_bytes(), 512);
  EXPECT_EQ(GqaCache::planned_bytes(small()), 512 * 112 * 2 * 3 + 2 * 4);
  EXPECT_EQ(GqaCache::planned_bytes(small(16)), 512 * 112 * 2 * 3 + 2 * 7 * 4);
  EXPECT_EQ(GqaCache::geometry(small(0, KvFormat::q8_0)).token_bytes(), 2 * 2 * (64 + 4));
  EXPECT_EQ(GqaCache::geometry(small(0, KvFormat::fp8_e4m3)).token_bytes(), 2 * 2 * (64 + 4));
}

TEST(GqaCache, PagesComeAndGo) {
  GqaCache cache(host_device(), small(16));
  const int slot = cache.open_slot();
  EXPECT_EQ(cache.used_pages(), 0);
  cache.append(slot, 16);
  EXPECT_EQ(cache.used_pages(), 1);
  cache.append(slot, 1);
  EXPECT_EQ(cache.used_pages(), 2);
  cache.truncate(slot, 17);
  EXPECT_EQ(cache.used_pages(), 2);
  cache.truncate(slot, 16);
  EXPECT_EQ(cache.used_pages(), 1);
  EXPECT_EQ(cache.length(slot), 16);
  cache.close_slot(slot);
  EXPECT_EQ(cache.used_pages(), 0);
}

TEST(GqaCache, RefusesWhatDoesNotFitAndChangesNothing) {
  GqaCache cache(host_device(), small(16));
  const int slot = cache.open_slot();
  cache.append(slot, 90);
  const int64_t pages = cache.used_pages();
  try {
    cache.append(slot, 11);
    FAIL() << "101 tokens went into 100";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_THAT(e.what(), testing::HasSubstr("11 tokens do not fit: the context holds 100, of "
                                             "which 90 are used"));
  }
  EXPECT_EQ(cache.length(slot), 90);
  EXPECT_EQ(cache.used_pages(), pages);
  cache.append(slot, 10);
  EXPECT_THROW(cache.truncate(slot, 101), Error);
  cache.open_slot();
  EXPECT_THROW(cache.open_slot(), Error);
}

TEST(GqaCache, RefusesOddGeometry) {
  EXPECT_THROW(GqaCache::validate(small(24)), Error);
  GqaCacheConfig config = small(0, KvFormat::q8_0);
  config.head_dim = 80;
  EXPECT_THROW(GqaCache::validate(config), Error);
  config.format = KvFormat::fp8_e4m3;  // a scale for the whole head
  GqaCache::validate(config);
  config.format = KvFormat::q8_0;
  config.head_dim = 96;
  GqaCache::validate(config);
}

}  // namespace
}  // namespace fathom
