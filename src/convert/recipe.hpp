// SPDX-License-Identifier: Apache-2.0
// Which type each tensor of a model gets: the mixes of llama.cpp's quantiser (Q4_K_M and so on),
// as data. tests/fixtures/recipe_types.txt holds what that program chooses.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.hpp"

namespace fathom::convert {

// What a tensor is for, as far as recipes care; also used to scale random weights.
enum class TensorRole {
  token_embd,
  output,
  attn_q,
  attn_k,
  attn_v,
  attn_output,
  ffn_gate,
  ffn_up,
  ffn_down,
  f32_vector,  // norms, biases, rope factors: always F32
};

struct Recipe {
  const char* name;    // "Q4_K_M"
  DType base;          // of every tensor that no rule names
  uint32_t file_type;  // general.file_type
  bool pure;           // the base type everywhere, the head included
};

// By name, case-insensitive. A mix name gives its mix; `pure`, or the name of a type that no mix
// is called after (Q4_K, MXFP4), gives that type for every matrix. Throws Error{usage} that lists
// the names.
Recipe find_recipe(std::string_view name, bool pure);
// All names that find_recipe takes, separated by blanks.
std::string recipe_names();

// What a choice depends on beside the recipe.
struct RecipeModel {
  int n_layers;
  int group_size;  // query heads per KV head
  bool tied_head;  // no tensor output.weight
};

// The type of a tensor whose rows have `row_elems` values; `layer` is -1 outside the layers.
DType recipe_type(const Recipe& recipe, const RecipeModel& model, TensorRole role, int layer,
                  int64_t row_elems);

}  // namespace fathom::convert
