// SPDX-License-Identifier: Apache-2.0
// The records of begin and end, the ledger made from them, and what an empty scope costs.
#include "measure/op_timer.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "measure/clock.hpp"

namespace fathom::measure {

int64_t Ledger::scoped_ns() const {
  int64_t sum = 0;
  for (const LedgerRow& row : rows) sum += row.ns;
  return sum;
}

OpTimer::OpTimer(int n_layers)
    : n_slots_(static_cast<size_t>(std::max(0, n_layers)) + 1), records_(kMaxOps * n_slots_) {}

size_t OpTimer::op_index(const char* op) {
  for (size_t i = 0; i < n_ops_; ++i) {
    if (names_[i] == op) return i;
  }
  // Another library may hold the same name at another address.
  for (size_t i = 0; i < n_ops_; ++i) {
    if (std::strcmp(names_[i], op) == 0) return i;
  }
  FATHOM_CHECK(n_ops_ < kMaxOps, "more kinds of ops than the timer has room for");
  names_[n_ops_] = op;
  return n_ops_++;
}

void OpTimer::begin(const OpTag& tag, const Cost& cost) {
  FATHOM_CHECK(open_ == nullptr, "an op began inside another one");
  const size_t slot = std::min(static_cast<size_t>(std::max(-1, tag.layer) + 1), n_slots_ - 1);
  Record& record = records_[op_index(tag.op) * n_slots_ + slot];
  record.cost += cost;
  open_ = &record;
  started_ns_ = now_ns();
}

void OpTimer::end() {
  const int64_t now = now_ns();
  FATHOM_CHECK(open_ != nullptr, "an op ended that never began");
  open_->ns += now - started_ns_;
  ++open_->calls;
  open_ = nullptr;
}

void OpTimer::reset() {
  std::fill_n(records_.begin(), n_ops_ * n_slots_, Record{});
  open_ = nullptr;
}

Ledger OpTimer::ledger(int64_t wall_ns) const {
  Ledger ledger;
  ledger.wall_ns = wall_ns;
  for (size_t op = 0; op < n_ops_; ++op) {
    LedgerRow row;
    row.op = names_[op];
    for (size_t slot = 0; slot < n_slots_; ++slot) {
      const Record& record = records_[op * n_slots_ + slot];
      row.calls += record.calls;
      row.ns += record.ns;
      row.cost += record.cost;
    }
    if (row.calls > 0) ledger.rows.push_back(std::move(row));
  }
  return ledger;
}

std::vector<int64_t> OpTimer::layer_ns(const std::string& op) const {
  for (size_t i = 0; i < n_ops_; ++i) {
    if (op != names_[i]) continue;
    std::vector<int64_t> ns;
    for (size_t slot = 0; slot < n_slots_; ++slot) ns.push_back(records_[i * n_slots_ + slot].ns);
    return ns;
  }
  return {};
}

double OpTimer::overhead_ns() {
  constexpr int kScopes = 100'000;
  OpTimer timer(1);
  OpScopeSink* sink = &timer;
  const int64_t start = now_ns();
  for (int i = 0; i < kScopes; ++i) {
    sink->begin({"empty", 0}, Cost{});
    sink->end();
  }
  return static_cast<double>(now_ns() - start) / kScopes;
}

}  // namespace fathom::measure
