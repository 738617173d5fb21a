// SPDX-License-Identifier: Apache-2.0
// One token's key or value of one KV head, written to and read from the cache by the formula of
// tensor/kv_view.hpp. q8_0: blocks of 32 dims, scale = max|x| / 127 rounded to f16; fp8_e4m3: the
// whole head, scale = max|x| / 448.
#pragma once

#include "tensor/kv_view.hpp"

namespace fathom {

enum class KvPart { key, value };

void kv_store_ref(const KvLayerView& kv, KvPart part, const int32_t* pages, int kv_head,
                  int64_t token, const double* values);
void kv_load_ref(const KvLayerView& kv, KvPart part, const int32_t* pages, int kv_head,
                 int64_t token, double* values);

}  // namespace fathom
