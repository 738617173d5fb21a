// SPDX-License-Identifier: Apache-2.0
// The run and what is checked after it, outside the time that is taken.
#include "cli/bench_arm.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "base/finite.hpp"
#include "base/fnv1a.hpp"
#include "cli/interrupt.hpp"
#include "measure/clock.hpp"
#include "measure/host_gap.hpp"
#include "measure/op_timer.hpp"
#include "tensor/step_ring.hpp"

namespace fathom::cli {
namespace {

constexpr int kGapSteps = 5;

// Of the logits of all sequences, one after the other.
uint64_t hash_of(std::span<const Sequence> sequences) {
  Fnv1a hash;
  for (const Sequence& sequence : sequences) {
    for (const float value : sequence.logits()) hash.add(std::bit_cast<uint32_t>(value));
  }
  return hash.value();
}

}  // namespace

TestArm::TestArm(Model& model, std::span<Sequence> sequences, const Test& test, int n_ubatch,
                 uint64_t seed)
    : model_(model),
      sequences_(sequences),
      test_(test),
      tokens_(random_tokens(model, test.n_prompt + test.n_gen * test.n_seqs, seed + 1)),
      batch_(sequences.size()),
      n_ubatch_(n_ubatch) {
  add_cost();
}

double TestArm::run() {
  rewind();
  const StepCounters before = model_.step_counters();
  const std::span<const int32_t> tokens(tokens_);
  const size_t n_prompt = static_cast<size_t>(test_.n_prompt);
  const int64_t start = measure::now_ns();
  if (n_prompt > 0) {
    sequences_[0].prefill(tokens.first(n_prompt), LogitsMode::last, {}, &interrupted());
  }
  for (size_t at = n_prompt; at < tokens.size(); at += sequences_.size()) {
    if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
    const std::span<const int32_t> next = tokens.subspan(at, sequences_.size());
    if (sequences_.size() == 1) {
      step(next);
    } else {
      // Ahead, as steps go whose tokens the device has drawn.
      batch_of(next);
      model_.submit(batch_);
    }
  }
  model_.wait();
  const int64_t ns = measure::now_ns() - start;
  check_run();
  if (keeps_logits_) logits_.assign(sequences_[0].logits().begin(), sequences_[0].logits().end());
  const StepCounters after = model_.step_counters();
  runs_.push_back(
      {.logits_hash = fmt::format("{:016x}", hash_of(sequences_)),
       .counters = {.graph_captures = after.graph_captures - before.graph_captures,
                    .graph_replays = after.graph_replays - before.graph_replays,
                    .kernel_launches = after.kernel_launches - before.kernel_launches}});
  return static_cast<double>(ns);
}

Json TestArm::gap_sample() {
  return model_.info().in_host_memory ? host_gap_sample() : device_gap_sample();
}

Json TestArm::device_gap_sample() {
  const std::span<const int32_t> tokens = std::span(tokens_).first(sequences_.size());
  const measure::HostGapTimes times = measure::time_host_gap({.step =
                                                                  [&] {
                                                                    rewind();
                                                                    step(tokens);
                                                                  },
                                                              .submit =
                                                                  [&] {
                                                                    rewind();
                                                                    batch_of(tokens);
                                                                    model_.submit(batch_);
                                                                  },
                                                              .wait = [&] { model_.wait(); },
                                                              .n_ahead = kStepRing});
  return {
      {"waited_ns", times.waited_ns}, {"ahead_ns", times.ahead_ns}, {"submit_ns", times.submit_ns}};
}

Json TestArm::host_gap_sample() {
  measure::OpTimer timer(model_.info().n_layers);
  const std::span<const int32_t> tokens = std::span(tokens_).first(sequences_.size());
  std::vector<int64_t> steps_ns, outside_ns;
  model_.set_op_scope_sink(&timer);
  try {
    for (int i = 0; i < kGapSteps; ++i) {
      rewind();
      timer.reset();
      const int64_t start = measure::now_ns();
      step(tokens);
      const measure::Ledger ledger = timer.ledger(measure::now_ns() - start);
      steps_ns.push_back(ledger.wall_ns);
      outside_ns.push_back(ledger.difference_ns());
    }
  } catch (...) {
    model_.set_op_scope_sink(nullptr);
    throw;
  }
  model_.set_op_scope_sink(nullptr);
  return {{"steps_ns", steps_ns}, {"outside_ns", outside_ns}};
}

// What one step of all sequences reads: the weights once, the cache of each.
int64_t TestArm::batch_bytes(int64_t n_past) const {
  return model_.step_cost(n_past, test_.n_seqs).weight_bytes +
         test_.n_seqs * model_.step_cost(n_past).kv_bytes;
}

void TestArm::add_cost() {
  const int64_t depth = test_.start.depth;
  for (int64_t done = 0; done < test_.n_prompt; done += n_ubatch_) {
    const Cost cost =
        model_.step_cost(depth + done, std::min<int64_t>(n_ubatch_, test_.n_prompt - done));
    bytes_ += cost.memory_bytes();
    flops_ += static_cast<double>(cost.flops_useful);
    if (done == 0) step_bytes_ = cost.memory_bytes();
  }
  for (int64_t i = 0; i < test_.n_gen; ++i) {
    const int64_t n_past = depth + test_.n_prompt + i;
    bytes_ += batch_bytes(n_past);
    flops_ += static_cast<double>(test_.n_seqs * model_.step_cost(n_past).flops_useful);
  }
  if (is_decode()) step_bytes_ = batch_bytes(depth);
}

void TestArm::rewind() {
  for (Sequence& sequence : sequences_) {
    sequence.truncate(test_.start.depth);
    FATHOM_CHECK(sequence.size() == test_.start.depth, "a test that does not begin at its depth");
  }
}

// Every token that the test is named for was computed, and none of it was nonsense.
void TestArm::check_run() const {
  const int64_t expected = test_.start.depth + test_.n_prompt + test_.n_gen;
  for (const Sequence& sequence : sequences_) {
    FATHOM_CHECK(sequence.size() == expected, "a test that ran another number of tokens");
    if (all_finite(sequence.logits())) continue;
    fail(ErrorCode::bad_file,
         "the logits at position {} are not finite, so nothing is measured: check the model file",
         sequence.size() - 1);
  }
}

void TestArm::step(std::span<const int32_t> tokens) {
  if (sequences_.size() == 1) {
    sequences_[0].step(tokens[0], LogitsMode::last);
    return;
  }
  batch_of(tokens);
  model_.step(batch_);
}

void TestArm::batch_of(std::span<const int32_t> tokens) {
  for (size_t i = 0; i < batch_.size(); ++i) batch_[i] = {&sequences_[i], tokens[i]};
}

}  // namespace fathom::cli
