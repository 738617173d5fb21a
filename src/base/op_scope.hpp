// SPDX-License-Identifier: Apache-2.0
// The interface through which a step tells who watches it (timers, attribution) which op runs.
#pragma once

#include "base/cost.hpp"

namespace fathom {

struct OpTag {
  const char* op;  // an OpTable name, static storage
  int layer;       // -1 outside the layers
};

class OpScopeSink {
 public:
  virtual ~OpScopeSink() = default;
  virtual void begin(const OpTag& tag, const Cost& cost) = 0;
  virtual void end() = 0;
};

// Opens a scope on a sink that may be null.
class OpScope {
 public:
  OpScope(OpScopeSink* sink, OpTag tag, const Cost& cost) : sink_(sink) {
    if (sink_) sink_->begin(tag, cost);
  }
  ~OpScope() {
    if (sink_) sink_->end();
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  OpScopeSink* sink_;
};

}  // namespace fathom
