// SPDX-License-Identifier: Apache-2.0
// What the backends share: the cost, and the spread of the tokens that the noise is made after.
#include "kernels/kv_fill/kv_fill.hpp"

#include <algorithm>
#include <cmath>

namespace fathom {

Cost cost(const KvFillArgs& args) {
  const KvGeometry& geometry = args.s.kv.geometry;
  Cost c;
  c.act_written_bytes =
      2 * (args.end - args.begin) * (geometry.page_bytes() / geometry.page_tokens);
  return c;
}

KvSpread kv_spread(const KvFillArgs& args, KvPart part, int kv_head) {
  FATHOM_CHECK(args.begin >= 1, "kv_fill needs cached tokens to take the spread from");
  const int64_t n = std::min(args.begin, kKvFillSource);
  const size_t head_dim = static_cast<size_t>(args.s.kv.geometry.head_dim);
  std::vector<double> x(head_dim);
  KvSpread out{std::vector<double>(head_dim), std::vector<double>(head_dim)};
  auto each_token = [&](auto fn) {
    for (int64_t token = 0; token < n; ++token) {
      kv_load_ref(args.s.kv, part, args.pages, kv_head, token, x.data());
      for (size_t dim = 0; dim < head_dim; ++dim) fn(dim);
    }
  };
  each_token([&](size_t dim) { out.mean[dim] += x[dim] / static_cast<double>(n); });
  each_token([&](size_t dim) {
    const double off = x[dim] - out.mean[dim];
    out.sigma[dim] += off * off / static_cast<double>(n);
  });
  bool zero = true;
  for (size_t dim = 0; dim < head_dim; ++dim) {
    out.sigma[dim] = std::sqrt(out.sigma[dim]);
    zero &= out.sigma[dim] == 0.0 && out.mean[dim] == 0.0;
  }
  if (zero) std::fill(out.sigma.begin(), out.sigma.end(), 1.0);
  return out;
}

}  // namespace fathom
