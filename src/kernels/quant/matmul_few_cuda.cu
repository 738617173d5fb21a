// SPDX-License-Identifier: Apache-2.0
// The launches of products of 5 to 32 rows: a kernel for 8, 16 and 32 columns, each for all ops.
#include "kernels/quant/matmul_few_kernel.cuh"

#include "kernels/common/arriving_lanes.cuh"
#include "kernels/common/clusters.cuh"
#include "kernels/quant/matmul_launch_kernel.cuh"

namespace fathom::cuda {
namespace {

// Rings and totals within so many bytes: first two stages of tiles and the fewest of activations,
// then what makes the copies run ahead. False: they do not fit.
template <int kColumns>
bool fit_few(const quant::MatmulParams& p, quant::FewPlan& plan, int bytes) {
  const auto fits = [&] { return quant::few_shared<kColumns>(p, plan).bytes <= bytes; };
  const int of_lane = plan.n_tiles(0);
  // A lane's activations are used in one go, by a block that has no other lanes.
  const bool once = plan.n_shares > 1 && plan.slots <= quant::kFewStreams;
  plan.n_stages = 2;
  plan.n_act_stages = once ? std::min(2, of_lane) : of_lane;
  if (!fits()) return false;
  const auto more = [&](int& stages, int most) {
    while (stages < most) {
      ++stages;
      if (fits()) continue;
      --stages;
      return;
    }
  };
  more(plan.n_act_stages,
       once ? 3 : std::min(of_lane + 2, std::max(of_lane, 2 * plan.fewest_tiles)));
  more(plan.n_stages, quant::kMatmulMaxStages);
  return true;
}

// Blocks with all lanes of their chunks where each gets as many row groups as it has warps, else
// clusters; without slots where neither fits.
template <int kColumns>
quant::FewPlan plan_few(const quant::MatmulParams& p, int n_blocks, bool has_clusters, int bytes) {
  const auto in_bundles = [&](int slots) { return (slots + p.bundle - 1) / p.bundle * p.bundle; };
  const int n_groups = p.n_units * p.bundle;
  const int each = (n_groups + n_blocks - 1) / n_blocks;
  const int rounds = (each + quant::kFewMaxSlots - 1) / quant::kFewMaxSlots;
  const int fewest = in_bundles(quant::kFewStreams);
  quant::FewPlan plan{};
  plan.n_arriving = arriving_lanes;
  plan.n_shares = 1;
  plan.fewest_tiles = p.parts[0].n_tiles / p.n_lanes;
  plan.n_longer = p.parts[0].n_tiles % p.n_lanes;
  bool fits = false;
  if (!has_clusters || each >= quant::kFewStreams) {
    plan.slots = std::max(fewest, in_bundles((each + rounds - 1) / rounds));
    for (; plan.slots >= fewest; plan.slots -= p.bundle) {
      if ((fits = fit_few<kColumns>(p, plan, bytes))) break;
    }
  }
  if (!fits && has_clusters) {
    plan.n_shares = p.n_lanes;
    plan.slots = quant::kFewStreams / p.bundle * p.bundle;
    fits = fit_few<kColumns>(p, plan, bytes);
  }
  if (!fits) return {};
  plan.n_chunks = (n_groups + plan.slots - 1) / plan.slots;
  return plan;
}

template <int kColumns>
bool launch_columns(const quant::MatmulParams& p, const FewRowsOp& op, void* stream) {
  const auto kernel = quant::matmul_few_kernel<kColumns, FewRowsOp>;
  const int bytes = matmul_shared_bytes();
  use_shared(kernel, static_cast<size_t>(bytes));
  const bool has_clusters = clusters_that_fit(kernel, p.n_lanes, quant::kActThreads, bytes) > 0;
  const int n_blocks = 2 * n_multiprocessors();
  const quant::FewPlan plan = plan_few<kColumns>(p, n_blocks, has_clusters, bytes);
  if (plan.slots == 0) return false;
  make_matmul_acts(p, kColumns, stream);
  const int grid =
      plan.n_shares == 1 ? std::min(plan.n_chunks, n_blocks) : plan.n_chunks * plan.n_shares;
  launch_clusters(
      kernel, plan.n_shares, dim3(static_cast<unsigned>(grid)), dim3(quant::kActThreads),
      static_cast<size_t>(quant::few_shared<kColumns>(p, plan).bytes), stream, p, plan, op);
  return true;
}

}  // namespace

bool launch_matmul_few(const quant::MatmulParams& p, const FewRowsOp& op, void* stream) {
  const int columns = few_columns(p.n_rows);
  if (columns == 8) return launch_columns<8>(p, op, stream);
  return columns == 16 ? launch_columns<16>(p, op, stream) : launch_columns<32>(p, op, stream);
}

}  // namespace fathom::cuda
