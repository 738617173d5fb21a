// SPDX-License-Identifier: Apache-2.0
// The planned tensor types against what llama.cpp's quantiser chose for the same shapes and
// mixes (tests/fixtures/recipe_types.txt, made by tools/oracles/recipe_oracle.py).
#include "convert/recipe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "convert/synth.hpp"

namespace fathom::convert {
namespace {

// "-" or "0-2,5" as layer numbers; -1 stands for a tensor outside the layers.
std::vector<int> parse_layers(const std::string& text) {
  if (text == "-") return {-1};
  std::vector<int> layers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const int first = std::atoi(part.c_str());
    const int last = dash == std::string::npos ? first : std::atoi(part.c_str() + dash + 1);
    for (int layer = first; layer <= last; ++layer) layers.push_back(layer);
  }
  return layers;
}

using Types = std::map<std::string, std::string>;                      // tensor name -> type name
using Fixture = std::map<std::pair<std::string, std::string>, Types>;  // (shape, mix)

Fixture read_fixture() {
  std::ifstream file(std::string(FATHOM_SOURCE_DIR) + "/tests/fixtures/recipe_types.txt");
  Fixture fixture;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream fields(line);
    std::string shape, mix, name, type, layers;
    fields >> shape >> mix >> name >> type >> layers;
    for (const int layer : parse_layers(layers)) {
      const std::string prefix = layer < 0 ? "" : fmt::format("blk.{}.", layer);
      fixture[{shape, mix}][prefix + name] = type;
    }
  }
  return fixture;
}

// All matrices of the plan; norms and biases are checked to be F32 and left out.
Types planned_types(const std::string& shape, std::string mix) {
  SynthOptions options;
  options.shape = shape;
  const size_t plus = mix.find("+pure");
  options.pure = plus != std::string::npos;
  options.type = mix.substr(0, plus);
  if (options.pure && options.type == "Q3_K_S") options.type = "Q3_K";
  Types types;
  for (const SynthTensor& tensor : plan_synth(options).tensors) {
    if (tensor.dims.size() == 2) {
      types[tensor.name] = dtype_info(tensor.type).name;
    } else {
      EXPECT_EQ(tensor.type, DType::f32) << tensor.name;
    }
  }
  return types;
}

TEST(Recipe, TypesEqualThoseOfLlamaQuantize) {
  const Fixture fixture = read_fixture();
  std::set<std::string> shapes;
  for (const auto& [key, types] : fixture) {
    shapes.insert(key.first);
    EXPECT_EQ(planned_types(key.first, key.second), types) << key.first << " " << key.second;
  }
  EXPECT_THAT(shapes, testing::UnorderedElementsAre("smollm2-135m", "qwen2.5-0.5b", "qwen2.5-7b",
                                                    "llama-3.1-8b", "qwen3-8b"));
  EXPECT_EQ(fixture.size(), 5u * 23);
}

TEST(Recipe, MoreBitsInTheFirstAndLastEighthAndEveryThirdBetween) {
  const Recipe recipe = find_recipe("q4_k_m", false);
  const RecipeModel model{.n_layers = 28, .group_size = 7, .tied_head = false};
  std::vector<int> layers;
  for (int layer = 0; layer < 28; ++layer) {
    if (recipe_type(recipe, model, TensorRole::ffn_down, layer, 18944) == DType::q6_k) {
      layers.push_back(layer);
    }
  }
  EXPECT_THAT(layers, testing::ElementsAre(0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27));
}

TEST(Recipe, NamesOfTypesWithoutAMixArePure) {
  EXPECT_TRUE(find_recipe("mxfp4", false).pure);
  EXPECT_TRUE(find_recipe("Q4_K", false).pure);
  EXPECT_FALSE(find_recipe("Q4_0", false).pure);
  EXPECT_TRUE(find_recipe("Q4_0", true).pure);
  for (const DTypeInfo& info : all_dtypes()) {
    const RecipeModel model{.n_layers = 4, .group_size = 1, .tied_head = true};
    const Recipe recipe = find_recipe(info.name, true);
    EXPECT_EQ(recipe_type(recipe, model, TensorRole::token_embd, -1, 256), info.type);
    EXPECT_EQ(recipe_type(recipe, model, TensorRole::ffn_down, 0, 256), info.type);
  }
}

TEST(Recipe, RowsThatFitNoBlockStayF16) {
  const RecipeModel model{.n_layers = 4, .group_size = 1, .tied_head = false};
  EXPECT_EQ(recipe_type(find_recipe("q4_0", true), model, TensorRole::attn_q, 0, 80), DType::f16);
}

TEST(Recipe, UnknownNamesAreRefusedWithTheList) {
  try {
    find_recipe("q9_9", false);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("q9_9"), testing::HasSubstr("Q4_K_M"),
                               testing::HasSubstr("MXFP4")));
  }
}

}  // namespace
}  // namespace fathom::convert
