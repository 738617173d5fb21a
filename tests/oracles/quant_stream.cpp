// SPDX-License-Identifier: Apache-2.0
// quant_stream dequantize|quantize TYPE: blocks to f32 or f32 to blocks, stdin to stdout. The
// Python oracle drives it (tools/oracles/quant_oracle.py).
#include <cstddef>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "kernels/quant/dequant_ref.hpp"
#include "kernels/quant/quantize_ref.hpp"

namespace fathom {
namespace {

void stream(const std::string& direction, DType type) {
  const std::vector<char> in{std::istreambuf_iterator<char>(std::cin), {}};
  const DTypeInfo& info = dtype_info(type);
  std::vector<char> out;
  if (direction == "dequantize") {
    const int64_t n_elems = static_cast<int64_t>(in.size()) / info.block_bytes * info.block_elems;
    out.resize(static_cast<size_t>(n_elems) * sizeof(float));
    quant::dequantize_row(type, reinterpret_cast<const std::byte*>(in.data()),
                          reinterpret_cast<float*>(out.data()), n_elems);
  } else {
    const int64_t n_elems = static_cast<int64_t>(in.size() / sizeof(float));
    out.resize(static_cast<size_t>(row_bytes(type, n_elems)));
    quant::quantize_row(type, reinterpret_cast<const float*>(in.data()),
                        reinterpret_cast<std::byte*>(out.data()), n_elems);
  }
  std::cout.write(out.data(), static_cast<std::streamsize>(out.size()));
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
  using namespace fathom;
  const std::string direction = argc == 3 ? argv[1] : "";
  const auto type = dtype_from_name(argc == 3 ? argv[2] : "");
  if ((direction != "dequantize" && direction != "quantize") || !type) {
    std::cerr << "usage: quant_stream dequantize|quantize TYPE\n";
    return 2;
  }
  try {
    stream(direction, *type);
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
