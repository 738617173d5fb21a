// SPDX-License-Identifier: Apache-2.0
// Peak memory of a process that opens a model and runs it stays within
// 1.1 x (weights + cache) + 32 MB: the mapped originals are given back while they are packed. A
// program of its own, as the peak is the process's.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "convert/synth.hpp"
#include "tests/support/engines.hpp"
#include "tests/support/sanitizer.hpp"

namespace fathom::test {
namespace {

int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream fields(line);
    std::string key;
    int64_t kilobytes;
    if (fields >> key >> kilobytes && key == "VmHWM:") return kilobytes * 1024;
  }
  return 0;
}

TEST(Memory, PeakStaysNearWeightsAndCache) {
  FATHOM_SKIP_UNDER_SANITIZERS();
  convert::SynthOptions synth;
  synth.shape = "smollm2-135m";
  synth.type = "q8_0";
  synth.n_threads = 1;
  // Written by a child, whose memory is not counted.
  const std::string path = testing::TempDir() + "fathom_memory_test.gguf";
  const pid_t child = fork();
  if (child == 0) {
    convert::synth(synth, path);
    _exit(0);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  OpenOptions options = options_for(cpu_targets().front());
  options.n_ctx = 256;
  options.n_ubatch = 64;
  const auto engine = engine::Engine::open(path, options);
  engine::Sequence sequence(engine);
  sequence.prefill(teacher_tokens(200, engine->info().vocab_size), LogitsMode::last);
  for (int i = 0; i < 10; ++i) sequence.step(i);

  const MemoryPlan& plan = engine->memory();
  const int64_t needed = plan.weights_bytes + plan.cache_bytes;
  const int64_t limit = needed + needed / 10 + (32 << 20);
  // A copy of the file beside the weights would break the limit, so the test can fail.
  ASSERT_GT(plan.file_bytes, needed / 10 + (32 << 20));
  ASSERT_GT(peak_bytes(), 0);
  std::remove(path.c_str());
  EXPECT_LE(peak_bytes(), limit) << "weights " << plan.weights_bytes << ", cache "
                                 << plan.cache_bytes;
}

}  // namespace
}  // namespace fathom::test
