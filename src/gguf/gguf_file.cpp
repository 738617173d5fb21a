// SPDX-License-Identifier: Apache-2.0
// Joining the shards of a split set, the look-ups by name, and the typed getters with their errors.
#include "gguf/gguf_file.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "gguf/shard_parser.hpp"

namespace fathom::gguf {
namespace {

constexpr std::string_view kSplitNo = "split.no";
constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitTensors = "split.tensors.count";
constexpr uint64_t kMaxShards = 65535;  // split.count is a u16

std::string shard_suffix(uint64_t shard, uint64_t n_shards) {
  return fmt::format("-{:05}-of-{:05}.gguf", shard + 1, n_shards);
}

const Entry* find_entry(std::span<const Entry> entries, std::string_view key) {
  const auto it = std::find_if(entries.begin(), entries.end(),
                               [&](const Entry& entry) { return entry.key == key; });
  return it == entries.end() ? nullptr : &*it;
}

// A split.* value of one shard, which must be there and equal `expected`.
void expect_split_value(const std::string& path, std::span<const Entry> metadata,
                        std::string_view key, uint64_t expected) {
  const Entry* entry = find_entry(metadata, key);
  if (!entry) {
    fail(ErrorCode::bad_file, "{}: key '{}' is missing, expected {}; it is no shard of this set",
         path, key, expected);
  }
  if (entry->value.as_u64() != expected) {
    fail(ErrorCode::bad_file, "{}: key '{}' at offset {}: found {}, expected {}", path, key,
         entry->value.offset, entry->value.describe(), expected);
  }
}

}  // namespace

File File::open(const std::string& path, OpenMode mode) {
  MappedFile mapping = MappedFile::open(path);
  const std::span<const std::byte> bytes = mapping.bytes();
  File file;
  file.add_shard({path, std::move(mapping), bytes, 0, 0}, mode);
  if (const uint64_t n_shards = file.try_u64(kSplitCount).value_or(1); n_shards > 1) {
    file.add_siblings(n_shards, mode);
  }
  file.index_tensors();
  return file;
}

File File::parse(std::span<const std::byte> bytes, OpenMode mode, const std::string& name) {
  File file;
  file.add_shard({name, std::nullopt, bytes, 0, 0}, mode);
  file.index_tensors();
  return file;
}

std::vector<Entry> File::add_shard(Shard shard, OpenMode mode) {
  ParsedShard parsed = parse_shard(shard.bytes, shard.path, mode, n_shards());
  shard.version = parsed.version;
  shard.alignment = parsed.alignment;

  const auto key = [&](uint32_t i) { return parsed.metadata[i].key; };
  std::vector<uint32_t> order = sorted_by_name(parsed.metadata.size(), key);
  for (size_t i = 1; i < order.size(); ++i) {
    if (key(order[i]) != key(order[i - 1])) continue;
    fail(ErrorCode::bad_file,
         "{}: key '{}' at offset {}: it occurs a second time, the limit is one", shard.path,
         printable(key(order[i])), parsed.metadata[order[i]].value.offset);
  }

  const bool first = shards_.empty();
  shards_.push_back(std::move(shard));
  tensors_.insert(tensors_.end(), parsed.tensors.begin(), parsed.tensors.end());
  if (!first) return std::move(parsed.metadata);
  metadata_ = std::move(parsed.metadata);
  keys_by_name_ = std::move(order);
  return {};
}

void File::add_siblings(uint64_t n_shards, OpenMode mode) {
  const std::string first_path = path();
  if (n_shards > kMaxShards) reject(kSplitCount, fmt::format("at most {}", kMaxShards));
  if (const uint64_t no = get_u64(kSplitNo); no != 0) {
    fail(ErrorCode::bad_file, "{}: key '{}': this is shard {} of {}; open the first, *{}",
         first_path, kSplitNo, no + 1, n_shards, shard_suffix(0, n_shards));
  }
  const std::string first_suffix = shard_suffix(0, n_shards);
  if (!first_path.ends_with(first_suffix)) {
    fail(ErrorCode::bad_file,
         "{}: key '{}': the file is the first of {} shards, so its name must end in '{}'; restore "
         "the names",
         first_path, kSplitCount, n_shards, first_suffix);
  }
  const std::string prefix = first_path.substr(0, first_path.size() - first_suffix.size());
  for (uint64_t shard = 1; shard < n_shards; ++shard) {
    const std::string sibling = prefix + shard_suffix(shard, n_shards);
    if (!std::filesystem::exists(sibling)) {
      fail(ErrorCode::bad_file, "{}: shard {} of {} is missing: put '{}' beside it", first_path,
           shard + 1, n_shards, sibling);
    }
    MappedFile mapping = MappedFile::open(sibling);
    const std::span<const std::byte> bytes = mapping.bytes();
    const auto metadata = add_shard({sibling, std::move(mapping), bytes, 0, 0}, mode);
    expect_split_value(sibling, metadata, kSplitNo, shard);
    expect_split_value(sibling, metadata, kSplitCount, n_shards);
  }
  if (tensors_.size() > kMaxTensors) {
    fail(ErrorCode::bad_file, "{}: the set has {} tensors, at most {} are allowed", first_path,
         tensors_.size(), kMaxTensors);
  }
  if (get_u64(kSplitTensors) != tensors_.size()) {
    reject(kSplitTensors,
           fmt::format("{}, the tensors in the {} shards", tensors_.size(), n_shards));
  }
}

void File::index_tensors() {
  const auto name = [&](uint32_t i) { return tensors_[i].name; };
  tensors_by_name_ = sorted_by_name(tensors_.size(), name);
  for (size_t i = 1; i < tensors_by_name_.size(); ++i) {
    const TensorInfo& tensor = tensors_[tensors_by_name_[i]];
    if (tensor.name != name(tensors_by_name_[i - 1])) continue;
    fail(ErrorCode::bad_file,
         "{}: tensor '{}' at offset {}: the name occurs a second time, the limit is one",
         shards_[static_cast<size_t>(tensor.shard)].path, printable(tensor.name), tensor.offset);
  }
}

const Value* File::find(std::string_view key) const {
  const auto it =
      std::lower_bound(keys_by_name_.begin(), keys_by_name_.end(), key,
                       [&](uint32_t i, std::string_view k) { return metadata_[i].key < k; });
  if (it == keys_by_name_.end() || metadata_[*it].key != key) return nullptr;
  return &metadata_[*it].value;
}

const TensorInfo* File::find_tensor(std::string_view name) const {
  const auto it =
      std::lower_bound(tensors_by_name_.begin(), tensors_by_name_.end(), name,
                       [&](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  if (it == tensors_by_name_.end() || tensors_[*it].name != name) return nullptr;
  return &tensors_[*it];
}

std::span<const std::byte> File::data(const TensorInfo& tensor) const {
  const Shard& shard = shards_[static_cast<size_t>(tensor.shard)];
  return shard.bytes.subspan(tensor.offset, tensor.bytes);
}

void File::drop(const TensorInfo& tensor) const {
  const Shard& shard = shards_[static_cast<size_t>(tensor.shard)];
  if (shard.mapping) shard.mapping->drop(tensor.offset, tensor.bytes);
}

uint64_t File::file_bytes() const {
  uint64_t sum = 0;
  for (const Shard& shard : shards_) sum += shard.bytes.size();
  return sum;
}

uint64_t File::tensor_bytes() const {
  uint64_t sum = 0;
  for (const TensorInfo& tensor : tensors_) sum += tensor.bytes;
  return sum;
}

void File::reject(std::string_view key, std::string_view expected) const {
  const Value* value = find(key);
  if (!value) {
    fail(ErrorCode::bad_file, "{}: key '{}' is missing, expected {}; convert the model again",
         path(), printable(key), expected);
  }
  refuse(ErrorCode::bad_file, key,
         fmt::format("found {}, expected {}", value->describe(), expected));
}

void File::refuse(ErrorCode code, std::string_view key, std::string_view problem) const {
  const Value* value = find(key);
  fail(code, "{}: key '{}'{}: {}", path(), printable(key),
       value ? fmt::format(" at offset {}", value->offset) : "", problem);
}

void File::refuse(ErrorCode code, const TensorInfo& tensor, std::string_view problem) const {
  fail(code, "{}: tensor '{}' at offset {}: {}", shards_[static_cast<size_t>(tensor.shard)].path,
       printable(tensor.name), tensor.offset, problem);
}

// One getter in two forms. `convert` gives nothing when the value does not suit.
namespace {
template <class Convert>
auto optional_value(const File& file, std::string_view key, const char* expected, Convert&& convert)
    -> decltype(convert(*file.find(key))) {
  const Value* value = file.find(key);
  if (!value) return std::nullopt;
  auto converted = convert(*value);
  if (!converted) file.reject(key, expected);
  return converted;
}

template <class T>
T required_value(const File& file, std::string_view key, const char* expected,
                 std::optional<T> value) {
  if (!value) file.reject(key, expected);
  return *std::move(value);
}

template <class Int>
std::optional<Int> integer(const Value& value) {
  if (const auto number = value.as_i64(); number && std::in_range<Int>(*number)) {
    return static_cast<Int>(*number);
  }
  if (const auto number = value.as_u64(); number && std::in_range<Int>(*number)) {
    return static_cast<Int>(*number);
  }
  return std::nullopt;
}

constexpr const char* kU32 = "an integer in 0..4294967295";
constexpr const char* kU64 = "an integer in 0..18446744073709551615";
constexpr const char* kI32 = "an integer in -2147483648..2147483647";
constexpr const char* kF32 = "an f32";
constexpr const char* kBool = "a bool";
constexpr const char* kString = "a string";
constexpr const char* kStrings = "an array of strings";
constexpr const char* kI32s = "an array of integers in -2147483648..2147483647";
constexpr const char* kU32s = "an array of integers in 0..4294967295";
constexpr const char* kF32s = "an array of f32";

std::optional<float> f32_of(const Value& value) {
  if (value.type != ValueType::f32) return std::nullopt;
  return static_cast<float>(*value.as_f64());
}
}  // namespace

std::optional<uint32_t> File::try_u32(std::string_view key) const {
  return optional_value(*this, key, kU32, integer<uint32_t>);
}
std::optional<uint64_t> File::try_u64(std::string_view key) const {
  return optional_value(*this, key, kU64, integer<uint64_t>);
}
std::optional<int32_t> File::try_i32(std::string_view key) const {
  return optional_value(*this, key, kI32, integer<int32_t>);
}
std::optional<float> File::try_f32(std::string_view key) const {
  return optional_value(*this, key, kF32, f32_of);
}
std::optional<bool> File::try_bool(std::string_view key) const {
  return optional_value(*this, key, kBool, [](const Value& v) { return v.as_bool(); });
}
std::optional<std::string_view> File::try_string(std::string_view key) const {
  return optional_value(*this, key, kString, [](const Value& v) { return v.as_string(); });
}
std::optional<std::vector<std::string_view>> File::try_array_strings(std::string_view key) const {
  return optional_value(*this, key, kStrings, [](const Value& v) { return v.strings(); });
}
std::optional<std::vector<int32_t>> File::try_array_i32(std::string_view key) const {
  return optional_value(*this, key, kI32s, [](const Value& v) { return v.integers<int32_t>(); });
}
std::optional<std::vector<uint32_t>> File::try_array_u32(std::string_view key) const {
  return optional_value(*this, key, kU32s, [](const Value& v) { return v.integers<uint32_t>(); });
}
std::optional<std::vector<float>> File::try_array_f32(std::string_view key) const {
  return optional_value(*this, key, kF32s, [](const Value& v) { return v.floats(); });
}

uint32_t File::get_u32(std::string_view key) const {
  return required_value(*this, key, kU32, try_u32(key));
}
uint64_t File::get_u64(std::string_view key) const {
  return required_value(*this, key, kU64, try_u64(key));
}
int32_t File::get_i32(std::string_view key) const {
  return required_value(*this, key, kI32, try_i32(key));
}
float File::get_f32(std::string_view key) const {
  return required_value(*this, key, kF32, try_f32(key));
}
bool File::get_bool(std::string_view key) const {
  return required_value(*this, key, kBool, try_bool(key));
}
std::string_view File::get_string(std::string_view key) const {
  return required_value(*this, key, kString, try_string(key));
}
std::vector<std::string_view> File::array_strings(std::string_view key) const {
  return required_value(*this, key, kStrings, try_array_strings(key));
}
std::vector<int32_t> File::array_i32(std::string_view key) const {
  return required_value(*this, key, kI32s, try_array_i32(key));
}
std::vector<uint32_t> File::array_u32(std::string_view key) const {
  return required_value(*this, key, kU32s, try_array_u32(key));
}
std::vector<float> File::array_f32(std::string_view key) const {
  return required_value(*this, key, kF32s, try_array_f32(key));
}

}  // namespace fathom::gguf
