// SPDX-License-Identifier: Apache-2.0
// Runs of tokens of a head are dealt to threads; the bits equal the reference's.
#include <algorithm>

#include "base/checked.hpp"
#include "kernels/common/cpu_kernels.hpp"
#include "kernels/common/kv_store_cpu.hpp"
#include "kernels/kv_fill/kv_fill.hpp"

namespace fathom {
namespace {

constexpr int64_t kRunTokens = 256;

void fill_run(const ExecContext& ctx, const KvFillArgs& args, KvPart part, int kv_head,
              const KvSpread& spread, int64_t begin, int64_t end) {
  const KvLayerView& kv = args.s.kv;
  const int head_dim = kv.geometry.head_dim;
  const bool is_key = part == KvPart::key;
  std::vector<float> x(static_cast<size_t>(head_dim));
  for (int64_t token = begin; token < end; ++token) {
    for (int dim = 0; dim < head_dim; dim += 4) {
      const KvNoise noise =
          kv_noise(args.seed, args.s.layer, static_cast<int>(part), kv_head, token, dim);
      for (int i = 0; i < std::min(4, head_dim - dim); ++i) {
        const size_t d = static_cast<size_t>(dim + i);
        x[d] = static_cast<float>(spread.mean[d] + spread.sigma[d] * double{noise.z[i]});
      }
    }
    std::byte* tile = (is_key ? kv.k : kv.v) + kv.tile_offset(args.pages, kv_head, token);
    store_head(*ctx.cpu, kv.geometry, x.data(), static_cast<int>(token % kKvTileTokens), is_key,
               tile);
  }
}

}  // namespace

void kv_fill_cpu(ExecContext& ctx, const KvFillArgs& args) {
  const int n_kv_heads = args.s.kv.geometry.n_kv_heads;
  std::vector<KvSpread> spreads(static_cast<size_t>(2 * n_kv_heads));
  Chunks spread_chunks(2 * n_kv_heads, 1);
  const int64_t n_runs = ceil_div(args.end - args.begin, kRunTokens);
  Chunks run_chunks(2 * n_kv_heads * n_runs, 1);
  auto part_of = [&](int64_t index) { return index < n_kv_heads ? KvPart::key : KvPart::value; };
  ctx.pool->run([&](Team& team) {
    for (int64_t index, end; spread_chunks.next(index, end);) {
      spreads[static_cast<size_t>(index)] =
          kv_spread(args, part_of(index), static_cast<int>(index % n_kv_heads));
    }
    team.barrier();
    for (int64_t unit, unit_end; run_chunks.next(unit, unit_end);) {
      const int64_t index = unit / n_runs;
      const int64_t begin = args.begin + unit % n_runs * kRunTokens;
      fill_run(ctx, args, part_of(index), static_cast<int>(index % n_kv_heads),
               spreads[static_cast<size_t>(index)], begin, std::min(begin + kRunTokens, args.end));
    }
  });
}

}  // namespace fathom
