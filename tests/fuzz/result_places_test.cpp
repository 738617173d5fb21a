// SPDX-License-Identifier: Apache-2.0
// Documents that are valid JSON and wrong in one place: each value of the seeds in turn is replaced
// by others or left out, which mutated bytes seldom reach.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/json.hpp"
#include "fuzz_target.hpp"

namespace fathom::fuzz {
namespace {

class Places {
 public:
  explicit Places(const std::string& seed) : document_(parse_json(seed, "seed")) {
    walk(document_, "");
  }
  int n_inputs() const { return n_inputs_; }

 private:
  void run(const std::string& what) {
    const std::string text = dump_json(document_);
    ++n_inputs_;
    EXPECT_NO_THROW(
        LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size()))
        << what;
  }
  // Of a list its first value and its length stand for the others.
  void walk(Json& at, const std::string& path) {
    const Json kept = at;
    for (const Json& other :
         {Json(nullptr), Json(-1), Json(1e150), Json("\x1b\n"), Json::object()}) {
      at = other;
      run(path + " = " + dump_json(other));
    }
    at = kept;
    if (at.is_object()) {
      for (const auto& [key, value] : kept.items()) {
        at.erase(key);
        run(path + " without " + key);
        at = kept;
        walk(at[key], path + "/" + key);
      }
    } else if (at.is_array() && !at.empty()) {
      at.erase(0);
      run(path + " without its first");
      at = kept;
      at.push_back(kept.back());
      run(path + " and one more");
      at = kept;
      walk(at[0], path + "/0");
    }
  }

  Json document_;
  int n_inputs_ = 0;
};

// One of each kind of document: its command, and what is in its summary.
TEST(ResultPlaces, AnyValueInAnyPlace) {
  std::set<std::string> kinds;
  int n_inputs = 0;
  for (const std::string& seed : seeds()) {
    const Json document = parse_json(seed, "seed");
    std::string kind = dump_json(document["command"]);
    for (const auto& [key, value] : document["summary"].items()) kind += " " + key;
    if (kinds.insert(kind).second) n_inputs += Places(seed).n_inputs();
  }
  EXPECT_GE(kinds.size(), 8u);
  EXPECT_GT(n_inputs, 1'500);
}

}  // namespace
}  // namespace fathom::fuzz
