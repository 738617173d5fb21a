// SPDX-License-Identifier: Apache-2.0
// Opens the scope of one op on a sink that may be null.
#pragma once

#include "fathom/op_scope.hpp"

namespace fathom {

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
