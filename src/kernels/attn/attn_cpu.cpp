// SPDX-License-Identifier: Apache-2.0
// Deals attention to threads. Rows of one sequence that share a KV head go together as one block of
// queries. Many rows (prefill): a thread takes a block and folds its splits in order. Few rows
// (decode): splits are dealt too, and folded in the same order after a barrier.
#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "base/checked.hpp"
#include "kernels/attn/attn.hpp"
#include "kernels/common/cpu_kernels.hpp"

namespace fathom {
namespace {

constexpr int kBlockQueries = 48;  // query vectors of a block: rows x group
constexpr int kFewRows = 8;        // up to here splits are dealt
constexpr int kMaxQueries = std::max(kBlockQueries, kAttnMaxGroup* kFewRows);
constexpr int kMaxRanks = 64;  // ranks with room for states of their own; those beyond rest

// Consecutive rows of one sequence.
struct RowBlock {
  int32_t first, n_rows;
};

// The queries of one block and KV head, and where their states stand.
struct BlockQueries {
  int n = 0;
  int64_t most_tokens = 0;
  const float* q[kMaxQueries];
  int64_t limit[kMaxQueries];
  float* out[kMaxQueries];

  BlockQueries(const AttnArgs& args, const RowBlock& block, int kv_head) {
    const AttnArgs::Static& s = args.s;
    const int group = s.n_heads / s.n_kv_heads;
    for (int32_t row = block.first; row < block.first + block.n_rows; ++row) {
      for (int g = 0; g < group; ++g) {
        const int64_t at = (int64_t{row} * s.n_heads + kv_head * group + g) * s.head_dim;
        q[n] = args.q + at;
        out[n] = args.out + at;
        limit[n] = int64_t{args.step->pos[row]} + 1;
        most_tokens = std::max(most_tokens, limit[n]);
        ++n;
      }
    }
  }
};

// States of n queries in one piece of memory.
struct States {
  float* max;     // [n]
  float* sum;     // [n]
  float* output;  // [n, head_dim]

  static int64_t floats(int64_t n, int head_dim) { return n * (head_dim + 2); }
  States(float* memory, int64_t n) : max(memory), sum(memory + n), output(memory + 2 * n) {}
};

int64_t n_splits_of(int64_t tokens) { return ceil_div(tokens, kAttnSplitTokens); }

void run_split(const ExecContext& ctx, const AttnArgs& args, const BlockQueries& queries,
               const RowBlock& block, int kv_head, int64_t split, const States& states) {
  AttnSplitJob job;
  job.kv = &args.s.kv;
  job.pages = args.step->pages_of(block.first);
  job.kv_head = kv_head;
  job.token_begin = split * kAttnSplitTokens;
  job.token_end = std::min<int64_t>(job.token_begin + kAttnSplitTokens, queries.most_tokens);
  job.token_last = queries.most_tokens;
  job.n_queries = queries.n;
  job.q = queries.q;
  job.limit = queries.limit;
  job.scale = args.s.scale;
  job.max = states.max;
  job.sum = states.sum;
  job.output = states.output;
  ctx.cpu->attn.split(job);
}

void fold(const ExecContext& ctx, const States& into, const States& from, int n, int head_dim) {
  for (int i = 0; i < n; ++i) {
    ctx.cpu->attn.merge(into.max + i, into.sum + i, into.output + int64_t{i} * head_dim,
                        from.max[i], from.sum[i], from.output + int64_t{i} * head_dim, head_dim);
  }
}

void write_out(const BlockQueries& queries, const States& states, int head_dim) {
  for (int i = 0; i < queries.n; ++i) {
    const float inverse = 1.0f / states.sum[i];
    for (int dim = 0; dim < head_dim; ++dim) {
      queries.out[i][dim] = states.output[int64_t{i} * head_dim + dim] * inverse;
    }
  }
}

// Cuts the step's rows into blocks of at most max_rows rows; returns their number.
int32_t make_blocks(const StepState& step, int max_rows, RowBlock* blocks) {
  int32_t n = 0;
  for (int32_t row = 0; row < step.n_rows; ++row) {
    RowBlock* last = n > 0 ? &blocks[n - 1] : nullptr;
    if (last && step.slot[last->first] == step.slot[row] && last->n_rows < max_rows) {
      ++last->n_rows;
    } else {
      blocks[n++] = {row, 1};
    }
  }
  return n;
}

// A block's splits in order, each folded into the result.
void many_rows(ExecContext& ctx, const AttnArgs& args) {
  const AttnArgs::Static& s = args.s;
  const int64_t n_rows = args.step->n_rows;
  const int group = s.n_heads / s.n_kv_heads;
  // Blocks as large as the queries' room allows, smaller when threads would stand idle.
  const int64_t fair = ceil_div(n_rows * s.n_kv_heads, int64_t{ctx.pool->size()} * 4);
  const int max_rows =
      static_cast<int>(std::clamp<int64_t>(fair, 1, std::max(1, kBlockQueries / group)));
  Workspace workspace = ctx.workspace;
  RowBlock* blocks = workspace.take<RowBlock>(n_rows);
  const int32_t n_blocks = make_blocks(*args.step, max_rows, blocks);
  const int64_t floats = States::floats(std::max(kBlockQueries, group), s.head_dim);
  const int ranks = std::min(ctx.pool->size(), kMaxRanks);
  float* memory = workspace.take<float>(2 * floats * ranks);

  Chunks chunks(int64_t{n_blocks} * s.n_kv_heads, 1);
  ctx.pool->run([&](Team& team) {
    if (team.rank >= ranks) return;
    float* mine = memory + 2 * floats * team.rank;
    for (int64_t begin, end; chunks.next(begin, end);) {
      // The last blocks see the most tokens: they go first.
      const int64_t unit = int64_t{n_blocks} * s.n_kv_heads - 1 - begin;
      const RowBlock& block = blocks[unit / s.n_kv_heads];
      const int kv_head = static_cast<int>(unit % s.n_kv_heads);
      const BlockQueries queries(args, block, kv_head);
      const States result(mine, queries.n), part(mine + floats, queries.n);
      std::fill_n(result.max, queries.n, -INFINITY);
      std::fill_n(result.sum, queries.n, 0.0f);
      std::fill_n(result.output, int64_t{queries.n} * s.head_dim, 0.0f);
      for (int64_t split = 0; split < n_splits_of(queries.most_tokens); ++split) {
        run_split(ctx, args, queries, block, kv_head, split, part);
        fold(ctx, result, part, queries.n, s.head_dim);
      }
      write_out(queries, result, s.head_dim);
    }
  });
}

// Every (block, KV head, split) is a unit; a second pass folds each head's splits.
void few_rows(ExecContext& ctx, const AttnArgs& args) {
  const AttnArgs::Static& s = args.s;
  const int group = s.n_heads / s.n_kv_heads;
  RowBlock blocks[kFewRows];
  const int32_t n_blocks = make_blocks(*args.step, kFewRows, blocks);
  int64_t n_splits[kFewRows];
  int64_t first_unit[kFewRows + 1] = {0};   // of each block
  int64_t first_state[kFewRows + 1] = {0};  // floats before each block's states
  for (int32_t b = 0; b < n_blocks; ++b) {
    n_splits[b] = n_splits_of(int64_t{args.step->pos[blocks[b].first + blocks[b].n_rows - 1]} + 1);
    const int64_t units = n_splits[b] * s.n_kv_heads;
    first_unit[b + 1] = first_unit[b] + units;
    first_state[b + 1] =
        first_state[b] + units * States::floats(int64_t{blocks[b].n_rows} * group, s.head_dim);
  }
  Workspace workspace = ctx.workspace;
  float* memory = workspace.take<float>(first_state[n_blocks]);
  auto states = [&](int32_t b, int kv_head, int64_t split) {
    const int64_t n = int64_t{blocks[b].n_rows} * group;
    const int64_t index = kv_head * n_splits[b] + split;
    return States(memory + first_state[b] + index * States::floats(n, s.head_dim), n);
  };

  // Neighbouring splits go to one thread, so that its stream of keys and values goes on.
  const int64_t fair = ceil_div(first_unit[n_blocks], int64_t{ctx.pool->size()} * 4);
  Chunks split_chunks(first_unit[n_blocks], std::min<int64_t>(fair, 8));
  Chunks fold_chunks(int64_t{n_blocks} * s.n_kv_heads, 1);
  ctx.pool->run([&](Team& team) {
    for (int64_t begin, end; split_chunks.next(begin, end);) {
      for (int64_t unit = begin; unit < end; ++unit) {
        int32_t b = 0;
        while (unit >= first_unit[b + 1]) ++b;
        const int64_t within = unit - first_unit[b];
        const int kv_head = static_cast<int>(within / n_splits[b]);
        const int64_t split = within % n_splits[b];
        const BlockQueries queries(args, blocks[b], kv_head);
        run_split(ctx, args, queries, blocks[b], kv_head, split, states(b, kv_head, split));
      }
    }
    team.barrier();
    for (int64_t unit, end; fold_chunks.next(unit, end);) {
      const int32_t b = static_cast<int32_t>(unit / s.n_kv_heads);
      const int kv_head = static_cast<int>(unit % s.n_kv_heads);
      const BlockQueries queries(args, blocks[b], kv_head);
      // Folding into the first split's state equals folding into an empty one: its factor is 1.
      const States result = states(b, kv_head, 0);
      for (int64_t split = 1; split < n_splits[b]; ++split) {
        fold(ctx, result, states(b, kv_head, split), queries.n, s.head_dim);
      }
      write_out(queries, result, s.head_dim);
    }
  });
}

}  // namespace

int64_t workspace_bytes_cpu(const AttnArgs::Static& s) {
  const int64_t group = s.n_heads / s.n_kv_heads;
  const int64_t few_floats =
      std::min<int64_t>(kFewRows, s.max_rows) * s.n_heads * n_splits_of(s.n_ctx) * (s.head_dim + 2);
  const int64_t many_floats =
      2 * kMaxRanks * States::floats(std::max<int64_t>(kBlockQueries, group), s.head_dim);
  return std::max<int64_t>(few_floats, many_floats) * sizeof(float) +
         s.max_rows * sizeof(RowBlock) + 256;
}

void attn_cpu(ExecContext& ctx, const AttnArgs& args) {
  FATHOM_CHECK(args.s.n_heads / args.s.n_kv_heads <= kAttnMaxGroup,
               "more query heads a KV head than a block of queries has room for");
  if (args.step->n_rows <= kFewRows) {
    few_rows(ctx, args);
  } else {
    many_rows(ctx, args);
  }
}

}  // namespace fathom
