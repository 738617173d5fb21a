// SPDX-License-Identifier: Apache-2.0
// Every number of the file is compared with what is left of the file before it is used; sums and
// products are checked one by one. docs/gguf.md lists the limits.
#include "gguf/shard_parser.hpp"

#include <cstring>

#include "base/byte_reader.hpp"
#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/utf8.hpp"

namespace fathom::gguf {
namespace {

constexpr uint64_t kMaxInt64 = 0x7fffffffffffffffu;
// The shortest records: a key of one byte with a value of one; a name of one byte without
// dimensions. They bound the counts by the size of the file.
constexpr uint64_t kMinKeyRecord = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorRecord = 8 + 1 + 4 + 4 + 8;

class ShardParser {
 public:
  ShardParser(std::span<const std::byte> bytes, const std::string& path, OpenMode mode, int shard)
      : bytes_(bytes), reader_(bytes), path_(path), mode_(mode), shard_(shard) {}

  ParsedShard parse() {
    parse_header();
    parse_metadata();
    parse_tensors();
    place_tensors();
    return std::move(out_);
  }

 private:
  // What is being read, for messages: its kind, its place among its like, its name once known.
  struct Subject {
    const char* kind = "header";
    uint64_t index = 0;
    uint64_t count = 0;
    std::string_view name;
  };

  std::string subject() const {
    if (!subject_.name.empty())
      return fmt::format("{} '{}'", subject_.kind, printable(subject_.name));
    if (subject_.count == 0) return subject_.kind;
    return fmt::format("{} {} of {}", subject_.kind, subject_.index + 1, subject_.count);
  }

  template <class... Args>
  [[noreturn]] void reject(ErrorCode code, uint64_t offset, fmt::format_string<Args...> format,
                           Args&&... args) const {
    fail(code, "{}: {} at offset {}: {}", path_, subject(), offset,
         fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  [[noreturn]] void damaged(uint64_t offset, fmt::format_string<Args...> format,
                            Args&&... args) const {
    reject(ErrorCode::bad_file, offset, format, std::forward<Args>(args)...);
  }
  [[noreturn]] void truncated(const char* what, uint64_t needed) const {
    damaged(reader_.offset(),
            "the {} needs {} bytes, {} are left; the file is truncated or damaged", what, needed,
            reader_.left());
  }

  template <class T>
  T read(const char* what) {
    T value;
    if (!reader_.read(value)) truncated(what, sizeof(T));
    return value;
  }

  std::string_view read_string(const char* what, uint64_t max_bytes) {
    const uint64_t start = reader_.offset();
    const auto length = read<uint64_t>(what);
    if (length > max_bytes) {
      damaged(start, "the {} is {} bytes long, at most {} are allowed", what, length, max_bytes);
    }
    std::span<const std::byte> bytes;
    if (!reader_.take(length, bytes)) truncated(what, length);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // A key or a tensor's name: not empty, short, UTF-8.
  std::string_view read_name(const char* what, uint64_t max_bytes) {
    const uint64_t start = reader_.offset();
    const std::string_view name = read_string(what, max_bytes);
    if (name.empty()) damaged(start, "the {} is empty, at least 1 byte is expected", what);
    if (!is_valid_utf8(name)) {
      damaged(start, "the {} '{}' is not valid UTF-8", what, printable(name));
    }
    return name;
  }

  uint64_t read_count(const char* what, uint64_t limit, uint64_t min_record) {
    const uint64_t start = reader_.offset();
    const auto count = read<uint64_t>(what);
    if (count > limit) damaged(start, "the {} is {}, at most {} are allowed", what, count, limit);
    if (count > (bytes_.size() - start) / min_record) {
      damaged(start, "the {} is {}, but {} bytes are left and each needs at least {}", what, count,
              reader_.left(), min_record);
    }
    return count;
  }

  void parse_header() {
    char magic[4] = {};
    for (char& c : magic) c = read<char>("magic");
    if (std::memcmp(magic, "GGUF", 4) != 0) {
      damaged(0, "the file starts with '{}', expected 'GGUF'; it is not a GGUF file",
              printable({magic, 4}));
    }
    const uint64_t at = reader_.offset();
    out_.version = read<uint32_t>("version");
    if (out_.version != 0 && (out_.version & 0xffffu) == 0) {
      reject(ErrorCode::unsupported, at,
             "version {:#x} means a big-endian file, only little-endian ones are read; convert it",
             out_.version);
    }
    if (out_.version != 2 && out_.version != 3) {
      reject(ErrorCode::unsupported, at,
             "GGUF version {} is not supported, only 2 and 3 are; convert the model again",
             out_.version);
    }
    n_tensors_ = read_count("tensor count", kMaxTensors, kMinTensorRecord);
    n_keys_ = read_count("key count", kMaxKeys, kMinKeyRecord);
  }

  ValueType read_value_type(const char* what) {
    const uint64_t start = reader_.offset();
    const auto id = read<uint32_t>(what);
    if (id >= kValueTypeCount) {
      damaged(start, "the {} is {}, expected 0..{}", what, id, kValueTypeCount - 1);
    }
    return static_cast<ValueType>(id);
  }

  void parse_metadata() {
    for (uint64_t i = 0; i < n_keys_; ++i) {
      subject_ = {"key", i, n_keys_, {}};
      const std::string_view key = read_name("key", kMaxKeyBytes);
      subject_.name = key;
      const ValueType type = read_value_type("value type");
      out_.metadata.push_back({key, read_value(type)});
      if (key == "general.alignment") set_alignment(out_.metadata.back().value);
    }
  }

  Value read_value(ValueType type) {
    if (type == ValueType::array) return read_array();
    Value value{type, type, 1, {}, reader_.offset()};
    if (type == ValueType::string) {
      const std::string_view text = read_string("string", kMaxInt64);
      value.payload = std::as_bytes(std::span(text.data(), text.size()));
      value.offset += sizeof(uint64_t);
      return value;
    }
    const uint64_t width = value_type_info(type).width;
    if (!reader_.take(width, value.payload)) truncated("value", width);
    if (type == ValueType::boolean) check_bools(value);
    return value;
  }

  Value read_array() {
    const uint64_t start = reader_.offset();
    const ValueType element = read_value_type("element type");
    if (element == ValueType::array) damaged(start, "arrays of arrays are not allowed");
    const auto count = read<uint64_t>("array length");
    const ValueTypeInfo& info = value_type_info(element);
    if (count > reader_.left() / info.min_stored) {
      damaged(start, "the array has {} elements of type {}, the {} bytes left hold at most {}",
              count, info.name, reader_.left(), reader_.left() / info.min_stored);
    }
    Value value{ValueType::array, element, count, {}, reader_.offset()};
    if (element == ValueType::string) {
      for (uint64_t i = 0; i < count; ++i) read_string("string of the array", kMaxInt64);
      value.payload = bytes_.subspan(value.offset, reader_.offset() - value.offset);
      return value;
    }
    if (!reader_.take(count * info.width, value.payload)) truncated("array", count * info.width);
    if (element == ValueType::boolean) check_bools(value);
    return value;
  }

  void check_bools(const Value& value) const {
    for (size_t i = 0; i < value.payload.size(); ++i) {
      if (const auto byte = std::to_integer<unsigned>(value.payload[i]); byte > 1) {
        damaged(value.offset + i, "a bool holds {}, expected 0 or 1", byte);
      }
    }
  }

  void set_alignment(const Value& value) {
    const auto alignment = value.type == ValueType::u32 ? value.as_u64() : std::nullopt;
    if (!alignment || *alignment < kMinAlignment || *alignment > kMaxAlignment ||
        (*alignment & (*alignment - 1)) != 0) {
      damaged(value.offset, "found {}, expected a u32 that is a power of two in {}..{}",
              value.describe(), kMinAlignment, kMaxAlignment);
    }
    out_.alignment = static_cast<uint32_t>(*alignment);
  }

  void parse_tensors() {
    for (uint64_t i = 0; i < n_tensors_; ++i) {
      subject_ = {"tensor", i, n_tensors_, {}};
      TensorInfo tensor{};
      tensor.shard = shard_;
      tensor.name = read_name("name", kMaxTensorNameBytes);
      subject_.name = tensor.name;
      const uint64_t start = reader_.offset();
      const auto n_dims = read<uint32_t>("dimension count");
      const uint32_t min_dims = mode_ == OpenMode::load ? 1 : 0;
      if (n_dims < min_dims || n_dims > kMaxDims) {
        damaged(start, "it has {} dimensions, expected {}..{}", n_dims, min_dims, kMaxDims);
      }
      tensor.n_dims = static_cast<int>(n_dims);
      read_dims(tensor);
      read_type(tensor);
      tensor.offset = read<uint64_t>("offset");
      out_.tensors.push_back(tensor);
    }
  }

  void read_dims(TensorInfo& tensor) {
    tensor.dims.fill(1);
    tensor.n_elems = 1;
    for (int d = 0; d < tensor.n_dims; ++d) {
      const uint64_t start = reader_.offset();
      const auto dim = read<uint64_t>("dimension");
      if (dim == 0 && mode_ == OpenMode::load) {
        damaged(start, "dimension {} is 0, expected at least 1", d);
      }
      if (dim > kMaxInt64 || !checked_mul(tensor.n_elems, dim, tensor.n_elems) ||
          tensor.n_elems > kMaxInt64) {
        damaged(start, "dimension {} is {}: the tensor would have more than {} elements", d, dim,
                kMaxInt64);
      }
      tensor.dims[static_cast<size_t>(d)] = dim;
    }
  }

  void read_type(TensorInfo& tensor) {
    const uint64_t start = reader_.offset();
    tensor.type_id = read<uint32_t>("type");
    const DTypeLookup type = lookup_dtype(tensor.type_id);
    if (type.status == DTypeStatus::removed || type.status == DTypeStatus::unknown) {
      reject(ErrorCode::unsupported, start, "type id {} is {}; supported are {}", tensor.type_id,
             type.name, supported_types());
    }
    if (type.status == DTypeStatus::known_unsupported && mode_ == OpenMode::load) {
      reject(ErrorCode::unsupported, start, "type {} (id {}) is not supported; supported are {}",
             type.name, tensor.type_id, supported_types());
    }
    const auto block_elems = static_cast<uint64_t>(type.block_elems);
    if (tensor.dims[0] % block_elems != 0) {
      damaged(start, "rows have {} elements, type {} needs a multiple of {}", tensor.dims[0],
              type.name, block_elems);
    }
    const uint64_t n_blocks = tensor.n_elems / block_elems;
    if (!checked_mul(n_blocks, static_cast<uint64_t>(type.block_bytes), tensor.bytes)) {
      damaged(start, "{} elements of type {} exceed {} bytes", tensor.n_elems, type.name,
              UINT64_MAX);
    }
  }

  static std::string supported_types() {
    std::string names;
    for (const DTypeInfo& info : all_dtypes()) {
      if (!names.empty()) names += ' ';
      names += info.name;
    }
    return names;
  }

  // Offsets in the file count from the first aligned byte after the directory. Here each becomes
  // absolute, inside the file, and no two tensors share a byte.
  void place_tensors() {
    if (out_.tensors.empty()) return;
    const uint64_t directory_end = reader_.offset();
    const uint64_t data_begin = round_up(directory_end, out_.alignment);
    const uint64_t available = data_begin <= bytes_.size() ? bytes_.size() - data_begin : 0;
    for (size_t i = 0; i < out_.tensors.size(); ++i) {
      TensorInfo& tensor = out_.tensors[i];
      subject_ = {"tensor", i, n_tensors_, tensor.name};
      if (tensor.offset % out_.alignment != 0) {
        damaged(tensor.offset, "offset in the data section must be a multiple of {}",
                out_.alignment);
      }
      if (tensor.offset > available || tensor.bytes > available - tensor.offset) {
        damaged(tensor.offset,
                "its {} bytes end outside the data section of {} bytes; the file is truncated or "
                "damaged",
                tensor.bytes, available);
      }
      tensor.offset += data_begin;
    }
    reject_overlaps();
  }

  void reject_overlaps() {
    std::vector<uint32_t> order;
    for (size_t i = 0; i < out_.tensors.size(); ++i) {
      if (out_.tensors[i].bytes != 0) order.push_back(static_cast<uint32_t>(i));
    }
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return out_.tensors[a].offset < out_.tensors[b].offset;
    });
    for (size_t i = 1; i < order.size(); ++i) {
      const TensorInfo& before = out_.tensors[order[i - 1]];
      const TensorInfo& after = out_.tensors[order[i]];
      if (after.offset - before.offset < before.bytes) {
        subject_ = {"tensor", order[i], n_tensors_, after.name};
        damaged(after.offset, "it overlaps tensor '{}', which ends at offset {}",
                printable(before.name), before.offset + before.bytes);
      }
    }
  }

  std::span<const std::byte> bytes_;
  ByteReader reader_;
  const std::string& path_;
  const OpenMode mode_;
  const int shard_;
  uint64_t n_tensors_ = 0;
  uint64_t n_keys_ = 0;
  Subject subject_;
  ParsedShard out_{0, kDefaultAlignment, {}, {}};
};

}  // namespace

ParsedShard parse_shard(std::span<const std::byte> bytes, const std::string& path, OpenMode mode,
                        int shard) {
  return ShardParser(bytes, path, mode, shard).parse();
}

}  // namespace fathom::gguf
