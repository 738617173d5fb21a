// SPDX-License-Identifier: Apache-2.0
// token_ids FILE: for each text on stdin (its length as a little-endian u32, then its bytes) one
// line with its token ids, without BOS and EOS, by the vocabulary of the GGUF file.
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "gguf/gguf_file.hpp"
#include "model/vocab.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: token_ids FILE\n", stderr);
    return 2;
  }
  try {
    const auto file = fathom::gguf::File::open(argv[1]);
    const auto tokenizer = fathom::tokenizer_from_gguf(file);
    uint32_t length = 0;
    while (std::fread(&length, sizeof length, 1, stdin) == 1) {
      std::string text(length, '\0');
      if (std::fread(text.data(), 1, length, stdin) != length) return 2;
      for (const int32_t id : tokenizer.encode(text, {.add_special = false})) {
        std::printf("%d ", id);
      }
      std::putchar('\n');
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "token_ids: %s\n", error.what());
    return 1;
  }
  return 0;
}
