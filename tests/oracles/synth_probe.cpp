// SPDX-License-Identifier: Apache-2.0
// synth_probe FILE SHAPE TYPE mix|pure: writes a synthetic model for tools/oracles/synth_oracle.py.
#include <iostream>
#include <string>

#include "base/error.hpp"
#include "convert/synth.hpp"

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: synth_probe FILE SHAPE TYPE mix|pure\n";
    return 2;
  }
  try {
    fathom::convert::SynthOptions options;
    options.shape = argv[2];
    options.type = argv[3];
    options.pure = std::string(argv[4]) == "pure";
    fathom::convert::synth(options, argv[1]);
  } catch (const fathom::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
