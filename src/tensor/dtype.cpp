// SPDX-License-Identifier: Apache-2.0
// The table of the types that Fathom reads, and of the other ids so that errors can name them.
#include "tensor/dtype.hpp"

#include <strings.h>

#include <array>
#include <string>

#include "base/error.hpp"

namespace fathom {
namespace {

constexpr std::array kTypes = {
    DTypeInfo{DType::f32, "F32", 1, 4},           DTypeInfo{DType::f16, "F16", 1, 2},
    DTypeInfo{DType::bf16, "BF16", 1, 2},         DTypeInfo{DType::q4_0, "Q4_0", 32, 18},
    DTypeInfo{DType::q4_1, "Q4_1", 32, 20},       DTypeInfo{DType::q5_0, "Q5_0", 32, 22},
    DTypeInfo{DType::q5_1, "Q5_1", 32, 24},       DTypeInfo{DType::q8_0, "Q8_0", 32, 34},
    DTypeInfo{DType::q2_k, "Q2_K", 256, 84},      DTypeInfo{DType::q3_k, "Q3_K", 256, 110},
    DTypeInfo{DType::q4_k, "Q4_K", 256, 144},     DTypeInfo{DType::q5_k, "Q5_K", 256, 176},
    DTypeInfo{DType::q6_k, "Q6_K", 256, 210},     DTypeInfo{DType::iq4_nl, "IQ4_NL", 32, 18},
    DTypeInfo{DType::iq4_xs, "IQ4_XS", 256, 136}, DTypeInfo{DType::mxfp4, "MXFP4", 32, 17},
};

struct OtherType {
  uint32_t id;
  const char* name;
  DTypeStatus status;
  int block_elems = 0;
  int block_bytes = 0;
};
constexpr auto kKnown = DTypeStatus::known_unsupported;
constexpr auto kRemoved = DTypeStatus::removed;
constexpr std::array kOthers = {
    OtherType{4, "Q4_2 (removed)", kRemoved, 0, 0},
    OtherType{5, "Q4_3 (removed)", kRemoved, 0, 0},
    OtherType{9, "Q8_1", kKnown, 32, 36},
    OtherType{15, "Q8_K", kKnown, 256, 292},
    OtherType{16, "IQ2_XXS", kKnown, 256, 66},
    OtherType{17, "IQ2_XS", kKnown, 256, 74},
    OtherType{18, "IQ3_XXS", kKnown, 256, 98},
    OtherType{19, "IQ1_S", kKnown, 256, 50},
    OtherType{21, "IQ3_S", kKnown, 256, 110},
    OtherType{22, "IQ2_S", kKnown, 256, 82},
    OtherType{24, "I8", kKnown, 1, 1},
    OtherType{25, "I16", kKnown, 1, 2},
    OtherType{26, "I32", kKnown, 1, 4},
    OtherType{27, "I64", kKnown, 1, 8},
    OtherType{28, "F64", kKnown, 1, 8},
    OtherType{29, "IQ1_M", kKnown, 256, 56},
    OtherType{31, "Q4_0_4_4 (removed)", kRemoved, 0, 0},
    OtherType{32, "Q4_0_4_8 (removed)", kRemoved, 0, 0},
    OtherType{33, "Q4_0_8_8 (removed)", kRemoved, 0, 0},
    OtherType{34, "TQ1_0", kKnown, 256, 54},
    OtherType{35, "TQ2_0", kKnown, 256, 66},
    OtherType{36, "IQ4_NL_4_4 (removed)", kRemoved, 0, 0},
    OtherType{37, "IQ4_NL_4_8 (removed)", kRemoved, 0, 0},
    OtherType{38, "IQ4_NL_8_8 (removed)", kRemoved, 0, 0},
    OtherType{40, "NVFP4", kKnown, 64, 36},
    OtherType{41, "Q1_0", kKnown, 128, 18},
    OtherType{42, "Q2_0", kKnown, 64, 18},
};

}  // namespace

std::span<const DTypeInfo> all_dtypes() { return kTypes; }

const DTypeInfo& dtype_info(DType type) {
  for (const DTypeInfo& info : kTypes) {
    if (info.type == type) return info;
  }
  fail(ErrorCode::internal, "no type table row for type id {}", static_cast<uint32_t>(type));
}

DTypeLookup lookup_dtype(uint32_t id) {
  for (const DTypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == id) {
      return {DTypeStatus::supported, info.name, info.block_elems, info.block_bytes};
    }
  }
  for (const OtherType& other : kOthers) {
    if (other.id == id) {
      return {other.status, other.name, other.block_elems, other.block_bytes};
    }
  }
  return {DTypeStatus::unknown, "unknown", 0, 0};
}

std::optional<DType> dtype_from_name(std::string_view name) {
  const std::string copy(name);
  for (const DTypeInfo& info : kTypes) {
    if (strcasecmp(info.name, copy.c_str()) == 0) return info.type;
  }
  return std::nullopt;
}

}  // namespace fathom
