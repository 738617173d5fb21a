// SPDX-License-Identifier: Apache-2.0
// The KV cache of grouped-query attention: slots for sequences, pages, bytes. One page table serves
// every form: a contiguous cache is the one whose page holds a whole sequence. Pages are dealt when
// tokens come and taken back when they go; all of them fit at once, so a sequence below n_ctx never
// lacks one. Nothing here allocates after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "device/owned.hpp"
#include "tensor/kv_view.hpp"

namespace fathom {

struct GqaCacheConfig {
  KvFormat format = KvFormat::f16;
  int n_layers = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int64_t n_ctx = 0;      // tokens a sequence can hold
  int max_sequences = 1;  // slots
  int page_tokens = 0;    // multiple of 16; 0 = contiguous
};

class GqaCache {
 public:
  // Throws Error{usage} or Error{unsupported} naming what does not fit.
  static void validate(const GqaCacheConfig& config);
  static KvGeometry geometry(const GqaCacheConfig& config);
  static int64_t planned_bytes(const GqaCacheConfig& config);  // what the constructor allocates

  // The page table is copied on `stream`, on which the kernels that read it run too.
  GqaCache(const DeviceApi& device, const GqaCacheConfig& config, void* stream = nullptr);

  int open_slot();  // Error{usage} when all are taken
  void close_slot(int slot);

  // Makes room behind the slot's tokens and counts the new ones; Error{usage} with figures when
  // they do not fit, and then nothing has changed.
  void append(int slot, int64_t n_tokens);
  // Forgets all but the first n_tokens.
  void truncate(int slot, int64_t n_tokens);
  int64_t length(int slot) const { return lengths_[slot]; }

  KvLayerView layer(int layer) const;
  const int32_t* page_table() const;  // on the device: [max_sequences, max_pages()]
  int32_t max_pages() const { return max_pages_; }
  int64_t allocated_bytes() const { return memory_.get().bytes + table_memory_.get().bytes; }
  int64_t used_pages() const;
  const GqaCacheConfig& config() const { return config_; }

 private:
  void publish(int slot);

  const DeviceApi& device_;
  void* stream_;
  GqaCacheConfig config_;
  KvGeometry geometry_;
  int32_t max_pages_;             // of one slot
  Buffer memory_;                 // [n_layers][K, V][max_sequences*max_pages pages]
  Buffer table_memory_;           // the page table on the device
  std::vector<int32_t> table_;    // its host mirror, not page-locked: a copy has read it on return
  std::vector<int32_t> free_;     // pages, next to be dealt last
  std::vector<int32_t> n_pages_;  // dealt to each slot
  std::vector<int64_t> lengths_;  // -1 = slot is closed
};

}  // namespace fathom
