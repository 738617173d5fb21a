// SPDX-License-Identifier: Apache-2.0
// Reading what people type: llama.cpp's short flags of several letters, lists and ranges of
// numbers, KV types, logit biases, files and stdin.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/fathom.hpp"
#include "text/tokenizer.hpp"

namespace fathom::cli {

// "-ctk" -> "--cache-type-k" and so on: CLI11 would read -ctk as -c -t -k.
// The value of a flag that takes text stays as it is, and so do the words after "--".
std::vector<std::string> expand_short_flags(std::span<char* const> arguments);

// "4", "0,4096", "64-256+64", "64-1024*2" and lists of them, from 0 to 2^24. Throws Error{usage}
// naming `flag`.
std::vector<int64_t> parse_number_list(std::string_view text, std::string_view flag);
// A whole number from 0 to 2^64-1 in decimal digits; none for any other text.
std::optional<uint64_t> parse_uint64(std::string_view text);
// "512,128" -> {512, 128}
std::pair<int64_t, int64_t> parse_pair(std::string_view text, std::string_view flag);
std::vector<std::string> split(std::string_view text, char separator);

KvType parse_kv_type(std::string_view name);
const char* kv_type_name(KvType type);
// Both caches have one type here; a mixed pair throws Error{usage}.
KvType parse_kv_types(std::string_view type_k, std::string_view type_v);

ActivationType parse_activations(std::string_view name);

// "15043+1.5", "2-inf"
LogitBias parse_logit_bias(std::string_view text);

// The whole of a file, or of stdin when path is "-". Throws Error{bad_file}, Error{usage} for more
// than max_bytes, and Error{cancelled} after a Ctrl-C.
std::string read_text(const std::string& path, size_t max_bytes = text::kMaxTextBytes);

}  // namespace fathom::cli
