// SPDX-License-Identifier: Apache-2.0
// Three steps: the recipe's rules by role and layer, the head's own rule, then types whose blocks
// do not fit the row length give way to one of 32-value blocks.
#include "convert/recipe.hpp"

#include <strings.h>

#include <array>

#include "base/error.hpp"

namespace fathom::convert {
namespace {

// general.file_type of a file that no mix of llama.cpp describes.
constexpr uint32_t kMostlyMxfp4 = 38;

constexpr std::array kRecipes = {
    Recipe{"F32", DType::f32, 0, false},        Recipe{"F16", DType::f16, 1, false},
    Recipe{"BF16", DType::bf16, 32, false},     Recipe{"Q4_0", DType::q4_0, 2, false},
    Recipe{"Q4_1", DType::q4_1, 3, false},      Recipe{"Q5_0", DType::q5_0, 8, false},
    Recipe{"Q5_1", DType::q5_1, 9, false},      Recipe{"Q8_0", DType::q8_0, 7, false},
    Recipe{"Q2_K", DType::q2_k, 10, false},     Recipe{"Q2_K_S", DType::q2_k, 21, false},
    Recipe{"Q3_K_S", DType::q3_k, 11, false},   Recipe{"Q3_K_M", DType::q3_k, 12, false},
    Recipe{"Q3_K_L", DType::q3_k, 13, false},   Recipe{"Q4_K_S", DType::q4_k, 14, false},
    Recipe{"Q4_K_M", DType::q4_k, 15, false},   Recipe{"Q5_K_S", DType::q5_k, 16, false},
    Recipe{"Q5_K_M", DType::q5_k, 17, false},   Recipe{"Q6_K", DType::q6_k, 18, false},
    Recipe{"IQ4_NL", DType::iq4_nl, 25, false}, Recipe{"IQ4_XS", DType::iq4_xs, 30, false},
};

enum class When {
  always,
  grouped_by_4,  // at least four query heads share a KV head
  first_2,       // layers
  first_4,
  first_sixteenth,
  first_eighth,
  more_bits,  // the first and the last eighth, and every third layer between
};

bool applies(When when, const RecipeModel& model, int layer) {
  const int n = model.n_layers;
  switch (when) {
    case When::always:
      return true;
    case When::grouped_by_4:
      return model.group_size >= 4;
    case When::first_2:
      return layer < 2;
    case When::first_4:
      return layer < 4;
    case When::first_sixteenth:
      return layer < n / 16;
    case When::first_eighth:
      return layer < n / 8;
    case When::more_bits:
      return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
  }
  return false;
}

struct Rule {
  const char* recipe;
  TensorRole role;
  When when;
  DType type;
};
// The first rule that applies wins; without one the base type stays.
constexpr std::array kRules = {
    Rule{"Q2_K", TensorRole::attn_v, When::grouped_by_4, DType::q4_k},
    Rule{"Q2_K", TensorRole::attn_v, When::always, DType::q3_k},
    Rule{"Q2_K", TensorRole::ffn_down, When::always, DType::q3_k},
    Rule{"Q2_K", TensorRole::attn_output, When::always, DType::q3_k},
    Rule{"Q2_K_S", TensorRole::attn_v, When::grouped_by_4, DType::q4_k},
    Rule{"Q2_K_S", TensorRole::ffn_down, When::first_eighth, DType::q4_k},
    Rule{"Q3_K_M", TensorRole::attn_v, When::first_2, DType::q5_k},
    Rule{"Q3_K_M", TensorRole::attn_v, When::always, DType::q4_k},
    Rule{"Q3_K_M", TensorRole::ffn_down, When::first_sixteenth, DType::q5_k},
    Rule{"Q3_K_M", TensorRole::ffn_down, When::always, DType::q4_k},
    Rule{"Q3_K_M", TensorRole::attn_output, When::always, DType::q4_k},
    Rule{"Q3_K_L", TensorRole::attn_v, When::always, DType::q5_k},
    Rule{"Q3_K_L", TensorRole::ffn_down, When::always, DType::q5_k},
    Rule{"Q3_K_L", TensorRole::attn_output, When::always, DType::q5_k},
    Rule{"Q4_K_S", TensorRole::attn_v, When::first_4, DType::q5_k},
    Rule{"Q4_K_S", TensorRole::ffn_down, When::first_eighth, DType::q5_k},
    Rule{"Q4_K_M", TensorRole::attn_v, When::more_bits, DType::q6_k},
    Rule{"Q4_K_M", TensorRole::ffn_down, When::more_bits, DType::q6_k},
    Rule{"Q5_K_M", TensorRole::attn_v, When::more_bits, DType::q6_k},
    Rule{"Q5_K_M", TensorRole::ffn_down, When::more_bits, DType::q6_k},
    Rule{"IQ4_NL", TensorRole::attn_v, When::grouped_by_4, DType::q5_k},
    Rule{"IQ4_NL", TensorRole::ffn_down, When::first_eighth, DType::q5_k},
    Rule{"IQ4_XS", TensorRole::attn_v, When::grouped_by_4, DType::q5_k},
    Rule{"IQ4_XS", TensorRole::ffn_down, When::first_eighth, DType::q5_k},
};

struct Fallback {
  DType from, to;
};
constexpr std::array kFallbacks = {
    Fallback{DType::q2_k, DType::q4_0}, Fallback{DType::q3_k, DType::q4_0},
    Fallback{DType::q4_k, DType::q5_0}, Fallback{DType::q5_k, DType::q5_1},
    Fallback{DType::q6_k, DType::q8_0}, Fallback{DType::iq4_xs, DType::iq4_nl},
};

bool fits(DType type, int64_t row_elems) { return row_elems % dtype_info(type).block_elems == 0; }

DType head_type(DType base, int64_t row_elems) {
  if (dtype_info(base).block_elems == 1) return base;
  if (!fits(base, row_elems) || base == DType::q8_0) return DType::q8_0;
  return DType::q6_k;
}

DType type_by_rules(const Recipe& recipe, const RecipeModel& model, TensorRole role, int layer,
                    int64_t row_elems) {
  if (recipe.pure) return recipe.base;
  if (role == TensorRole::output || (role == TensorRole::token_embd && model.tied_head)) {
    return head_type(recipe.base, row_elems);
  }
  for (const Rule& rule : kRules) {
    if (rule.role == role && std::string_view(rule.recipe) == recipe.name &&
        applies(rule.when, model, layer)) {
      return rule.type;
    }
  }
  return recipe.base;
}

DType that_fits(DType type, int64_t row_elems) {
  if (fits(type, row_elems)) return type;
  for (const Fallback& fallback : kFallbacks) {
    if (fallback.from == type && fits(fallback.to, row_elems)) return fallback.to;
  }
  return DType::f16;
}

}  // namespace

Recipe find_recipe(std::string_view name, bool pure) {
  const std::string wanted(name);
  if (!pure) {
    for (const Recipe& recipe : kRecipes) {
      if (strcasecmp(recipe.name, wanted.c_str()) == 0) return recipe;
    }
  }
  const auto type = dtype_from_name(name);
  if (!type) {
    fail(ErrorCode::usage, "unknown {} '{}'; choose one of: {}", pure ? "type" : "type or mix",
         name, recipe_names());
  }
  // The file type of a pure file is that of the first mix with the same base.
  for (const Recipe& recipe : kRecipes) {
    if (recipe.base == *type) {
      return {dtype_info(*type).name, *type, recipe.file_type, true};
    }
  }
  return {dtype_info(*type).name, *type, kMostlyMxfp4, true};
}

std::string recipe_names() {
  std::string names;
  for (const Recipe& recipe : kRecipes) names += std::string(recipe.name) + " ";
  for (const DTypeInfo& info : all_dtypes()) {
    if (names.find(std::string(info.name) + " ") == std::string::npos) {
      names += std::string(info.name) + " ";
    }
  }
  names.pop_back();
  return names;
}

DType recipe_type(const Recipe& recipe, const RecipeModel& model, TensorRole role, int layer,
                  int64_t row_elems) {
  if (role == TensorRole::f32_vector) return DType::f32;
  return that_fits(type_by_rules(recipe, model, role, layer, row_elems), row_elems);
}

}  // namespace fathom::convert
