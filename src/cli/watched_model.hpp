// SPDX-License-Identifier: Apache-2.0
// A sink for a scope, so that no exception leaves a dead one behind.
#pragma once

#include "fathom/fathom.hpp"

namespace fathom::cli {

class Watched {
 public:
  Watched(Model& model, OpScopeSink* sink) : model_(model) { model_.set_op_scope_sink(sink); }
  ~Watched() { model_.set_op_scope_sink(nullptr); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  Model& model_;
};

}  // namespace fathom::cli
