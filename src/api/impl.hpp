// SPDX-License-Identifier: Apache-2.0
// What stands behind the public classes.
#pragma once

#include <memory>
#include <vector>

#include "base/log.hpp"
#include "engine/engine.hpp"
#include "engine/sequence.hpp"
#include "fathom/fathom.hpp"

namespace fathom {

struct Model::Impl {
  std::shared_ptr<engine::Engine> engine;
  Log log;
  std::vector<engine::DecodeBatch::Entry> batch;

  void step(std::span<const BatchEntry> of, LogitsMode logits,
            engine::DecodeBatch::Returns returns);
};

struct Sequence::Impl {
  explicit Impl(std::shared_ptr<engine::Engine> engine) : sequence(std::move(engine)) {}
  engine::Sequence sequence;
};

}  // namespace fathom
