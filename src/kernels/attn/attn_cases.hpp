// SPDX-License-Identifier: Apache-2.0
// Steps over caches for the tests of attention on a GPU, what is expected of them, and errors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/attn/attn.hpp"
#include "kernels/common/kv_ref.hpp"
#include "tensor/half.hpp"

namespace fathom::attn_cases {

struct Shape {
  int group, n_kv_heads, head_dim;
  int n_heads() const { return group * n_kv_heads; }
  int width() const { return n_heads() * head_dim; }
};

// A row of the step: a position (-1: padding) of a sequence.
struct Row {
  int32_t pos, slot;
};
inline std::vector<Row> rows_of(int slot, int first, int end) {
  std::vector<Row> out;
  for (int pos = first; pos < end; ++pos) out.push_back({pos, slot});
  return out;
}
inline std::vector<Row> joined(std::vector<Row> a, const std::vector<Row>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline constexpr int kContiguous = 0;

struct Options {
  int page_tokens = 64;  // kContiguous: all of n_ctx
  int n_ctx = 1024;
  double sigma = 2;  // of the queries
  int max_rows =
      100;  // that the scratch is planned for: a step with more splits fewer among blocks
  int32_t first_page = 0;  // pages below it lie before the cache in memory, and there is nothing
};

// Caches whose content depends on slot and position only; NaN past each sequence's length, pages
// that do not exist in the table there.
struct Problem {
  AttnArgs::Static s{};
  StepState step{};
  std::vector<std::byte> k, v;
  std::vector<int32_t> pos, slot, page_table;
  std::vector<float> q;
  int32_t first_page = 0;

  Problem(Shape shape, KvFormat format, const std::vector<Row>& rows, const Options& options) {
    const int page_tokens =
        options.page_tokens == kContiguous ? (options.n_ctx + 15) / 16 * 16 : options.page_tokens;
    int n_slots = 1;
    for (const Row& row : rows) n_slots = std::max(n_slots, row.slot + 1);
    s.n_heads = shape.n_heads();
    s.n_kv_heads = shape.n_kv_heads;
    s.head_dim = shape.head_dim;
    s.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    s.max_rows = options.max_rows;
    s.n_ctx = options.n_ctx;
    s.kv.geometry = {format, shape.n_kv_heads, shape.head_dim, page_tokens};
    std::vector<int> length(n_slots, 0);
    for (const Row& row : rows) {
      pos.push_back(row.pos);
      slot.push_back(row.slot);
      length[row.slot] = std::max(length[row.slot], row.pos + 1);
    }
    const int slot_pages = (options.n_ctx + page_tokens - 1) / page_tokens;
    int n_pages = 0;
    for (const int n : length) n_pages += (n + page_tokens - 1) / page_tokens;
    page_table.assign(static_cast<size_t>(n_slots) * slot_pages, 2147480000);
    int next_page = n_pages;  // in reverse, so that logical and physical order differ
    for (int sl = 0; sl < n_slots; ++sl) {
      for (int page = 0; page * page_tokens < length[sl]; ++page) {
        page_table[static_cast<size_t>(sl) * slot_pages + page] = options.first_page + --next_page;
      }
    }
    // 0xff bytes: NaN in f32, f16 and bf16, codes and scales of NaN elsewhere.
    k.assign(static_cast<size_t>(n_pages) * s.kv.geometry.page_bytes(), std::byte{0xff});
    v = k;
    first_page = options.first_page;
    s.kv.k = base(k.data());
    s.kv.v = base(v.data());
    step.n_rows = static_cast<int32_t>(pos.size());
    step.max_pages = slot_pages;
    step.pos = pos.data();
    step.slot = slot.data();
    step.page_table = page_table.data();
    for (int sl = 0; sl < n_slots; ++sl) fill_slot(sl, length[sl]);
    for (const Row& row : rows) add_query(row, shape.width(), options.sigma);
  }

  int32_t rows() const { return step.n_rows; }
  int64_t width() const { return int64_t{s.n_heads} * s.head_dim; }
  // Where page 0 would be of a cache whose first page here is at `pages`.
  std::byte* base(std::byte* pages) const {
    return reinterpret_cast<std::byte*>(
        reinterpret_cast<uintptr_t>(pages) -
        static_cast<uintptr_t>(int64_t{first_page} * s.kv.geometry.page_bytes()));
  }

 private:
  // Nearly normal, and much faster than the standard library's.
  static double draw(std::mt19937& random) {
    const uint32_t bits = random();
    const auto part = [&](int shift) { return static_cast<int>(bits >> shift & 255) - 127.5; };
    return (part(0) + part(8) + part(16) + part(24)) / 147.8;
  }
  void fill_slot(int sl, int n_tokens) {
    std::mt19937 random(1000 + sl);
    std::vector<double> head(s.head_dim);
    const int32_t* pages = page_table.data() + int64_t{sl} * step.max_pages;
    for (int t = 0; t < n_tokens; ++t) {
      for (int kv_head = 0; kv_head < s.n_kv_heads; ++kv_head) {
        for (const KvPart part : {KvPart::key, KvPart::value}) {
          for (double& x : head) x = draw(random);
          kv_store_ref(s.kv, part, pages, kv_head, t, head.data());
        }
      }
    }
  }
  void add_query(const Row& row, int width, double sigma) {
    std::mt19937 random(77 + 7919u * static_cast<uint32_t>(row.pos) + row.slot);
    for (int i = 0; i < width; ++i) q.push_back(static_cast<float>(sigma * draw(random)));
  }
};

// Rows with a position, in double.
inline std::vector<float> exact(const Problem& p) {
  std::vector<float> out(p.q.size(), std::nanf(""));
  ExecContext host;
  attn_ref(host, {p.s, &p.step, p.q.data(), out.data()});
  return out;
}

enum class Precision { f32, halves };

// The formula in f32: K and V as stored; or q, K, V and the weights rounded to halves, to bf16 over
// such a cache and else to f16.
inline std::vector<float> naive(const Problem& p, Precision arithmetic = Precision::f32) {
  std::vector<float> out(p.q.size());
  const AttnArgs::Static& s = p.s;
  const int dims = s.head_dim, group = s.n_heads / s.n_kv_heads;
  const bool bf16 = s.kv.geometry.format == KvFormat::bf16;
  const auto rounded = [&](float x) {
    if (arithmetic == Precision::f32) return x;
    return bf16 ? bf16_to_f32(f32_to_bf16(x)) : f16_to_f32(f32_to_f16(x));
  };
  std::vector<double> stored(dims);
  std::vector<float> query(dims), keys, values, scores;
  for (int kv_head = 0; kv_head < s.n_kv_heads; ++kv_head) {
    int loaded = 0;
    for (int row = 0; row < p.rows(); ++row) {
      if (row > 0 && p.slot[row] != p.slot[row - 1]) loaded = 0;
      const int n = p.pos[row] + 1;
      if (n == 0) continue;
      keys.resize(std::max(keys.size(), static_cast<size_t>(n) * dims));
      values.resize(keys.size());
      const auto load = [&](KvPart part, std::vector<float>& to) {
        kv_load_ref(s.kv, part, p.step.pages_of(row), kv_head, loaded, stored.data());
        for (int d = 0; d < dims; ++d)
          to[loaded * dims + d] = rounded(static_cast<float>(stored[d]));
      };
      for (; loaded < n; ++loaded) {
        load(KvPart::key, keys);
        load(KvPart::value, values);
      }
      scores.resize(n);
      for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const size_t at = (static_cast<size_t>(row) * s.n_heads + head) * dims;
        for (int d = 0; d < dims; ++d) query[d] = rounded(p.q[at + d]);
        float largest = -INFINITY, sum = 0;
        for (int t = 0; t < n; ++t) {
          float dot = 0;
          for (int d = 0; d < dims; ++d) dot += query[d] * keys[t * dims + d];
          scores[t] = dot * s.scale;
          largest = std::max(largest, scores[t]);
        }
        for (int t = 0; t < n; ++t) {
          scores[t] = std::exp(scores[t] - largest);
          sum += scores[t];
        }
        // f32 divides the result; halves are rounded as weights that sum to 1.
        const bool halves = arithmetic == Precision::halves;
        for (int t = 0; t < n; ++t) {
          const float weight = halves ? rounded(scores[t] / sum) : scores[t];
          for (int d = 0; d < dims; ++d) out[at + d] += weight * values[t * dims + d];
        }
        for (int d = 0; d < dims && !halves; ++d) out[at + d] /= sum;
      }
    }
  }
  return out;
}

struct Errors {
  double max = 0, mean = 0, cosine_distance = 0, scale = 0;
};
inline Errors errors(const std::vector<float>& got, const std::vector<float>& expected) {
  Errors out;
  double dot = 0, a = 0, b = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double g = got[i], e = expected[i], error = std::fabs(g - e);
    if (!(error <= out.max)) out.max = error;  // a NaN stays
    out.mean += error / static_cast<double>(got.size());
    out.scale = std::max(out.scale, std::fabs(e));
    dot += g * e;
    a += g * g;
    b += e * e;
  }
  out.cosine_distance = 1 - dot / std::sqrt(a * b);
  return out;
}

}  // namespace fathom::attn_cases
