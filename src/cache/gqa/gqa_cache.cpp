// SPDX-License-Identifier: Apache-2.0
// Checks of the geometry, the bytes it needs, and the dealing of pages to slots.
#include "cache/gqa/gqa_cache.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/error.hpp"

namespace fathom {
namespace {

constexpr int64_t kClosed = -1;

int64_t pages_per_slot(const GqaCacheConfig& config) {
  return ceil_div(config.n_ctx, GqaCache::geometry(config).page_tokens);
}
int64_t n_pages(const GqaCacheConfig& config) {
  return pages_per_slot(config) * config.max_sequences;
}
int64_t part_bytes(const GqaCacheConfig& config) {  // all pages of K, or of V, of one layer
  return static_cast<int64_t>(round_up(
      static_cast<uint64_t>(n_pages(config) * GqaCache::geometry(config).page_bytes()), 64));
}
int64_t table_bytes(const GqaCacheConfig& config) {
  return n_pages(config) * static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace

KvGeometry GqaCache::geometry(const GqaCacheConfig& config) {
  const int64_t page_tokens = config.page_tokens
                                  ? config.page_tokens
                                  : ceil_div(config.n_ctx, kKvTileTokens) * kKvTileTokens;
  return {config.format, config.n_kv_heads, config.head_dim, static_cast<int>(page_tokens)};
}

void GqaCache::validate(const GqaCacheConfig& config) {
  if (config.n_ctx < 1 || config.n_ctx > 1 << 24) {
    fail(ErrorCode::usage, "context: found {} tokens, expected 1 to {}", config.n_ctx, 1 << 24);
  }
  if (config.max_sequences < 1 || config.max_sequences > 4096) {
    fail(ErrorCode::usage, "sequences: found {}, expected 1 to 4096", config.max_sequences);
  }
  if (config.page_tokens < 0 || config.page_tokens % kKvTileTokens != 0) {
    fail(ErrorCode::usage,
         "cache page: found {} tokens, expected a multiple of {}, or 0 for one page per sequence",
         config.page_tokens, kKvTileTokens);
  }
  if (config.format == KvFormat::q8_0 && config.head_dim % 32 != 0) {
    fail(ErrorCode::unsupported,
         "KV type q8_0 needs a head dimension that is a multiple of 32; this model's is {}: use "
         "f16, bf16 or f32",
         config.head_dim);
  }
}

int64_t GqaCache::planned_bytes(const GqaCacheConfig& config) {
  validate(config);
  return 2 * config.n_layers * part_bytes(config) + table_bytes(config);
}

GqaCache::GqaCache(const DeviceApi& device, const GqaCacheConfig& config, void* stream)
    : device_(device), stream_(stream), config_(config) {
  validate(config);
  geometry_ = geometry(config);
  max_pages_ = static_cast<int32_t>(pages_per_slot(config));
  memory_ = make_buffer(device, 2 * config.n_layers * part_bytes(config));
  table_memory_ = make_buffer(device, table_bytes(config));
  table_.assign(n_pages(config), 0);
  lengths_.assign(config.max_sequences, kClosed);
  n_pages_.assign(config.max_sequences, 0);
  free_.resize(n_pages(config));
  for (size_t i = 0; i < free_.size(); ++i) {
    free_[i] = static_cast<int32_t>(free_.size() - 1 - i);
  }
  device_.copy_to_device(table_memory_.get().data, table_.data(), table_bytes(config), stream_);
}

int GqaCache::open_slot() {
  const auto closed = std::find(lengths_.begin(), lengths_.end(), kClosed);
  if (closed == lengths_.end()) {
    fail(ErrorCode::usage,
         "all {} sequence slots are in use: end a sequence or open the model with more",
         config_.max_sequences);
  }
  *closed = 0;
  return static_cast<int>(closed - lengths_.begin());
}

void GqaCache::close_slot(int slot) {
  truncate(slot, 0);
  lengths_[slot] = kClosed;
}

void GqaCache::append(int slot, int64_t n_tokens) {
  FATHOM_CHECK(lengths_.at(slot) != kClosed && n_tokens >= 0, "append needs an open slot");
  const int64_t length = lengths_[slot] + n_tokens;
  if (length > config_.n_ctx) {
    fail(ErrorCode::usage,
         "{} tokens do not fit: the context holds {}, of which {} are used; shorten the prompt or "
         "raise the context (-c)",
         n_tokens, config_.n_ctx, lengths_[slot]);
  }
  const int64_t wanted = ceil_div(length, geometry_.page_tokens);
  const bool more = wanted > n_pages_[slot];
  while (n_pages_[slot] < wanted) {
    table_[int64_t{slot} * max_pages_ + n_pages_[slot]++] = free_.back();
    free_.pop_back();
  }
  lengths_[slot] = length;
  if (more) publish(slot);
}

void GqaCache::truncate(int slot, int64_t n_tokens) {
  FATHOM_CHECK(lengths_.at(slot) != kClosed, "truncate needs an open slot");
  if (n_tokens < 0 || n_tokens > lengths_[slot]) {
    fail(ErrorCode::usage, "cannot keep {} tokens of a sequence of {}", n_tokens, lengths_[slot]);
  }
  const int64_t wanted = ceil_div(n_tokens, geometry_.page_tokens);
  while (n_pages_[slot] > wanted) {
    free_.push_back(table_[int64_t{slot} * max_pages_ + --n_pages_[slot]]);
  }
  lengths_[slot] = n_tokens;
}

void GqaCache::publish(int slot) {
  const int64_t first = int64_t{slot} * max_pages_;
  const int64_t entry = sizeof(int32_t);
  device_.copy_to_device(table_memory_.get().data + first * entry, table_.data() + first,
                         n_pages_[slot] * entry, stream_);
}

KvLayerView GqaCache::layer(int layer) const {
  FATHOM_CHECK(layer >= 0 && layer < config_.n_layers, "layer is outside the cache");
  std::byte* k = memory_.get().data + 2 * layer * part_bytes(config_);
  return {geometry_, k, k + part_bytes(config_)};
}

const int32_t* GqaCache::page_table() const {
  return reinterpret_cast<const int32_t*>(table_memory_.get().data);
}

int64_t GqaCache::used_pages() const {
  return static_cast<int64_t>(table_.size()) - static_cast<int64_t>(free_.size());
}

}  // namespace fathom
