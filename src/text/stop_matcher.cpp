// SPDX-License-Identifier: Apache-2.0
// One Knuth-Morris-Pratt automaton per stop string, fed byte by byte: what is held back is as long
// as the longest prefix of a stop string that the text ends with.
#include "text/stop_matcher.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace fathom::text {

StopMatcher::StopMatcher(std::vector<std::string> stops)
    : stops_(std::move(stops)), progress_(stops_.size(), 0) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) fail(ErrorCode::usage, "a stop string is empty; expected some text");
    std::vector<uint32_t> border(stop.size() + 1, 0);
    for (size_t i = 1; i < stop.size(); ++i) {
      uint32_t n = border[i];
      while (n > 0 && stop[n] != stop[i]) n = border[n];
      border[i + 1] = stop[n] == stop[i] ? n + 1 : 0;
    }
    fallback_.push_back(std::move(border));
  }
}

bool StopMatcher::push(std::string_view piece, std::string& out) {
  if (stopped()) return true;
  for (const char c : piece) {
    held_.push_back(c);
    size_t keep = 0;
    for (size_t i = 0; i < stops_.size(); ++i) {
      const std::string& stop = stops_[i];
      uint32_t& n = progress_[i];
      while (n > 0 && stop[n] != c) n = fallback_[i][n];
      if (stop[n] == c) ++n;
      keep = std::max<size_t>(keep, n);
      const bool complete = n == stop.size();
      if (complete && (!stopped() || n > stops_[stopped_].size())) stopped_ = static_cast<int>(i);
    }
    if (stopped()) {
      out.append(held_, 0, held_.size() - stops_[stopped_].size());
      held_.clear();
      return true;
    }
    out.append(held_, 0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
  }
  return false;
}

void StopMatcher::flush(std::string& out) {
  if (stopped()) return;
  out += held_;
  held_.clear();
  std::fill(progress_.begin(), progress_.end(), 0);
}

std::string_view StopMatcher::matched() const {
  return stopped() ? std::string_view(stops_[stopped_]) : std::string_view();
}

}  // namespace fathom::text
