// SPDX-License-Identifier: Apache-2.0
// Every KV format, for tests that sweep them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tensor/kv_view.hpp"

namespace fathom::test {

inline std::vector<KvFormat> all_kv_formats() {
  std::vector<KvFormat> out;
  for (int i = 0; i < kKvFormats; ++i) out.push_back(static_cast<KvFormat>(i));
  return out;
}

// As a part of a test's name.
inline std::string kv_test_name(KvFormat format) {
  std::string out = kv_format_name(format);
  std::ranges::replace(out, '-', '_');
  return out;
}

}  // namespace fathom::test
