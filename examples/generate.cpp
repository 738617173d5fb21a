// SPDX-License-Identifier: Apache-2.0
// Continues a prompt: generate MODEL.gguf "Once upon a time"
#include <fathom/fathom.hpp>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: generate MODEL.gguf PROMPT\n";
    return 2;
  }
  try {
    fathom::Model model = fathom::Model::open(argv[1]);
    fathom::Sequence sequence = model.sequence();
    fathom::GenerateOptions options;
    options.max_tokens = 64;
    options.on_text = [](std::string_view text) {
      std::cout << text << std::flush;
      return true;
    };
    sequence.generate(model.tokenize(argv[2]), options);
    const fathom::RunStats& stats = sequence.stats();
    std::cerr << "\n" << stats.decode_tokens / stats.decode_s << " tokens/s\n";
  } catch (const fathom::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return fathom::exit_status(error.code());
  }
}
