// SPDX-License-Identifier: Apache-2.0
// gguf_probe write FILE: a file with one of everything. gguf_probe dump FILE: what the reader sees,
// a line per key and tensor, bytes as hex. tools/oracles/gguf_oracle.py compares both with PyPI
// gguf.
#include <fmt/format.h>

#include <array>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "gguf/gguf_file.hpp"
#include "gguf/gguf_writer.hpp"

namespace fathom::gguf {
namespace {

// Byte i of tensor number t is 31 t + 7 i; the oracle knows.
std::vector<std::byte> tensor_pattern(uint64_t n_bytes, uint64_t t) {
  std::vector<std::byte> out(n_bytes);
  for (uint64_t i = 0; i < n_bytes; ++i) out[i] = static_cast<std::byte>(31 * t + 7 * i);
  return out;
}

void write_sample(const std::string& path) {
  Writer writer(64);
  writer.add_string("general.architecture", "llama");
  writer.add_u8("u8", 200);
  writer.add_i8("i8", -100);
  writer.add_u16("u16", 60000);
  writer.add_i16("i16", -30000);
  writer.add_u32("u32", 4000000000u);
  writer.add_i32("i32", -2000000000);
  writer.add_u64("u64", std::numeric_limits<uint64_t>::max());
  writer.add_i64("i64", std::numeric_limits<int64_t>::min());
  writer.add_f32("f32", 0.1f);
  writer.add_f64("f64", 0.1);
  writer.add_bool("bool", true);
  writer.add_string("text", "\xe2\x82\xac and\nmore");
  writer.add_array("strings", std::vector<std::string>{"a", "", "\xc3\xbc"});
  writer.add_array("bytes", std::vector<uint8_t>{0, 128, 255});
  writer.add_array("shorts", std::vector<int16_t>{-1, 2});
  writer.add_array("ints", std::vector<int32_t>{-1, 0, 1});
  writer.add_array("longs", std::vector<uint64_t>{1, 1ull << 63});
  writer.add_array("floats", std::vector<float>{0.5f, -1e30f});
  writer.add_array("doubles", std::vector<double>{1e300});
  writer.add_array("bools", std::vector<bool>{true, false, true});
  for (const DTypeInfo& info : all_dtypes()) {
    const auto row = static_cast<uint64_t>(info.block_elems);
    writer.add_tensor(fmt::format("{}.1d", info.name), info.type, std::array{3 * row});
    writer.add_tensor(fmt::format("{}.4d", info.name), info.type, std::array{row, 3ul, 2ul, 1ul});
  }
  writer.begin(path);
  uint64_t t = 0;
  for (const DTypeInfo& info : all_dtypes()) {
    for (const uint64_t n_blocks : {3, 6}) {
      writer.write(tensor_pattern(n_blocks * static_cast<uint64_t>(info.block_bytes), t++));
    }
  }
  writer.finish();
}

std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte byte : bytes) {
    out += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  return out;
}
std::string hex(std::string_view text) { return hex(std::as_bytes(std::span(text))); }

void dump(const std::string& path) {
  const File file = File::open(path, OpenMode::inspect);
  std::cout << fmt::format("version {} alignment {}\n", file.version(), file.alignment());
  for (const auto& [key, value] : file.metadata()) {
    std::string elements;
    if (const auto strings = value.strings()) {
      for (const std::string_view text : *strings) elements += hex(text) + ",";
    } else if (value.is_array()) {
      for (uint64_t i = 0; i < value.count; ++i) elements += hex(value.at(i).payload) + ",";
    } else {
      elements = hex(value.payload) + ",";
    }
    std::cout << fmt::format("key {} {} {} {} {}\n", hex(key), static_cast<uint32_t>(value.type),
                             static_cast<uint32_t>(value.element), value.count, elements);
  }
  for (const TensorInfo& t : file.tensors()) {
    std::cout << fmt::format("tensor {} {} {} {} {} {}\n", hex(t.name), t.type_id, t.n_dims,
                             fmt::join(t.dims, ","), t.offset, t.bytes);
  }
}

}  // namespace
}  // namespace fathom::gguf

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    if (args.size() == 2 && args[0] == "write") {
      fathom::gguf::write_sample(args[1]);
    } else if (args.size() == 2 && args[0] == "dump") {
      fathom::gguf::dump(args[1]);
    } else {
      return 2;
    }
  } catch (const fathom::Error& error) {
    std::cerr << error.what() << '\n';
    return fathom::exit_status(error.code());
  }
  return 0;
}
