// SPDX-License-Identifier: Apache-2.0
// The table of every key that a file may hold and what Fathom does with it, and the readers with
// their ranges.
#include "model/model_config.hpp"

#include <fmt/ranges.h>

#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "kernels/attn/attn.hpp"

namespace fathom {
namespace {

enum class KeyRule {
  honoured,     // read below
  descriptive,  // says nothing about the computation
  neutral,      // accepted with a value that switches it off
};

struct KeyRow {
  std::string_view suffix;
  KeyRule rule;
  double neutral_value = 0;
};

// Every `<architecture>.<suffix>` that a file may hold; any other is refused.
constexpr KeyRow kKeys[] = {
    {"block_count", KeyRule::honoured},
    {"context_length", KeyRule::honoured},
    {"embedding_length", KeyRule::honoured},
    {"feed_forward_length", KeyRule::honoured},
    {"vocab_size", KeyRule::honoured},
    {"attention.head_count", KeyRule::honoured},
    {"attention.head_count_kv", KeyRule::honoured},
    {"attention.key_length", KeyRule::honoured},
    {"attention.value_length", KeyRule::honoured},
    {"attention.layer_norm_rms_epsilon", KeyRule::honoured},
    {"attention.sliding_window", KeyRule::honoured},
    {"rope.dimension_count", KeyRule::honoured},
    {"rope.freq_base", KeyRule::honoured},
    {"rope.scale_linear", KeyRule::honoured},
    {"rope.scaling.type", KeyRule::honoured},
    {"rope.scaling.factor", KeyRule::honoured},
    {"rope.scaling.original_context_length", KeyRule::honoured},
    {"rope.scaling.attn_factor", KeyRule::honoured},
    {"rope.scaling.yarn_ext_factor", KeyRule::honoured},
    {"rope.scaling.yarn_attn_factor", KeyRule::honoured},
    {"rope.scaling.yarn_beta_fast", KeyRule::honoured},
    {"rope.scaling.yarn_beta_slow", KeyRule::honoured},
    {"rope.scaling.finetuned", KeyRule::descriptive},
    {"tensor_data_layout", KeyRule::descriptive},
    {"rope.scaling.yarn_log_multiplier", KeyRule::neutral, 0},
    {"rope.scaling.alpha", KeyRule::neutral, 0},
    {"expert_count", KeyRule::neutral, 0},
    {"expert_used_count", KeyRule::neutral, 0},
    {"expert_shared_count", KeyRule::neutral, 0},
    {"logit_scale", KeyRule::neutral, 1},
    {"residual_scale", KeyRule::neutral, 1},
    {"embedding_scale", KeyRule::neutral, 1},
    {"attention.scale", KeyRule::neutral, 0},
    {"attention.causal", KeyRule::neutral, 1},
    {"attention.clamp_kqv", KeyRule::neutral, 0},
    {"attention.max_alibi_bias", KeyRule::neutral, 0},
    {"attn_logit_softcapping", KeyRule::neutral, 0},
    {"final_logit_softcapping", KeyRule::neutral, 0},
    {"pooling_type", KeyRule::neutral, 0},
    {"use_parallel_residual", KeyRule::neutral, 0},
};

std::optional<double> number(const gguf::Value& value) {
  if (const auto real = value.as_f64()) return real;
  if (const auto flag = value.as_bool()) return *flag ? 1.0 : 0.0;
  if (const auto integer = value.as_i64()) return static_cast<double>(*integer);
  return std::nullopt;
}

void check_key(const gguf::File& file, const gguf::Entry& entry, std::string_view suffix) {
  for (const KeyRow& row : kKeys) {
    if (suffix != row.suffix) continue;
    if (row.rule == KeyRule::neutral && number(entry.value) != row.neutral_value) {
      file.refuse(
          ErrorCode::unsupported, entry.key,
          fmt::format("found {}, expected it to be absent or {}: this build has no code for "
                      "this hyper-parameter",
                      entry.value.describe(), row.neutral_value));
    }
    return;
  }
  file.refuse(ErrorCode::unsupported, entry.key,
              fmt::format("found {}: this build does not know this hyper-parameter, and would "
                          "compute a model that needs it wrongly",
                          entry.value.describe()));
}

// Reads keys of one architecture with their ranges.
class Reader {
 public:
  Reader(const gguf::File& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  int64_t count(std::string_view suffix, int64_t lowest, int64_t highest) const {
    return in_range(suffix, file_.get_u64(key(suffix)), lowest, highest);
  }
  int64_t count_or(std::string_view suffix, int64_t lowest, int64_t highest, int64_t other) const {
    const auto found = file_.try_u64(key(suffix));
    return found ? in_range(suffix, *found, lowest, highest) : other;
  }
  double real_or(std::string_view suffix, double lowest, double highest, double other) const {
    const auto found = file_.try_f32(key(suffix));
    if (!found) return other;
    if (!(*found >= lowest && *found <= highest)) {
      file_.reject(key(suffix), fmt::format("a finite number from {} to {}", lowest, highest));
    }
    return *found;
  }
  std::string text_or(std::string_view suffix, std::string_view other) const {
    return std::string(file_.try_string(key(suffix)).value_or(other));
  }
  bool has(std::string_view suffix) const { return file_.find(key(suffix)) != nullptr; }
  std::string key(std::string_view suffix) const { return prefix_ + std::string(suffix); }
  [[noreturn]] void reject(std::string_view suffix, std::string_view expected) const {
    file_.reject(key(suffix), expected);
  }

 private:
  int64_t in_range(std::string_view suffix, uint64_t value, int64_t lowest, int64_t highest) const {
    if (value < static_cast<uint64_t>(lowest) || value > static_cast<uint64_t>(highest)) {
      reject(suffix, fmt::format("an integer from {} to {}", lowest, highest));
    }
    return static_cast<int64_t>(value);
  }

  const gguf::File& file_;
  std::string prefix_;
};

// Adapters, projectors and importance matrices come as GGUF files too.
void require_model(const gguf::File& file) {
  const std::string_view type = file.try_string("general.type").value_or("model");
  if (type == "model") return;
  file.refuse(ErrorCode::unsupported, "general.type",
              fmt::format("found '{}', expected 'model' or none: the file is no model by itself; "
                          "give the model's own file",
                          printable(type)));
}

const Family& read_family(const gguf::File& file) {
  const std::string_view architecture = file.get_string("general.architecture");
  if (const Family* family = find_family(architecture)) return *family;
  std::vector<std::string_view> known;
  for (const Family* family : families()) known.push_back(family->architecture);
  file.refuse(
      ErrorCode::unsupported, "general.architecture",
      fmt::format("found '{}', supported: {}", printable(architecture), fmt::join(known, ", ")));
}

std::vector<float> read_freq_divisors(const gguf::File& file, const Family& family, int rope_dim) {
  constexpr std::string_view kName = "rope_freqs.weight";
  const gguf::TensorInfo* tensor = file.find_tensor(kName);
  if (!tensor || family.rope_freqs == Presence::absent) return {};
  const uint64_t expected = static_cast<uint64_t>(rope_dim) / 2;
  if (tensor->type_id != static_cast<uint32_t>(DType::f32) || tensor->n_elems != expected) {
    file.refuse(ErrorCode::bad_file, *tensor,
                fmt::format("found {} values of type id {}, expected {} of F32", tensor->n_elems,
                            tensor->type_id, expected));
  }
  std::vector<float> out(expected);
  const auto bytes = file.data(*tensor);
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(out.data()));
  for (const float divisor : out) {
    if (!(divisor > 0 && std::isfinite(divisor))) {
      file.refuse(ErrorCode::bad_file, *tensor,
                  fmt::format("found {}, expected finite numbers above 0", divisor));
    }
  }
  return out;
}

RopeParams read_rope(const gguf::File& file, const Reader& keys, const ModelConfig& config) {
  RopeParams rope;
  rope.dim = config.rope_dim;
  rope.base = keys.real_or("rope.freq_base", 1e-3, 1e12, 10000);
  rope.original_context =
      keys.count_or("rope.scaling.original_context_length", 1, 1 << 24, config.n_ctx_train);
  const std::string type = keys.text_or("rope.scaling.type", "linear");
  if (type != "none" && type != "linear" && type != "yarn") {
    file.refuse(ErrorCode::unsupported, keys.key("rope.scaling.type"),
                fmt::format("found '{}', supported: none, linear, yarn", printable(type)));
  }
  // 0 stands for "not scaled", as in files of old converters.
  const double old_factor = keys.real_or("rope.scale_linear", 0, 1e6, 0);
  const double factor = keys.real_or("rope.scaling.factor", 0, 1e6, old_factor);
  rope.factor = type == "none" || factor == 0 ? 1 : factor;
  rope.magnitude = keys.real_or("rope.scaling.attn_factor", 1e-6, 1e6, 1);
  const double extrapolation = keys.real_or("rope.scaling.yarn_ext_factor", -1e6, 1e6, -1);
  rope.extrapolation = extrapolation >= 0 ? extrapolation : (type == "yarn" ? 1 : 0);
  // yarn computes this factor itself, so the file's value matters only without the ramp.
  const double plain_magnitude = keys.real_or("rope.scaling.yarn_attn_factor", -1e6, 1e6, 1);
  if (rope.extrapolation == 0 && plain_magnitude >= 0) rope.magnitude *= plain_magnitude;
  rope.beta_fast = keys.real_or("rope.scaling.yarn_beta_fast", 1e-6, 1e6, 32);
  rope.beta_slow = keys.real_or("rope.scaling.yarn_beta_slow", 1e-6, 1e6, 1);
  if (rope.extrapolation != 0 && rope.base <= 1) {
    keys.reject("rope.freq_base", "a base above 1, as yarn takes its logarithm");
  }
  rope.freq_divisors = read_freq_divisors(file, *config.family, config.rope_dim);
  return rope;
}

void read_heads(const gguf::File& file, const Reader& keys, ModelConfig& config) {
  config.n_heads = static_cast<int>(keys.count("attention.head_count", 1, 1024));
  config.n_kv_heads =
      static_cast<int>(keys.count_or("attention.head_count_kv", 1, 1024, config.n_heads));
  if (config.n_heads % config.n_kv_heads != 0) {
    keys.reject("attention.head_count_kv",
                fmt::format("a divisor of the {} heads", config.n_heads));
  }
  const int group = config.n_heads / config.n_kv_heads;
  if (group > kAttnMaxGroup) {
    file.refuse(
        ErrorCode::unsupported, keys.key("attention.head_count"),
        fmt::format("{} heads and {} of {} make {} query heads a KV head, and this build has "
                    "code for at most {}",
                    config.n_heads, keys.key("attention.head_count_kv"), config.n_kv_heads, group,
                    kAttnMaxGroup));
  }
  if (!keys.has("attention.key_length") && config.d_model % config.n_heads != 0) {
    keys.reject("embedding_length", fmt::format("a multiple of the {} heads, as the file has no "
                                                "attention.key_length",
                                                config.n_heads));
  }
  const int64_t usual_dim = config.d_model / config.n_heads;
  const int64_t head_dim = keys.count_or("attention.key_length", 1, 4096, usual_dim);
  if (keys.count_or("attention.value_length", 1, 4096, head_dim) != head_dim) {
    keys.reject(
        "attention.value_length",
        fmt::format("{}, the length of the keys: this build has no code for others", head_dim));
  }
  if (head_dim % 16 != 0 || head_dim > 256) {
    // Without a key of its own it follows from the number of heads.
    const bool stated = keys.has("attention.key_length");
    file.refuse(
        ErrorCode::unsupported, keys.key(stated ? "attention.key_length" : "attention.head_count"),
        fmt::format("a head dimension of {} has no code here: supported are the multiples of "
                    "16 up to 256",
                    head_dim));
  }
  config.head_dim = static_cast<int>(head_dim);
  config.rope_dim = static_cast<int>(keys.count_or("rope.dimension_count", 2, head_dim, head_dim));
  if (config.rope_dim % 2 != 0) keys.reject("rope.dimension_count", "an even number");
}

}  // namespace

ModelConfig read_model_config(const gguf::File& file) {
  ModelConfig config;
  require_model(file);
  config.family = &read_family(file);
  const Reader keys(file, config.family->architecture);
  const std::string prefix = keys.key("");
  for (const gguf::Entry& entry : file.metadata()) {
    if (entry.key.starts_with(prefix)) check_key(file, entry, entry.key.substr(prefix.size()));
  }

  config.name = std::string(file.try_string("general.name").value_or(""));
  config.n_layers = static_cast<int>(keys.count("block_count", 1, 1024));
  config.n_ctx_train = keys.count("context_length", 1, 1 << 24);
  config.d_model = keys.count("embedding_length", 1, 1 << 20);
  config.d_ff = keys.count("feed_forward_length", 1, 1 << 22);
  read_heads(file, keys, config);
  if (!keys.has("attention.layer_norm_rms_epsilon")) {
    file.get_f32(keys.key("attention.layer_norm_rms_epsilon"));  // throws and names the key
  }
  config.rms_eps =
      static_cast<float>(keys.real_or("attention.layer_norm_rms_epsilon", 1e-12, 1.0, 1e-5));
  config.attn_scale = static_cast<float>(1.0 / std::sqrt(config.head_dim));
  config.sliding_window = keys.count_or("attention.sliding_window", 0, int64_t{1} << 32, 0);
  config.rope = make_rope_table(read_rope(file, keys, config));

  const gguf::TensorInfo* embedding = file.find_tensor("token_embd.weight");
  if (!embedding) {
    fail(ErrorCode::bad_file, "{}: tensor 'token_embd.weight' is missing", file.path());
  }
  if (embedding->dims[1] < 1 || embedding->dims[1] > 1 << 24) {
    file.refuse(ErrorCode::bad_file, *embedding,
                fmt::format("found {} rows, expected 1 to {}", embedding->dims[1], 1 << 24));
  }
  config.vocab_size = static_cast<int64_t>(embedding->dims[1]);
  if (keys.count_or("vocab_size", 1, 1 << 24, config.vocab_size) != config.vocab_size) {
    keys.reject("vocab_size",
                fmt::format("{}, the rows of 'token_embd.weight'", config.vocab_size));
  }
  return config;
}

void require_context(const ModelConfig& config, int64_t n_ctx) {
  if (config.sliding_window > 0 && n_ctx > config.sliding_window) {
    fail(ErrorCode::unsupported,
         "the model attends through a sliding window of {} tokens, which has no code here, and the "
         "context is {}: use a context of at most {} (-c)",
         config.sliding_window, n_ctx, config.sliding_window);
  }
}

}  // namespace fathom
