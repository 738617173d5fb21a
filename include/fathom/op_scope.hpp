// SPDX-License-Identifier: Apache-2.0
// What an operation must move and compute, and the interface through which a step tells who
// watches it (timers, attribution) which op runs. Each op declares its cost beside its contract;
// bench, profiles and attribution read that one declaration.
#pragma once

#include <cstdint>

namespace fathom {

struct Cost {
  int64_t weight_bytes = 0;       // bytes of the file's tensors that must be read
  int64_t kv_bytes = 0;           // cached keys and values read
  int64_t act_read_bytes = 0;     // activations read
  int64_t act_written_bytes = 0;  // activations and new KV rows written
  int64_t scratch_bytes = 0;      // partial results written and read again
  int64_t flops_useful = 0;       // multiply and add count as two
  int64_t flops_issued = 0;       // with padding

  // The bytes that must cross the memory bus: weights and cache.
  int64_t memory_bytes() const { return weight_bytes + kv_bytes; }

  Cost& operator+=(const Cost& other) {
    weight_bytes += other.weight_bytes;
    kv_bytes += other.kv_bytes;
    act_read_bytes += other.act_read_bytes;
    act_written_bytes += other.act_written_bytes;
    scratch_bytes += other.scratch_bytes;
    flops_useful += other.flops_useful;
    flops_issued += other.flops_issued;
    return *this;
  }
};

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

}  // namespace fathom
