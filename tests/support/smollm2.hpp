// SPDX-License-Identifier: Apache-2.0
// The real model of the long tests, SmolLM2-135M Q4_1, and real text for it. A test skips with the
// reason where they cannot be had.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/engines.hpp"

namespace fathom::test {

class SmolLM2Test : public testing::Test {
 protected:
  static constexpr char kText[] = "/usr/share/common-licenses/GPL-3";

  // The path of the model and the first n tokens of the text; call it in SetUp().
  void find_model_and_text(int64_t n_tokens) {
    std::string output;
    FILE* pipe = popen(FATHOM_SOURCE_DIR "/scripts/get_model.sh smollm2-135m 2>&1", "r");
    ASSERT_NE(pipe, nullptr);
    char buffer[512];
    while (fgets(buffer, sizeof buffer, pipe)) output += buffer;
    const bool ok = pclose(pipe) == 0;
    while (!output.empty() && output.back() == '\n') output.pop_back();
    if (!ok) GTEST_SKIP() << output;
    path_ = output.substr(output.find_last_of('\n') + 1);
    std::ifstream file(kText);
    if (!file) GTEST_SKIP() << kText << " is not on this machine";
    std::ostringstream text;
    text << file.rdbuf();
    const auto engine = engine::Engine::open(path_, options_for(cpu_targets().front()));
    vocab_size_ = static_cast<size_t>(engine->info().vocab_size);
    tokens_ = engine->tokenizer().encode(text.str(), {});
    ASSERT_GE(std::ssize(tokens_), n_tokens);
    tokens_.resize(static_cast<size_t>(n_tokens));
  }

  std::string path_;
  std::vector<int32_t> tokens_;
  size_t vocab_size_ = 0;
};

}  // namespace fathom::test
