// SPDX-License-Identifier: Apache-2.0
// The formula, a token and head at a time, stored as the cache's own definition says.
#include "kernels/kv_fill/kv_fill.hpp"

namespace fathom {

void kv_fill_ref(ExecContext&, const KvFillArgs& args) {
  const KvGeometry& geometry = args.s.kv.geometry;
  std::vector<double> x(static_cast<size_t>(geometry.head_dim));
  for (const KvPart part : {KvPart::key, KvPart::value}) {
    for (int kv_head = 0; kv_head < geometry.n_kv_heads; ++kv_head) {
      const KvSpread spread = kv_spread(args, part, kv_head);
      for (int64_t token = args.begin; token < args.end; ++token) {
        for (int dim = 0; dim < geometry.head_dim; ++dim) {
          const KvNoise noise =
              kv_noise(args.seed, args.s.layer, static_cast<int>(part), kv_head, token, dim);
          const size_t d = static_cast<size_t>(dim);
          x[d] = static_cast<float>(spread.mean[d] + spread.sigma[d] * double{noise.z[dim % 4]});
        }
        kv_store_ref(args.s.kv, part, args.pages, kv_head, token, x.data());
      }
    }
  }
}

}  // namespace fathom
