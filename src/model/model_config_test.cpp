// SPDX-License-Identifier: Apache-2.0
// Every hyper-parameter is honoured or refused by name; every tensor has the shape they imply.
#include "model/model_config.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "backends/reference/reference_backend.hpp"
#include "base/error.hpp"
#include "model/weights.hpp"
#include "tests/support/edited_gguf.hpp"

namespace fathom {
namespace {

using test::EditedGguf;
using test::GgufEdit;
using testing::HasSubstr;

std::string fixture(const std::string& name) {
  return std::string(FATHOM_SOURCE_DIR) + "/tests/fixtures/" + name + ".gguf";
}

// A fixture with one key set to another value.
template <class Add>
GgufEdit set_key(const std::string& key, Add add) {
  return {{key}, [=](gguf::Writer& writer) { add(writer, key); }, {}, {}};
}
GgufEdit set_u32(const std::string& key, uint32_t value) {
  return set_key(key, [=](gguf::Writer& w, const std::string& k) { w.add_u32(k, value); });
}
GgufEdit set_f32(const std::string& key, float value) {
  return set_key(key, [=](gguf::Writer& w, const std::string& k) { w.add_f32(k, value); });
}
GgufEdit set_string(const std::string& key, const char* value) {
  return set_key(key, [=](gguf::Writer& w, const std::string& k) { w.add_string(k, value); });
}

ModelConfig read(const std::string& source, const GgufEdit& edit) {
  const EditedGguf edited(source, edit);
  return read_model_config(gguf::File::open(edited.path()));
}

// The message of the refusal; the code is checked.
std::string refusal(const GgufEdit& edit, ErrorCode code, const std::string& name = "llama_plain") {
  const EditedGguf edited(fixture(name), edit);
  const gguf::File file = gguf::File::open(edited.path());
  try {
    const ModelConfig config = read_model_config(file);
    Weights::bind(file, config, reference_backend(), Activations::f32);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "accepted";
}

TEST(ModelConfig, ReadsTheFixture) {
  const ModelConfig c = read_model_config(gguf::File::open(fixture("qwen3_qk_norm")));
  EXPECT_STREQ(c.family->architecture, "qwen3");
  EXPECT_EQ(c.n_layers, 2);
  EXPECT_EQ(c.d_model, 32);
  EXPECT_EQ(c.head_dim, 32);  // its own key, apart from d_model / n_heads = 8
  EXPECT_EQ(c.q_dim(), 128);
  EXPECT_EQ(c.kv_dim(), 64);
  EXPECT_EQ(c.vocab_size, 260);
  EXPECT_FLOAT_EQ(c.attn_scale, 1 / std::sqrt(32.0f));
  EXPECT_DOUBLE_EQ(c.rope.inv_freq[1], std::pow(1e6, -2.0 / 32));
}

TEST(ModelConfig, RefusesUnknownHyperParametersByName) {
  EXPECT_THAT(refusal(set_f32("llama.attention.new_trick", 1), ErrorCode::unsupported),
              HasSubstr("llama.attention.new_trick"));
  EXPECT_THAT(refusal(set_u32("llama.expert_count", 8), ErrorCode::unsupported),
              HasSubstr("llama.expert_count"));
  for (const char* key : {"llama.logit_scale", "llama.attention.scale", "llama.residual_scale",
                          "llama.attention.clamp_kqv", "llama.final_logit_softcapping"}) {
    EXPECT_THAT(refusal(set_f32(key, 0.5f), ErrorCode::unsupported), HasSubstr(key));
  }
}

// Tensors that would change the logits in another engine are not left out.
TEST(ModelConfig, RefusesTensorsThatNoOpReads) {
  const auto with = [](const char* name, uint64_t n) {
    GgufEdit edit;
    edit.add_tensors[name] = {n};
    return edit;
  };
  for (const char* name : {"output.bias", "output_norm.bias", "rope_factors_long.weight",
                           "rope_factors_short.weight", "blk.0.attn_sinks.weight", "something"}) {
    EXPECT_THAT(refusal(with(name, 16), ErrorCode::unsupported), HasSubstr(name));
  }
  for (const char* model : {"qwen2_bias", "qwen3_qk_norm"}) {
    EXPECT_THAT(refusal(with("rope_freqs.weight", 16), ErrorCode::unsupported, model),
                HasSubstr("rope_freqs.weight"));
  }
  EXPECT_EQ(refusal(with("blk.0.attn_rot_embd.weight", 16), ErrorCode::internal), "accepted");
}

TEST(ModelConfig, AcceptsNeutralValues) {
  EXPECT_EQ(refusal(set_u32("llama.expert_count", 0), ErrorCode::internal), "accepted");
  EXPECT_EQ(refusal(set_f32("llama.logit_scale", 1), ErrorCode::internal), "accepted");
}

TEST(ModelConfig, RefusesValuesOutOfRangeByName) {
  const auto bad = [](const GgufEdit& edit) { return refusal(edit, ErrorCode::bad_file); };
  for (const char* key : {"llama.block_count", "llama.embedding_length", "llama.context_length",
                          "llama.feed_forward_length", "llama.attention.head_count",
                          "llama.attention.head_count_kv"}) {
    EXPECT_THAT(bad(set_u32(key, 0)), HasSubstr(key));
    EXPECT_THAT(bad(set_u32(key, 0xffffffffu)), HasSubstr(key));
    EXPECT_THAT(bad(set_string(key, "2")), HasSubstr(key));
  }
  for (const char* key : {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base"}) {
    for (const float value : {0.0f, -1.0f, std::nanf(""), INFINITY}) {
      EXPECT_THAT(bad(set_f32(key, value)), HasSubstr(key)) << value;
    }
  }
  EXPECT_THAT(bad({{"llama.attention.layer_norm_rms_epsilon"}, {}, {}, {}}),
              HasSubstr("llama.attention.layer_norm_rms_epsilon"));
  EXPECT_THAT(bad(set_u32("llama.attention.head_count", 3)), HasSubstr("head"));
  EXPECT_THAT(bad(set_u32("llama.attention.value_length", 64)),
              HasSubstr("llama.attention.value_length"));
  EXPECT_THAT(bad(set_u32("llama.rope.dimension_count", 64)),
              HasSubstr("llama.rope.dimension_count"));
  EXPECT_THAT(bad(set_u32("llama.rope.dimension_count", 7)),
              HasSubstr("llama.rope.dimension_count"));
  EXPECT_THAT(bad(set_u32("llama.vocab_size", 261)), HasSubstr("llama.vocab_size"));
}

// The attention op has room for so many query heads of one KV head and no more.
TEST(ModelConfig, RefusesTooManyQueryHeadsOfOneKvHead) {
  const auto read_heads = [](uint32_t n_heads, uint32_t n_kv_heads) {
    GgufEdit edit;
    edit.without_keys = {"llama.attention.head_count", "llama.attention.head_count_kv",
                         "llama.attention.key_length", "llama.attention.value_length",
                         "llama.rope.dimension_count"};
    edit.add_keys = [=](gguf::Writer& w) {
      w.add_u32("llama.attention.head_count", n_heads);
      w.add_u32("llama.attention.head_count_kv", n_kv_heads);
      w.add_u32("llama.attention.key_length", 16);
      w.add_u32("llama.attention.value_length", 16);
    };
    return read(fixture("llama_plain"), edit);
  };
  EXPECT_EQ(read_heads(64, 1).n_kv_heads, 1);
  EXPECT_EQ(read_heads(1024, 16).n_heads, 1024);
  for (const auto& [n_heads, n_kv_heads] :
       {std::pair{65u, 1u}, {96u, 1u}, {1024u, 1u}, {130u, 2u}}) {
    try {
      read_heads(n_heads, n_kv_heads);
      ADD_FAILURE() << n_heads << " heads, " << n_kv_heads << " KV heads: accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::unsupported);
      EXPECT_THAT(e.what(),
                  testing::AllOf(HasSubstr("'llama.attention.head_count' at offset "),
                                 HasSubstr(std::to_string(n_heads / n_kv_heads) + " query heads"),
                                 HasSubstr("at most 64")));
    }
  }
}

TEST(ModelConfig, RefusesArchitecturesAndScalingsByName) {
  EXPECT_THAT(refusal(set_string("general.architecture", "mamba"), ErrorCode::unsupported),
              testing::AllOf(HasSubstr("mamba"), HasSubstr("llama, qwen2, qwen3")));
  EXPECT_THAT(refusal(set_string("llama.rope.scaling.type", "longrope"), ErrorCode::unsupported),
              HasSubstr("longrope"));
}

TEST(ModelConfig, RefusesFilesThatAreNoModelByName) {
  const std::string key = "general.type";
  for (const char* type : {"adapter", "mmproj", "imatrix", ""}) {
    EXPECT_THAT(refusal(set_string(key, type), ErrorCode::unsupported),
                testing::AllOf(HasSubstr("'general.type'"),
                               HasSubstr("found '" + std::string(type) + "', expected 'model'")));
  }
  EXPECT_EQ(refusal(set_string(key, "model"), ErrorCode::internal), "accepted");
  EXPECT_EQ(refusal({{key}, {}, {}, {}}, ErrorCode::internal), "accepted");
  EXPECT_THAT(refusal(set_u32(key, 1), ErrorCode::bad_file), HasSubstr(key));
}

// "<path>: key '<key>' at offset N: ", N being that of the value in the file.
TEST(ModelConfig, RefusalsNameTheOffsetOfTheValue) {
  const auto heads_of_dim = [](uint32_t head_dim) {
    GgufEdit edit;
    edit.without_keys = {"llama.attention.key_length", "llama.attention.value_length",
                         "llama.rope.dimension_count"};
    edit.add_keys = [=](gguf::Writer& w) { w.add_u32("llama.attention.key_length", head_dim); };
    return edit;
  };
  GgufEdit derived_dim = set_u32("llama.attention.head_count", 8);
  derived_dim.without_keys.insert(
      {"llama.attention.key_length", "llama.attention.value_length", "llama.rope.dimension_count"});
  const std::pair<const char*, GgufEdit> cases[] = {
      {"llama.attention.key_length", heads_of_dim(24)},
      {"llama.attention.key_length", heads_of_dim(512)},
      {"llama.attention.head_count", derived_dim},
      {"llama.attention.new_trick", set_f32("llama.attention.new_trick", 1)},
      {"llama.expert_count", set_u32("llama.expert_count", 8)},
      {"llama.rope.scaling.type", set_string("llama.rope.scaling.type", "longrope")},
      {"general.architecture", set_string("general.architecture", "mamba")},
      {"general.type", set_string("general.type", "adapter")}};
  for (const auto& [key, edit] : cases) {
    const EditedGguf edited(fixture("llama_plain"), edit);
    const gguf::File file = gguf::File::open(edited.path());
    try {
      read_model_config(file);
      ADD_FAILURE() << key << ": accepted";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(),
                  testing::StartsWith(fmt::format("{}: key '{}' at offset {}: ", edited.path(), key,
                                                  file.find(key)->offset)));
    }
  }
}

TEST(ModelConfig, SlidingWindowLimitsTheContext) {
  const ModelConfig c =
      read(fixture("llama_plain"), set_u32("llama.attention.sliding_window", 1024));
  require_context(c, 1024);
  EXPECT_THROW(require_context(c, 1025), Error);
}

TEST(Weights, RefusesTensorsThatDoNotFit) {
  const auto bad = [](const GgufEdit& edit) { return refusal(edit, ErrorCode::bad_file); };
  EXPECT_THAT(bad({{}, {}, {"blk.1.ffn_up.weight"}, {}}), HasSubstr("blk.1.ffn_up.weight"));
  EXPECT_THAT(bad({{}, {}, {"output_norm.weight"}, {}}), HasSubstr("output_norm.weight"));
  EXPECT_THAT(bad({{}, {}, {}, {{"blk.0.attn_k.weight", {64, 64}}}}),
              testing::ContainsRegex("'blk.0.attn_k.weight' at offset [0-9]+: found shape "
                                     ".64, 64, 1, 1., expected .64, 32."));
  EXPECT_THAT(bad({{}, {}, {}, {{"blk.0.attn_norm.weight", {63}}}}),
              HasSubstr("blk.0.attn_norm.weight"));
  EXPECT_THAT(bad(set_u32("llama.block_count", 3)), HasSubstr("blk.2."));
  EXPECT_THAT(refusal({{}, {}, {"blk.0.attn_q.bias"}, {}}, ErrorCode::bad_file, "qwen2_bias"),
              HasSubstr("blk.0.attn_q.bias"));
}

// Leaving a layer's tensor out would compute another model.
TEST(Weights, RefusesTensorsWithoutAPlace) {
  EXPECT_THAT(refusal({{}, {}, {}, {{"blk.0.ffn_gate.bias", {32}}}}, ErrorCode::unsupported),
              HasSubstr("blk.0.ffn_gate.bias"));
  EXPECT_THAT(refusal({{}, {}, {}, {{"blk.0.attn_q_norm.weight", {32}}}}, ErrorCode::unsupported),
              HasSubstr("blk.0.attn_q_norm.weight"));
  EXPECT_THAT(refusal(set_u32("llama.block_count", 1), ErrorCode::unsupported),
              HasSubstr("blk.1."));
}

TEST(RopeTable, PlainLinearAndDivisors) {
  RopeParams p;
  p.dim = 4;
  p.base = 100;
  EXPECT_THAT(make_rope_table(p).inv_freq, testing::ElementsAre(1.0, testing::DoubleEq(0.1)));
  p.factor = 4;
  EXPECT_THAT(make_rope_table(p).inv_freq, testing::ElementsAre(0.25, testing::DoubleEq(0.025)));
  EXPECT_FLOAT_EQ(make_rope_table(p).magnitude, 1);
  p.freq_divisors = {1, 5};
  EXPECT_THAT(make_rope_table(p).inv_freq, testing::ElementsAre(0.25, testing::DoubleEq(0.005)));
}

// Dim 4, base 10^4, context 2000 pi: pair i turns 1000 * 100^-i times. The ramp goes from the pair
// of 1000 rotations (0) to that of 10 (1): the first keeps its frequency, the last is divided.
TEST(RopeTable, YarnKeepsTheFastAndDividesTheSlow) {
  RopeParams p;
  p.dim = 4;
  p.base = 1e4;
  p.factor = 8;
  p.extrapolation = 1;
  p.original_context = 6284;
  p.beta_fast = 1000;
  p.beta_slow = 10.1;
  const RopeTable table = make_rope_table(p);
  EXPECT_DOUBLE_EQ(table.inv_freq[0], 1.0);
  EXPECT_DOUBLE_EQ(table.inv_freq[1], 0.01 / 8);
  EXPECT_FLOAT_EQ(table.magnitude, 1 + 0.1f * std::log(8.0f));
}

}  // namespace
}  // namespace fathom
