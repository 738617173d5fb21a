// SPDX-License-Identifier: Apache-2.0
// Stop strings in a stream of text: text is held back while it could still be the start of a stop
// string, and nothing of a stop string leaves. Of several matches the one that ends first wins; of
// those that end together, the longest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::text {

class StopMatcher {
 public:
  // Empty strings are refused with Error{usage}.
  explicit StopMatcher(std::vector<std::string> stops);

  // Takes the next piece of the stream; appends to `out` what is certain not to belong to a stop
  // string. True once a stop string has been seen: whatever follows is dropped.
  bool push(std::string_view piece, std::string& out);
  // The stream ended without a stop string: gives what was held back.
  void flush(std::string& out);

  bool stopped() const { return stopped_ >= 0; }
  // The stop string that ended the stream; "" while none has.
  std::string_view matched() const;

 private:
  std::vector<std::string> stops_;
  std::vector<std::vector<uint32_t>> fallback_;  // per stop string: longest border of each prefix
  std::vector<uint32_t> progress_;               // matched prefix length of each stop string
  std::string held_;
  int stopped_ = -1;
};

}  // namespace fathom::text
