// SPDX-License-Identifier: Apache-2.0
// A GGUF file (version 2 or 3, little-endian, one file or a split set) opened read-only: metadata,
// tensor directory, tensor bytes. Everything is a view of the mapping; a File that exists has
// passed every check of docs/gguf.md, so its users never meet an offset outside it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.hpp"
#include "fathom/error.hpp"
#include "gguf/value.hpp"
#include "tensor/dtype.hpp"

namespace fathom::gguf {

inline constexpr uint32_t kMaxDims = 4;
inline constexpr uint64_t kMaxKeys = 1u << 16;
inline constexpr uint64_t kMaxTensors = 1u << 20;
inline constexpr uint64_t kMaxKeyBytes = 65535;
inline constexpr uint64_t kMaxTensorNameBytes = 64;
inline constexpr uint32_t kDefaultAlignment = 32;
inline constexpr uint32_t kMinAlignment = 8;
inline constexpr uint32_t kMaxAlignment = 65536;

enum class OpenMode {
  load,     // every tensor must be usable: a supported type, no dimension of zero
  inspect,  // also accepts types without code here and empty tensors
};

struct TensorInfo {
  std::string_view name;
  uint32_t type_id;                     // as in the file; see dtype()
  int n_dims;                           // 1..4; 0 for a scalar, in mode inspect only
  std::array<uint64_t, kMaxDims> dims;  // innermost first, 1 beyond n_dims
  uint64_t n_elems;                     // < 2^63
  uint64_t offset;                      // of the first byte in its shard's file
  uint64_t bytes;
  int shard;

  // REQUIRES: opened in mode load, or lookup_dtype(type_id) says supported.
  DType dtype() const { return static_cast<DType>(type_id); }
};

class File {
 public:
  // Opens one file, or the whole set when `path` is its first shard (-00001-of-000NN.gguf).
  // Throws Error{bad_file} or Error{unsupported}.
  static File open(const std::string& path, OpenMode mode = OpenMode::load);
  // One shard in memory, which must outlive the File. `name` stands for the path in messages.
  static File parse(std::span<const std::byte> bytes, OpenMode mode = OpenMode::load,
                    const std::string& name = "memory");

  // Metadata. A set's metadata is that of its first shard.
  const Value* find(std::string_view key) const;
  std::span<const Entry> metadata() const { return metadata_; }  // in file order

  // An absent key gives nothing. A value of the wrong type or range throws and names the key.
  // The integer getters take any integer type whose value fits; the others only their own type.
  std::optional<uint32_t> try_u32(std::string_view key) const;
  std::optional<uint64_t> try_u64(std::string_view key) const;
  std::optional<int32_t> try_i32(std::string_view key) const;
  std::optional<float> try_f32(std::string_view key) const;
  std::optional<bool> try_bool(std::string_view key) const;
  std::optional<std::string_view> try_string(std::string_view key) const;
  std::optional<std::vector<std::string_view>> try_array_strings(std::string_view key) const;
  std::optional<std::vector<int32_t>> try_array_i32(std::string_view key) const;
  std::optional<std::vector<uint32_t>> try_array_u32(std::string_view key) const;
  std::optional<std::vector<float>> try_array_f32(std::string_view key) const;

  // The same, but an absent key throws too.
  uint32_t get_u32(std::string_view key) const;
  uint64_t get_u64(std::string_view key) const;
  int32_t get_i32(std::string_view key) const;
  float get_f32(std::string_view key) const;
  bool get_bool(std::string_view key) const;
  std::string_view get_string(std::string_view key) const;
  std::vector<std::string_view> array_strings(std::string_view key) const;
  std::vector<int32_t> array_i32(std::string_view key) const;
  std::vector<uint32_t> array_u32(std::string_view key) const;
  std::vector<float> array_f32(std::string_view key) const;

  // Throws Error{bad_file} "<path>: key '<key>' at offset N: found <value>, expected <expected>":
  // for users that check more than the type.
  [[noreturn]] void reject(std::string_view key, std::string_view expected) const;
  // Throws Error{code} "<path>: key '<key>' at offset N: <problem>", without an offset when the
  // file lacks the key; the other "<path>: tensor '<name>' at offset N: <problem>".
  [[noreturn]] void refuse(ErrorCode code, std::string_view key, std::string_view problem) const;
  [[noreturn]] void refuse(ErrorCode code, const TensorInfo& tensor,
                           std::string_view problem) const;

  // Tensors, shard after shard in file order.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  const TensorInfo* find_tensor(std::string_view name) const;
  std::span<const std::byte> data(const TensorInfo& tensor) const;
  // Gives the tensor's pages back to the system; they are read again when touched.
  void drop(const TensorInfo& tensor) const;

  uint32_t version() const { return shards_[0].version; }
  uint32_t alignment() const { return shards_[0].alignment; }
  int n_shards() const { return static_cast<int>(shards_.size()); }
  const std::string& path() const { return shards_[0].path; }
  uint64_t file_bytes() const;    // of all shards
  uint64_t tensor_bytes() const;  // of all tensors, without padding

 private:
  struct Shard {
    std::string path;
    std::optional<MappedFile> mapping;  // none when parsed from memory
    std::span<const std::byte> bytes;
    uint32_t version;
    uint32_t alignment;
  };

  File() = default;
  // Appends a shard's tensors, and the metadata if it is the first; gives the metadata otherwise.
  std::vector<Entry> add_shard(Shard shard, OpenMode mode);
  void add_siblings(uint64_t n_shards, OpenMode mode);
  void index_tensors();

  std::vector<Shard> shards_;
  std::vector<Entry> metadata_;
  std::vector<TensorInfo> tensors_;
  // Positions in the order of the names. Sorted rather than hashed: no file can be crafted to
  // make a look-up slow.
  std::vector<uint32_t> keys_by_name_;
  std::vector<uint32_t> tensors_by_name_;
};

}  // namespace fathom::gguf
