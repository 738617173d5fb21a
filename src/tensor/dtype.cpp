// SPDX-License-Identifier: Apache-2.0
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
};
constexpr auto kKnown = DTypeStatus::known_unsupported;
constexpr auto kRemoved = DTypeStatus::removed;
constexpr std::array kOthers = {
    OtherType{4, "Q4_2 (removed)", kRemoved},
    OtherType{5, "Q4_3 (removed)", kRemoved},
    OtherType{9, "Q8_1", kKnown},
    OtherType{15, "Q8_K", kKnown},
    OtherType{16, "IQ2_XXS", kKnown},
    OtherType{17, "IQ2_XS", kKnown},
    OtherType{18, "IQ3_XXS", kKnown},
    OtherType{19, "IQ1_S", kKnown},
    OtherType{21, "IQ3_S", kKnown},
    OtherType{22, "IQ2_S", kKnown},
    OtherType{24, "I8", kKnown},
    OtherType{25, "I16", kKnown},
    OtherType{26, "I32", kKnown},
    OtherType{27, "I64", kKnown},
    OtherType{28, "F64", kKnown},
    OtherType{29, "IQ1_M", kKnown},
    OtherType{31, "Q4_0_4_4 (removed)", kRemoved},
    OtherType{32, "Q4_0_4_8 (removed)", kRemoved},
    OtherType{33, "Q4_0_8_8 (removed)", kRemoved},
    OtherType{34, "TQ1_0", kKnown},
    OtherType{35, "TQ2_0", kKnown},
    OtherType{36, "IQ4_NL_4_4 (removed)", kRemoved},
    OtherType{37, "IQ4_NL_4_8 (removed)", kRemoved},
    OtherType{38, "IQ4_NL_8_8 (removed)", kRemoved},
    OtherType{40, "NVFP4", kKnown},
    OtherType{41, "Q1_0", kKnown},
    OtherType{42, "Q2_0", kKnown},
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
    if (static_cast<uint32_t>(info.type) == id) return {DTypeStatus::supported, info.name};
  }
  for (const OtherType& other : kOthers) {
    if (other.id == id) return {other.status, other.name};
  }
  return {DTypeStatus::unknown, "unknown"};
}

std::optional<DType> dtype_from_name(std::string_view name) {
  const std::string copy(name);
  for (const DTypeInfo& info : kTypes) {
    if (strcasecmp(info.name, copy.c_str()) == 0) return info.type;
  }
  return std::nullopt;
}

}  // namespace fathom
