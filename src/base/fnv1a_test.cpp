// SPDX-License-Identifier: Apache-2.0
// The published values of FNV-1a: stored seeds and hashes depend on them.
#include "base/fnv1a.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace fathom {
namespace {

uint64_t hash_of(std::string_view bytes) {
  Fnv1a hash;
  for (const char c : bytes) hash.add(static_cast<uint8_t>(c));
  return hash.value();
}

TEST(Fnv1a, PublishedValues) {
  EXPECT_EQ(hash_of(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_of("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_of("foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace fathom
