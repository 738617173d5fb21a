// SPDX-License-Identifier: Apache-2.0
// An op of the OpTable alone, with operands that a decode step of a model of some shape would give
// it: seeded, with valid scales, as many disjoint sets of them as a rotation needs. Every call goes
// through the table's entry, the launcher of production.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/backend.hpp"
#include "device/owned.hpp"
#include "kernels/op_table.hpp"
#include "tensor/dtype.hpp"

namespace fathom::measure {

struct ProbeShape {
  std::string name;
  int64_t d_model, d_ff, vocab_size;
  int n_heads, n_kv_heads, head_dim;
  int64_t q_dim() const { return int64_t{n_heads} * head_dim; }
  int64_t kv_dim() const { return int64_t{n_kv_heads} * head_dim; }
};

// One decode step's operands: `batch` sequences with `depth` tokens in the cache, those of this
// step included.
struct ProbeSize {
  int batch = 1;
  int64_t depth = 1;
};

struct ProbeInput {
  ProbeShape shape;
  DType type = DType::q4_k;  // of weights
  KvFormat cache = KvFormat::f16;
  int page_tokens = 64;
  // What an engine was opened with whose launch is to be repeated; 0 = room for 4,096 tokens at
  // least, and for the batch.
  int64_t n_ctx = 0, max_rows = 0;
  ProbeSize size;
  int draw = 0;  // of kProbeDraws: other values, another magnitude
};
inline constexpr int kProbeDraws = 3;

// The device on which an op is probed.
struct ProbeDevice {
  const Backend& backend;
  ThreadPool& pool;
  void* stream;
  const DeviceApi& api() const { return *backend.device; }
};

// Rows of the step that a call takes.
struct ProbeRows {
  int first = 0, n = 0;
};

struct ProbeOutput {
  std::vector<float> values;  // [rows, width]
  std::string problem;        // empty, or what was not written or written beside it
};

class ProbeOp {
 public:
  virtual ~ProbeOp() = default;
  // Of a call of all rows.
  virtual Cost cost() const = 0;
  virtual int64_t workspace_bytes(const OpTable& ops) const = 0;
  virtual int64_t width() const = 0;  // of a row of output
  // Distinct bytes that a call of all rows touches: of weights, cache and activations.
  int64_t set_bytes() const;
  // Makes n sets with operands at addresses of their own; there is one at first.
  virtual void make_sets(int n) = 0;
  virtual void run(ExecContext& ctx, const OpTable& ops, int set, ProbeRows rows) = 0;
  // The output is poison again, or what it was before where the op also reads it.
  virtual void reset() = 0;
  virtual ProbeOutput output(ProbeRows rows) = 0;
  // Of the output of all rows against the reference in double: empty, or what is wrong.
  virtual std::string tolerance_problem(std::span<const float> output) = 0;
};

// Names of the ops, as in the OpTable, that can be probed.
std::span<const char* const> probe_op_names();
// Throws Error{usage} for a name that is not among them, Error{unsupported} for what the backend
// has no kernel for.
std::unique_ptr<ProbeOp> make_probe_op(const std::string& name, const ProbeInput& input,
                                       const ProbeDevice& device);

}  // namespace fathom::measure
