// SPDX-License-Identifier: Apache-2.0
// What is wrong with one key of a vocabulary. This folder knows no file, so whoever read the keys
// from one catches this and adds where the key lies in it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace fathom::text {

class VocabError : public Error {
 public:
  VocabError(ErrorCode code, std::string_view key, const std::string& problem)
      : Error(code, fmt::format("{}: {}", key, problem)), key_(key), problem_(problem) {}
  const std::string& key() const { return key_; }
  const std::string& problem() const { return problem_; }

 private:
  std::string key_, problem_;
};

template <class... Args>
[[noreturn]] void fail_key(ErrorCode code, std::string_view key,
                           fmt::format_string<Args...> problem, Args&&... args) {
  throw VocabError(code, key, fmt::format(problem, std::forward<Args>(args)...));
}

}  // namespace fathom::text
