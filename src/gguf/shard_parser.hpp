// SPDX-License-Identifier: Apache-2.0
// Parses the header, metadata and tensor directory of one GGUF file in memory and checks all that
// can be checked without its siblings.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf_file.hpp"

namespace fathom::gguf {

struct ParsedShard {
  uint32_t version;
  uint32_t alignment;
  std::vector<Entry> metadata;      // in file order
  std::vector<TensorInfo> tensors;  // in file order
};

// `path` is for messages, `shard` goes into each TensorInfo.
ParsedShard parse_shard(std::span<const std::byte> bytes, const std::string& path, OpenMode mode,
                        int shard);

// Positions 0..n-1 in the order of name(position); equal names end up side by side.
template <class Name>
std::vector<uint32_t> sorted_by_name(size_t n, Name&& name) {
  std::vector<uint32_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = static_cast<uint32_t>(i);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int compared = name(a).compare(name(b));
    return compared != 0 ? compared < 0 : a < b;
  });
  return order;
}

}  // namespace fathom::gguf
