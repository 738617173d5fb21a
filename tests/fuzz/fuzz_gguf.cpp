// SPDX-License-Identifier: Apache-2.0
// The GGUF reader on any bytes: opens them in both modes and touches all that it then offers.
#include <span>
#include <stdexcept>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "fuzz_target.hpp"
#include "gguf/gguf_file.hpp"
#include "tests/support/gguf_corpus.hpp"

namespace {

using fathom::Error;
using fathom::ErrorCode;
using namespace fathom::gguf;

// Sums are returned through a volatile, so that no read is optimised away.
volatile uint64_t sink;

void expect(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

void expect_clean(const Error& error) {
  expect(error.code() == ErrorCode::bad_file || error.code() == ErrorCode::unsupported,
         "a file was refused with another code than bad_file or unsupported");
  expect(std::string_view(error.what()).find('\n') == std::string_view::npos,
         "a message has several lines");
}

void touch_value(const File& file, const Entry& entry) {
  const Value& value = entry.value;
  expect(file.find(entry.key) == &value, "a key is not found");
  expect(fathom::is_valid_utf8(entry.key), "a key is not UTF-8");
  uint64_t sum = value.describe().size();
  if (const auto strings = value.strings()) {
    expect(strings->size() == value.count, "strings are missing");
    for (const std::string_view text : *strings) {
      for (const char c : text) sum += static_cast<uint8_t>(c);
    }
  } else if (value.is_array()) {
    for (uint64_t i = 0; i < value.count; ++i) sum += value.at(i).as_u64().value_or(1);
  } else if (const auto text = value.as_string()) {
    for (const char c : *text) sum += static_cast<uint8_t>(c);
  }
  sink = sum;
}

// Each typed getter gives a value or an error, for every type that may be there.
void try_getters(const File& file, std::string_view key) {
  const auto attempt = [&](auto get) {
    try {
      get();
    } catch (const Error& error) {
      expect_clean(error);
    }
  };
  attempt([&] { sink = file.get_u32(key); });
  attempt([&] { sink = file.get_u64(key); });
  attempt([&] { sink = static_cast<uint64_t>(file.get_i32(key)); });
  attempt([&] { sink = file.get_f32(key) > 0; });
  attempt([&] { sink = file.get_bool(key); });
  attempt([&] { sink = file.get_string(key).size(); });
  attempt([&] { sink = file.array_strings(key).size(); });
  attempt([&] { sink = file.array_i32(key).size(); });
  attempt([&] { sink = file.array_u32(key).size(); });
  attempt([&] { sink = file.array_f32(key).size(); });
}

void touch_tensor(const File& file, const TensorInfo& tensor, OpenMode mode) {
  expect(file.find_tensor(tensor.name) == &tensor, "a tensor is not found");
  const auto data = file.data(tensor);
  expect(data.size() == tensor.bytes, "a tensor's data has another size");
  if (!data.empty()) {
    sink = std::to_integer<uint64_t>(data.front()) + std::to_integer<uint64_t>(data.back());
  }
  if (mode != OpenMode::load) return;
  const fathom::DTypeInfo& type = fathom::dtype_info(tensor.dtype());
  uint64_t n_elems = 1;
  for (const uint64_t dim : tensor.dims) n_elems *= dim;
  expect(n_elems == tensor.n_elems && n_elems > 0, "the element count is not the product");
  expect(
      n_elems / static_cast<uint64_t>(type.block_elems) * static_cast<uint64_t>(type.block_bytes) ==
          tensor.bytes,
      "the bytes are not those of the elements");
  file.drop(tensor);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const OpenMode mode : {OpenMode::load, OpenMode::inspect}) {
    try {
      const File file = File::parse(bytes, mode);
      // Errors are slow under a sanitizer: the getters are tried on the first keys only.
      for (size_t i = 0; i < file.metadata().size(); ++i) {
        touch_value(file, file.metadata()[i]);
        if (i < 4) try_getters(file, file.metadata()[i].key);
      }
      for (const TensorInfo& tensor : file.tensors()) touch_tensor(file, tensor, mode);
    } catch (const Error& error) {
      expect_clean(error);
    }
  }
  return 0;
}

std::vector<std::string> fathom::fuzz::seeds() {
  std::vector<std::string> out;
  for (auto& c : fathom::test::gguf_corpus()) {
    // The long ones test memory, not the parser's paths.
    if (c.image.size() <= 4096) out.push_back(std::move(c.image));
  }
  return out;
}
