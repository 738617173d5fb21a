// SPDX-License-Identifier: Apache-2.0
// The parsers, each with the error that says what was found and what is accepted, and the reading
// of files and pipes so that Ctrl-C ends it.
#include "cli/arguments.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "cli/interrupt.hpp"

namespace fathom::cli {
namespace {

struct ShortFlag {
  const char* given;
  const char* meant;
};
constexpr ShortFlag kShortFlags[] = {
    {"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}, {"-ngl", "--n-gpu-layers"},
    {"-ub", "--ubatch-size"},   {"-pg", "--prompt-gen"},    {"-fa", "--flash-attn"},
    {"-npl", "--n-parallel"},
};

// Flags whose value is text or a path, which may look like a flag of ours.
constexpr std::string_view kTextFlags[] = {
    "-p",
    "--prompt",
    "-f",
    "--file",
    "-r",
    "--stop",
    "-m",
    "--model",
    "-o",
    "--output",
    "--reverse-prompt",
    "--shape",
    "--base",
    "--save-base",
    "--backend-dir",
};

bool takes_text(std::string_view flag) {
  return std::find(std::begin(kTextFlags), std::end(kTextFlags), flag) != std::end(kTextFlags);
}

struct KvTypeName {
  KvType type;
  const char* name;
};
constexpr KvTypeName kKvTypes[] = {{KvType::f16, "f16"},
                                   {KvType::bf16, "bf16"},
                                   {KvType::f32, "f32"},
                                   {KvType::q8_0, "q8_0"},
                                   {KvType::fp8_e4m3, "fp8-e4m3"}};

// What any list of ours may hold: tokens of the longest context. Sums of a few stay far from the
// limits of int64_t.
constexpr int64_t kLargestNumber = 1 << 24;

int64_t parse_number(std::string_view text, std::string_view flag) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem == std::errc::result_out_of_range || value > kLargestNumber) {
    fail(ErrorCode::usage, "{}: '{}' is too large, expected at most {}", flag, text,
         kLargestNumber);
  }
  if (problem != std::errc{} || end != text.data() + text.size() || value < 0) {
    fail(ErrorCode::usage,
         "{}: '{}' is not a number, a list a,b or a range first-last[+step|*factor]", flag, text);
  }
  return value;
}

constexpr int64_t kMostRangeValues = 4096;

void append_range(std::string_view text, std::string_view flag, std::vector<int64_t>& out) {
  const size_t dash = text.find('-');
  if (dash == 0) fail(ErrorCode::usage, "{}: '{}' is negative, expected 0 or more", flag, text);
  if (dash == std::string_view::npos) {
    out.push_back(parse_number(text, flag));
    return;
  }
  const int64_t first = parse_number(text.substr(0, dash), flag);
  std::string_view rest = text.substr(dash + 1);
  const size_t operation = rest.find_first_of("+*");
  const int64_t last = parse_number(rest.substr(0, operation), flag);
  int64_t step = 1;
  bool multiply = false;
  if (operation != std::string_view::npos) {
    multiply = rest[operation] == '*';
    step = parse_number(rest.substr(operation + 1), flag);
  }
  if (step < 1 || (multiply && (step < 2 || first < 1))) {
    fail(ErrorCode::usage, "{}: the range '{}' would never end", flag, text);
  }
  int64_t count = 0;
  for (int64_t value = first; value <= last; value = multiply ? value * step : value + step) {
    if (++count > kMostRangeValues) {
      fail(ErrorCode::usage, "{}: the range '{}' has more than {} values", flag, text,
           kMostRangeValues);
    }
    out.push_back(value);
  }
}

constexpr int kPollMilliseconds = 100;

struct OpenFile {
  int fd;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

std::vector<std::string> expand_short_flags(std::span<char* const> arguments) {
  std::vector<std::string> out;
  bool only_words = false;  // after "--"
  bool is_text = false;     // the value of the flag before
  for (const char* argument : arguments) {
    std::string text = argument;
    if (only_words || is_text) {
      is_text = false;
    } else {
      only_words = text == "--";
      is_text = takes_text(text);
      for (const ShortFlag& flag : kShortFlags) {
        if (text == flag.given) text = flag.meant;
      }
    }
    out.push_back(std::move(text));
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::vector<int64_t> parse_number_list(std::string_view text, std::string_view flag) {
  std::vector<int64_t> values;
  for (const std::string& part : split(text, ',')) append_range(part, flag, values);
  return values;
}

std::optional<uint64_t> parse_uint64(std::string_view text) {
  uint64_t value = 0;
  const char* last = text.data() + text.size();
  const auto [end, problem] = std::from_chars(text.data(), last, value);
  return problem == std::errc{} && end == last ? std::optional(value) : std::nullopt;
}

std::pair<int64_t, int64_t> parse_pair(std::string_view text, std::string_view flag) {
  const std::vector<int64_t> values = parse_number_list(text, flag);
  if (values.size() != 2) {
    fail(ErrorCode::usage, "{}: '{}' is not a pair prompt,generate", flag, text);
  }
  return {values[0], values[1]};
}

KvType parse_kv_type(std::string_view name) {
  for (const KvTypeName& row : kKvTypes) {
    if (name == row.name) return row.type;
  }
  fail(ErrorCode::usage,
       "KV cache type '{}' is not supported: use f16, bf16, f32, q8_0 or fp8-e4m3", name);
}

const char* kv_type_name(KvType type) {
  for (const KvTypeName& row : kKvTypes) {
    if (type == row.type) return row.name;
  }
  return "?";
}

KvType parse_kv_types(std::string_view type_k, std::string_view type_v) {
  const KvType k = parse_kv_type(type_k), v = parse_kv_type(type_v);
  if (k != v) {
    fail(ErrorCode::usage,
         "-ctk {} with -ctv {}: keys and values share one type here, give both the same", type_k,
         type_v);
  }
  return k;
}

ActivationType parse_activations(std::string_view name) {
  if (name == "int8") return ActivationType::int8;
  if (name == "f32") return ActivationType::f32;
  fail(ErrorCode::usage, "--activations {}: use int8 or f32", name);
}

LogitBias parse_logit_bias(std::string_view text) {
  const size_t sign = text.find_first_of("+-", 1);
  int32_t token = -1;
  const char* end = text.data() + std::min(sign, text.size());
  const auto [stop, problem] = std::from_chars(text.data(), end, token);
  const std::string number(sign == std::string_view::npos ? "" : text.substr(sign));
  char* parsed = nullptr;
  const float bias = std::strtof(number.c_str(), &parsed);
  if (problem != std::errc{} || stop != end || token < 0 || number.size() < 2 || *parsed != '\0' ||
      bias != bias) {
    fail(ErrorCode::usage,
         "--logit-bias '{}': expected a token id, + or -, and a number, for instance 15043-1.5 or "
         "2-inf",
         text);
  }
  return {token, bias};
}

std::string read_text(const std::string& path, size_t max_bytes) {
  const bool is_stdin = path == "-";
  const char* name = is_stdin ? "stdin" : path.c_str();
  // Not blocking: the poll below waits for a FIFO's writer, and Ctrl-C ends it.
  const int fd = is_stdin ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(ErrorCode::bad_file, "cannot read {}: {}", name, std::strerror(errno));
  const OpenFile closer{is_stdin ? -1 : fd};
  const auto require_size = [&](size_t n_bytes) {
    if (n_bytes <= max_bytes) return;
    fail(ErrorCode::usage, "{} holds more than {} bytes, the longest text that can be read", name,
         max_bytes);
  };
  std::string text;
  if (struct stat about{}; ::fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) {
    require_size(static_cast<size_t>(about.st_size));
    text.reserve(static_cast<size_t>(about.st_size));  // growing would hold it twice
  }
  char buffer[1 << 16];
  while (true) {
    // A wait of its own, so that a Ctrl-C between the check and the call is seen as well.
    if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
    pollfd input{fd, POLLIN, 0};
    if (::poll(&input, 1, kPollMilliseconds) <= 0) continue;
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n == 0) return text;
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) fail(ErrorCode::bad_file, "cannot read {}: {}", name, std::strerror(errno));
    require_size(text.size() + static_cast<size_t>(n));
    text.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace fathom::cli
