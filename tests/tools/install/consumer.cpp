// SPDX-License-Identifier: Apache-2.0
// Opens the model that it is given; one that is not there must arrive as the library's exception.
#include <fathom/fathom.hpp>
#include <iostream>

int main(int argc, char** argv) try {
  const fathom::Model model = fathom::Model::open(argc > 1 ? argv[1] : "absent.gguf");
  std::cout << model.info().name << '\n';
} catch (const fathom::Error& error) {
  std::cout << "refused: " << error.what() << '\n';
  return fathom::exit_status(error.code());
}
