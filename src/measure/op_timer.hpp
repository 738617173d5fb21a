// SPDX-License-Identifier: Apache-2.0
// Times every op of a step and collects its declared cost. One record per (op, layer), no
// allocation per event; an event costs two clock reads. The ledger is the account of one or more
// steps: what each op took, and how far their sum is from the wall time around them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/op_scope.hpp"

namespace fathom::measure {

struct LedgerRow {
  std::string op;
  int64_t calls = 0;
  int64_t ns = 0;
  Cost cost;
};

struct Ledger {
  std::vector<LedgerRow> rows;  // in the order in which a step first met the ops
  int64_t wall_ns = 0;
  int64_t scoped_ns() const;                                       // sum of the rows
  int64_t difference_ns() const { return wall_ns - scoped_ns(); }  // outside every op
};

class OpTimer : public OpScopeSink {
 public:
  // Layers above n_layers share the last record.
  explicit OpTimer(int n_layers);

  void begin(const OpTag& tag, const Cost& cost) override;
  void end() override;

  void reset();
  // Sums over the layers; the caller measured wall_ns around the same steps.
  Ledger ledger(int64_t wall_ns) const;
  // Sums of one op per layer, index 0 = outside the layers; empty when the op never ran.
  std::vector<int64_t> layer_ns(const std::string& op) const;

  // Nanoseconds that watching one op adds, measured on an empty scope.
  static double overhead_ns();

 private:
  static constexpr size_t kMaxOps = 32;
  struct Record {
    int64_t calls = 0;
    int64_t ns = 0;
    Cost cost;
  };
  size_t op_index(const char* op);

  size_t n_slots_;  // layers + 1
  size_t n_ops_ = 0;
  std::array<const char*, kMaxOps> names_{};
  std::vector<Record> records_;  // [op][slot]
  Record* open_ = nullptr;
  int64_t started_ns_ = 0;
};

}  // namespace fathom::measure
