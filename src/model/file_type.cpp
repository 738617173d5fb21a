// SPDX-License-Identifier: Apache-2.0
// llama.cpp's numbers of the mixes, and the type with the most bytes for a file without one.
#include "model/file_type.hpp"

#include <map>

namespace fathom {
namespace {

struct FileTypeRow {
  uint32_t id;
  const char* name;
};
constexpr FileTypeRow kFileTypes[] = {
    {0, "F32"},     {1, "F16"},     {2, "Q4_0"},    {3, "Q4_1"},    {7, "Q8_0"},
    {8, "Q5_0"},    {9, "Q5_1"},    {10, "Q2_K"},   {11, "Q3_K_S"}, {12, "Q3_K_M"},
    {13, "Q3_K_L"}, {14, "Q4_K_S"}, {15, "Q4_K_M"}, {16, "Q5_K_S"}, {17, "Q5_K_M"},
    {18, "Q6_K"},   {25, "IQ4_NL"}, {30, "IQ4_XS"}, {32, "BF16"},   {38, "MXFP4"},
};

}  // namespace

std::string file_type_name(const gguf::File& file) {
  const auto id = file.try_u32("general.file_type");
  for (const FileTypeRow& row : kFileTypes) {
    if (id == row.id) return row.name;
  }
  std::map<uint32_t, uint64_t> bytes;
  for (const gguf::TensorInfo& tensor : file.tensors()) bytes[tensor.type_id] += tensor.bytes;
  uint32_t largest = 0;
  for (const auto& [type, sum] : bytes) {
    if (sum > bytes[largest]) largest = type;
  }
  return lookup_dtype(largest).name;
}

}  // namespace fathom
