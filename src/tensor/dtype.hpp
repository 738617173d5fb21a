// SPDX-License-Identifier: Apache-2.0
// The element types of GGUF tensors: ids, names, block geometry.
// Source: ggml's type table (docs/quant_formats.md); ids 4, 5, 31-33 and 36-38 were removed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace fathom {

enum class DType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq4_nl = 20,
  iq4_xs = 23,
  bf16 = 30,
  mxfp4 = 39,
};

struct DTypeInfo {
  DType type;
  const char* name;  // llama.cpp's spelling, for instance "Q4_K"
  int block_elems;   // values per block
  int block_bytes;   // bytes per block
  double bits() const { return 8.0 * block_bytes / block_elems; }
};

// The row of a supported type. Every DType enumerator has one.
const DTypeInfo& dtype_info(DType type);
std::span<const DTypeInfo> all_dtypes();

// What an id of a file means: supported, known but without code here, removed, or unknown.
enum class DTypeStatus { supported, known_unsupported, removed, unknown };
struct DTypeLookup {
  DTypeStatus status;
  const char* name;     // ggml's name, "removed" or "unknown"
  int block_elems = 0;  // 0 for removed and unknown ids
  int block_bytes = 0;
};
DTypeLookup lookup_dtype(uint32_t id);

// By name, case-insensitive ("q4_k", "Q4_K"); nothing when no supported type has it.
std::optional<DType> dtype_from_name(std::string_view name);

inline int64_t row_bytes(DType type, int64_t n_elems) {
  const DTypeInfo& info = dtype_info(type);
  return n_elems / info.block_elems * info.block_bytes;
}

}  // namespace fathom
