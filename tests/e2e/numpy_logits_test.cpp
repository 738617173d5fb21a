// SPDX-License-Identifier: Apache-2.0
// Every family and rope type against logits that the NumPy oracle computed (tools/oracles).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/support/engines.hpp"

namespace fathom::test {
namespace {

// The numbers of one array in a fixture's JSON, brackets ignored.
std::vector<double> numbers_after(const std::string& json, const std::string& key) {
  const size_t begin = json.find('[', json.find('"' + key + '"'));
  size_t end = begin;
  int depth = 0;
  do {
    depth += json[end] == '[' ? 1 : json[end] == ']' ? -1 : 0;
    ++end;
  } while (depth > 0 && end < json.size());
  std::string text = json.substr(begin, end - begin);
  for (char& c : text) {
    if (c == '[' || c == ']' || c == ',') c = ' ';
  }
  std::istringstream in(text);
  std::vector<double> out;
  for (double value; in >> value;) out.push_back(value);
  return out;
}

class NumpyLogits : public testing::TestWithParam<std::tuple<std::string, Target>> {};

TEST_P(NumpyLogits, WithinOneThousandth) {
  const auto& [model, target] = GetParam();
  std::ifstream file(fixture(model + ".logits.json"));
  std::stringstream json;
  json << file.rdbuf();
  const std::vector<double> expected = numbers_after(json.str(), "logits");
  std::vector<int32_t> ids;
  for (const double id : numbers_after(json.str(), "ids")) ids.push_back(static_cast<int32_t>(id));
  ASSERT_GE(ids.size(), 8u);

  OpenOptions options = options_for(target);
  options.activations = ActivationType::f32;
  options.kv_type = KvType::f32;
  const auto engine = engine::Engine::open(fixture(model + ".gguf"), options);
  ASSERT_EQ(expected.size(), ids.size() * engine->info().vocab_size);
  engine::Sequence sequence(engine);
  double worst = 0, largest = 0;
  size_t at = 0;
  sequence.prefill(ids, LogitsMode::all, [&](int64_t, std::span<const float> rows) {
    for (const float logit : rows) {
      worst = std::max(worst, std::fabs(logit - expected[at]));
      largest = std::max(largest, std::fabs(expected[at++]));
    }
  });
  EXPECT_EQ(at, expected.size());
  EXPECT_GT(largest, 1.0) << "the fixture says nothing";
  EXPECT_LT(worst, 1e-3) << "largest logit " << largest;
}

INSTANTIATE_TEST_SUITE_P(All, NumpyLogits,
                         testing::Combine(testing::ValuesIn(tiny_models()),
                                          testing::ValuesIn(all_targets())));

}  // namespace
}  // namespace fathom::test
