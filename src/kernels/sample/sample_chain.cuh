// SPDX-License-Identifier: Apache-2.0
// The sampling chain as a group of threads runs it. Each function is the work of one block of
// threads; the group says which thread this is and how they wait for each other, so that a GPU and
// a test on the host run the same code. Sums follow the order of sample.cpp, to the bit.
//
// Temperature alone, or with min-p: candidates stay in the order of their ids. Top-k and top-p need
// the best candidates in order: two histograms of 12 bits of the key find a bound that at least
// the wanted number lies below, those are gathered and sorted by one block. Candidates of weight
// zero are left out there: they change no sum and are never drawn. Where the bound leaves too many
// (ties), more than kBest are wanted, or a top-p set is larger than what was gathered, that block
// sorts everything.
//
// Order of the launches: adjust_tile and the largest logit; weigh_block and the first digit; the
// second digit; the gathering, and finish_draw by the last block. All are launched whatever is
// asked for, and return where there is nothing to do.
#pragma once

#include <cstdint>

#include "fathom/sampling.hpp"
#include "kernels/sample/draw.hpp"
#include "kernels/sample/logits_sum.hpp"
#include "kernels/sample/sample_math.hpp"
#include "tensor/philox.hpp"

namespace fathom::sample {

inline constexpr int kTile = 512;      // values that a block stages at a time
inline constexpr int kDigitBits = 12;  // of a histogram
inline constexpr int kDigits = 1 << kDigitBits;
inline constexpr int kBoundBits = 2 * kDigitBits;
inline constexpr int kBest = 1024;      // candidates that are kept without sorting everything
inline constexpr int kCapacity = 2048;  // candidates that are gathered for it
inline constexpr int kMaxThreads = 1024;

using Status = DrawStatus;

// What is asked for; does not change while a token is drawn.
struct Request {
  float temperature, top_p, min_p;
  int32_t top_k;  // 0 = all
  uint64_t seed;
  int64_t position;
  int32_t vocab_size;

  FATHOM_HD bool cuts_k() const { return top_k > 0 && top_k < vocab_size; }
  FATHOM_HD bool cuts_p() const { return top_p < 1.0f; }
  FATHOM_HD uint32_t wanted() const { return cuts_k() ? static_cast<uint32_t>(top_k) : kBest; }
  // Whether the best candidates are looked for without sorting everything.
  FATHOM_HD bool seeks_best() const { return (cuts_k() || cuts_p()) && wanted() <= kBest; }
};

FATHOM_HD inline Request request_of(const DrawRequest& r, int32_t vocab_size) {
  return {r.temperature, r.top_p, r.min_p, r.top_k, r.seed, r.position, vocab_size};
}

// In device memory: the request, the answer, and what one launch leaves to the next. The first
// launch writes all of it.
struct State {
  Request request;
  Drawn drawn;
  int32_t n_list = 0;        // candidates of the list that is weighed
  int32_t n_cut = 0;         // after top-p
  int32_t n_kept = 0;        // after min-p
  uint32_t first_digit = 0;  // of the bound
  uint32_t n_below = 0;      // candidates whose first digit is smaller
  uint32_t bound = 0;        // of the upper kBoundBits of a key
  uint32_t n_weighty = 0;    // candidates of a weight above zero
  uint32_t n_selected = 0;   // of those, within the bound
  uint32_t n_gathered = 0;

  FATHOM_HD float best() const { return drawn.largest; }
  FATHOM_HD bool needs_no_sort() const { return drawn.status == Status::ok; }
  // Whether the launches after the first have anything to do.
  FATHOM_HD bool goes_on() const {
    return request.temperature > 0 && drawn.status != Status::no_finite_logit;
  }
};

// Candidates in the order that sums follow.
struct List {
  float* weights;      // [n]
  const int32_t* ids;  // [n], null where id and place are the same
  double* sums;        // [blocks of kSampleSumBlock]
  int32_t* kept;       // [blocks] candidates of a block that min-p keeps
  const int32_t* n;    // in the State
  FATHOM_HD int32_t id(int64_t i) const { return ids ? ids[i] : static_cast<int32_t>(i); }
};

FATHOM_HD constexpr int64_t sum_blocks(int64_t n) {
  return (n + kSampleSumBlock - 1) / kSampleSumBlock;
}
FATHOM_HD constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// --- Penalty and bias ----------------------------------------------------------------------------

FATHOM_HD inline bool is_adjusted(const DrawRequest& r) {
  return window_length(r) > 0 || r.n_bias > 0;
}

// `tile` holds logits [begin, begin + n); the group leaves what penalty and bias make of them.
// `logits` is the whole row, untouched; `history` is the slot's.
template <class Group>
FATHOM_HD void adjust_tile(Group g, const DrawRequest& r, const float* logits,
                           const int32_t* history, int64_t begin, int64_t n, float* tile) {
  // From the untouched logit: a token that occurs twice is written twice and penalised once.
  for (int64_t i = r.position - window_length(r) + g.rank(); i < r.position; i += g.size()) {
    const int64_t at = history[i] - begin;
    if (at >= 0 && at < n) tile[at] = penalised_logit(logits[history[i]], r.repeat_penalty);
  }
  g.sync();
  for (int64_t i = g.rank(); i < r.n_bias; i += g.size()) {
    const int32_t token = r.bias[i].token;
    const int64_t at = token - begin;
    if (at < 0 || at >= n || (i > 0 && r.bias[i - 1].token == token)) continue;
    float logit = tile[at];
    for (int64_t j = i; j < r.n_bias && r.bias[j].token == token; ++j) logit += r.bias[j].bias;
    tile[at] = logit;
  }
  g.sync();
}

// --- The largest logit ---------------------------------------------------------------------------

// The token with the largest logit is known: writes the State, and the answer where it is that.
FATHOM_HD inline void finish_best(State& s, const Request& request, int32_t token, float logit) {
  s = State{};
  s.request = request;
  s.n_list = request.cuts_k() ? request.top_k : request.vocab_size;
  s.drawn.token = token;
  s.drawn.largest = ranked_logit(logit);
  const bool finite = s.drawn.largest > -INFINITY && s.drawn.largest < INFINITY;
  s.drawn.status = finite ? Status::ok : Status::no_finite_logit;
}

// --- Lists: weights, sums, min-p -----------------------------------------------------------------

struct ListScratch {
  float weights[kSampleSumBlock];
};

FATHOM_HD inline int32_t count_kept(const float* weights, int64_t n, float min_p) {
  int32_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += weights[i] >= min_p;
  return count;
}

// Block b of the list: weights, their sum, and how many min-p keeps.
template <class Group>
FATHOM_HD void weigh_block(Group g, const State& s, const float* logits, const List& list,
                           int64_t b, ListScratch& scratch) {
  const int64_t begin = b * kSampleSumBlock, n = smaller(*list.n - begin, kSampleSumBlock);
  if (n <= 0) return;
  for (int64_t i = g.rank(); i < n; i += g.size()) {
    const float weight =
        candidate_weight(logits[list.id(begin + i)], s.best(), s.request.temperature);
    scratch.weights[i] = weight;
    list.weights[begin + i] = weight;
  }
  g.sync();
  if (g.rank() == 0) list.sums[b] = sum_in_order(scratch.weights, n);
  if (g.rank() == g.size() - 1) {  // beside the sum, in another warp
    list.kept[b] = count_kept(scratch.weights, n, s.request.min_p);
  }
}

// Sums, and what min-p keeps, of a whole list whose weights are there, by one block of threads.
template <class Group>
FATHOM_HD void sum_list(Group g, const List& list, float min_p) {
  const int64_t n = *list.n;
  for (int64_t b = g.rank(); b < sum_blocks(n); b += g.size()) {
    const float* weights = list.weights + b * kSampleSumBlock;
    const int64_t n_block = smaller(n - b * kSampleSumBlock, kSampleSumBlock);
    list.sums[b] = sum_in_order(weights, n_block);
    list.kept[b] = min_p > 0 ? count_kept(weights, n_block, min_p) : 0;
  }
  g.sync();
}

// Weights and sums of a whole list likewise.
template <class Group>
FATHOM_HD void weigh_list(Group g, const State& s, const float* logits, const List& list) {
  const int64_t n = *list.n;
  for (int64_t i = g.rank(); i < n; i += g.size()) {
    list.weights[i] = candidate_weight(logits[list.id(i)], s.best(), s.request.temperature);
  }
  g.sync();
  sum_list(g, list, s.request.min_p);
}

// Moves what min-p keeps of `from`, whose blocks are counted, to another list, in order. Each
// thread has a run of blocks and looks into those that keep any: mostly few.
template <class Group>
FATHOM_HD void compact_list(Group g, State& s, const List& from, float* to_weights, int32_t* to_ids,
                            int32_t* counts) {
  const float min_p = s.request.min_p;
  const int64_t n = *from.n, n_blocks = sum_blocks(n), chunk = (n_blocks + g.size() - 1) / g.size();
  const int64_t begin = smaller(g.rank() * chunk, n_blocks), end = smaller(begin + chunk, n_blocks);
  int32_t own = 0;
  for (int64_t b = begin; b < end; ++b) own += from.kept[b];
  counts[g.rank()] = own;
  g.sync();
  if (begin < end) {
    int32_t at = 0;
    for (int i = 0; i < g.rank(); ++i) at += counts[i];
    for (int64_t b = begin; b < end; ++b) {
      const int32_t block_end = at + from.kept[b];
      for (int64_t i = b * kSampleSumBlock; at < block_end; ++i) {
        if (!(from.weights[i] >= min_p)) continue;
        to_weights[at] = from.weights[i];
        to_ids[at++] = from.id(i);
      }
    }
    if (end == n_blocks) s.n_kept = at;
  }
  g.sync();
}

// --- Sums over a list, top-p and the draw, by one block ------------------------------------------

struct DrawScratch {
  double sums[kTile];
  float weights[kTile];
  double total;
  int64_t index;
};

// The sum of the blocks in order; prefix[b], unless null, is the sum of those before block b.
template <class Group>
FATHOM_HD double total_in_order(Group g, const double* sums, int64_t n_blocks, double* prefix,
                                DrawScratch& scratch) {
  constexpr int kStep = 8;  // loads ahead of the stores, which might go to the same place
  double total = 0;
  for (int64_t begin = 0; begin < n_blocks; begin += kTile) {
    const int64_t n = smaller(n_blocks - begin, kTile);
    for (int64_t i = g.rank(); i < n; i += g.size()) scratch.sums[i] = sums[begin + i];
    g.sync();
    if (g.rank() == 0) {
      for (int64_t i = 0; i < n; i += kStep) {
        double ahead[kStep];
        for (int j = 0; j < kStep; ++j) ahead[j] = i + j < n ? scratch.sums[i + j] : 0.0;
        for (int j = 0; j < kStep && i + j < n; ++j) {
          if (prefix) prefix[begin + i + j] = total;
          total += ahead[j];
        }
      }
      scratch.total = total;
    }
    g.sync();
  }
  return scratch.total;
}

enum class Reach { at_least, more_than };

// Adds weights to `sum` in order until it reaches `mass`; returns the place of the one that does
// it, -1 when none does. Eight at a time, as sums do not decrease: loads need not wait for sums.
template <Reach kReach>
FATHOM_HD int64_t add_until(const float* weights, int64_t n, double mass, double& sum) {
  constexpr int kStep = 8;
  const auto reached = [mass](double x) {
    return kReach == Reach::at_least ? x >= mass : x > mass;
  };
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    double ahead = sum;
    for (int j = 0; j < kStep; ++j) ahead += static_cast<double>(weights[i + j]);
    if (reached(ahead)) break;
    sum = ahead;
  }
  for (; i < n; ++i) {
    sum += static_cast<double>(weights[i]);
    if (reached(sum)) return i;
  }
  return -1;
}

// Length of the shortest prefix that holds top_p of `total`; -1 when no prefix does.
template <class Group>
FATHOM_HD int64_t top_p_length(Group g, const float* weights, int64_t n, double total, float top_p,
                               DrawScratch& scratch) {
  double sum = 0;
  const double mass = static_cast<double>(top_p) * total;
  if (g.rank() == 0) scratch.index = -1;
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int64_t m = smaller(n - begin, kTile);
    for (int64_t i = g.rank(); i < m; i += g.size()) scratch.weights[i] = weights[begin + i];
    g.sync();
    if (g.rank() == 0) {
      const int64_t length = add_until<Reach::at_least>(scratch.weights, m, mass, sum);
      if (length >= 0) scratch.index = begin + length + 1;
    }
    g.sync();
    if (scratch.index >= 0) break;
  }
  g.sync();
  return scratch.index;
}

// The last candidate from `begin` on that has a weight, else the first of all.
FATHOM_HD inline int64_t last_possible(const float* weights, int64_t begin, int64_t n) {
  for (int64_t i = n - 1; i >= begin; --i) {
    if (weights[i] > 0) return i;
  }
  return 0;
}

// The place of the first candidate whose prefix sum exceeds `mass`, as Draw::find of sample.cpp.
// prefix[] as total_in_order leaves it.
template <class Group>
FATHOM_HD int64_t find_in_order(Group g, const List& list, int64_t n, const double* prefix,
                                double mass, DrawScratch& scratch) {
  if (g.rank() == 0) {
    int64_t low = 0, high = sum_blocks(n) - 1;  // prefix sums do not decrease
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (prefix[middle] + list.sums[middle] > mass) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    scratch.index = low;
  }
  g.sync();
  const int64_t begin = scratch.index * kSampleSumBlock;
  const int64_t staged = smaller(n - begin, kSampleSumBlock);
  for (int64_t i = g.rank(); i < staged; i += g.size()) {
    scratch.weights[i] = list.weights[begin + i];
  }
  g.sync();
  if (g.rank() == 0) {
    double before = prefix[scratch.index];
    int64_t at = add_until<Reach::more_than>(scratch.weights, staged, mass, before);
    if (at < 0) {  // rounding left the mass just above the sum of the block
      at = add_until<Reach::more_than>(list.weights + begin + staged, n - begin - staged, mass,
                                       before);
      if (at >= 0) at += staged;
    }
    scratch.index = at >= 0 ? begin + at : last_possible(list.weights, begin, n);
  }
  g.sync();
  return scratch.index;
}

// Draws from a list whose sums are there; the token is written by one thread.
template <class Group>
FATHOM_HD void draw_token(Group g, State& s, const List& list, double* prefix,
                          DrawScratch& scratch) {
  const Request& r = s.request;
  const int64_t n = *list.n;
  const double total = total_in_order(g, list.sums, sum_blocks(n), prefix, scratch);
  const double uniform = philox_uniform(r.seed, static_cast<uint64_t>(r.position));
  const int64_t at = find_in_order(g, list, n, prefix, uniform * total, scratch);
  if (g.rank() != 0) return;
  s.drawn.token = list.id(at);
  s.drawn.status = Status::ok;
}

// Cuts a sorted list to its top-p set; `total_sums` are of the mass that top_p is a part of.
template <class Group>
FATHOM_HD void cut_top_p(Group g, State& s, const List& list, const double* total_sums,
                         int64_t n_total_blocks, DrawScratch& scratch) {
  const int64_t n = *list.n;
  const double total = total_in_order(g, total_sums, n_total_blocks, nullptr, scratch);
  const int64_t length = top_p_length(g, list.weights, n, total, s.request.top_p, scratch);
  if (g.rank() == 0) s.n_cut = static_cast<int32_t>(length < 0 ? n : length);
}

// --- The bound that the best candidates lie below ------------------------------------------------

struct DigitScratch {
  uint32_t counts[kDigits];
  uint32_t sums[kMaxThreads];
};

// Which digit of the key a pass counts; -1 = the candidate does not take part.
FATHOM_HD inline int counted_digit(const State& s, float logit, int pass) {
  if (!has_weight(logit, s.best(), s.request.temperature)) return -1;
  const uint32_t key = logit_key(logit);
  const uint32_t first = key >> (32 - kDigitBits);
  if (pass == 0) return static_cast<int>(first);
  return first == s.first_digit ? static_cast<int>(key >> (32 - kBoundBits) & (kDigits - 1)) : -1;
}

// With all counts of a pass in the scratch: the digit at which the wanted number is reached, or the
// last one.
template <class Group>
FATHOM_HD void finish_digits(Group g, State& s, int pass, DigitScratch& scratch) {
  const int chunk = (kDigits + g.size() - 1) / g.size();
  const int begin = static_cast<int>(smaller(g.rank() * chunk, kDigits));
  const int end = static_cast<int>(smaller(begin + chunk, kDigits));
  uint32_t own = 0;
  for (int i = begin; i < end; ++i) own += scratch.counts[i];
  scratch.sums[g.rank()] = own;
  const uint32_t wanted = s.request.wanted() - (pass == 0 ? 0 : s.n_below);
  g.sync();  // all have read n_below too
  uint32_t before = 0, total = 0;
  for (int i = 0; i < g.size(); ++i) {
    if (i < g.rank()) before += scratch.sums[i];
    total += scratch.sums[i];
  }
  const bool reached = before < wanted && wanted <= before + own;
  const bool all = total < wanted && begin < end && end == kDigits;
  if (!reached && !all) return;  // one thread stays
  int digit = begin;
  while (digit + 1 < end && (all || before + scratch.counts[digit] < wanted)) {
    before += scratch.counts[digit++];
  }
  if (pass == 0) {
    s.first_digit = static_cast<uint32_t>(digit);
    s.n_below = before;
    s.n_weighty = total;
    return;
  }
  s.bound = s.first_digit << kDigitBits | static_cast<uint32_t>(digit);
  s.n_selected = s.n_below + before + scratch.counts[digit];
  if (s.n_selected > kCapacity) s.drawn.status = Status::needs_sort;
}

FATHOM_HD inline bool within_bound(const State& s, float logit) {
  return has_weight(logit, s.best(), s.request.temperature) &&
         logit_key(logit) >> (32 - kBoundBits) <= s.bound;
}

// --- The gathered candidates, by one block -------------------------------------------------------

struct BestScratch {
  uint64_t keys[kCapacity];
  float weights[kBest];
  float kept_weights[kBest];
  int32_t ids[kBest], kept_ids[kBest];
  int32_t counts[kMaxThreads];
  double sums[kBest / kSampleSumBlock], prefix[kBest / kSampleSumBlock];
  int32_t n;
  DrawScratch draw;
};

// Ascending, n a power of two. Bitonic: the order of the exchanges does not depend on the keys.
template <class Group>
FATHOM_HD void sort_keys(Group g, uint64_t* keys, int n) {
  for (int run = 2; run <= n; run *= 2) {
    for (int apart = run / 2; apart > 0; apart /= 2) {
      for (int i = g.rank(); i < n / 2; i += g.size()) {
        const int a = 2 * i - i % apart, b = a + apart;
        const bool ascending = (a & run) == 0;
        const uint64_t x = keys[a], y = keys[b];
        if ((x > y) == ascending) {
          keys[a] = y;
          keys[b] = x;
        }
      }
      g.sync();
    }
  }
}

// Keeps the weights that min-p leaves, in order; returns how many. Each thread has a run of them.
template <class Group>
FATHOM_HD int keep_min_p(Group g, int n, float min_p, BestScratch& scratch) {
  const int chunk = (n + g.size() - 1) / g.size();
  const int begin = static_cast<int>(smaller(g.rank() * chunk, n));
  const int end = static_cast<int>(smaller(begin + chunk, n));
  int own = 0;
  for (int i = begin; i < end; ++i) own += scratch.weights[i] >= min_p;
  scratch.counts[g.rank()] = own;
  g.sync();
  if (begin < end) {
    int at = 0;
    for (int i = 0; i < g.rank(); ++i) at += scratch.counts[i];
    for (int i = begin; i < end; ++i) {
      if (!(scratch.weights[i] >= min_p)) continue;
      scratch.kept_weights[at] = scratch.weights[i];
      scratch.kept_ids[at++] = scratch.ids[i];
    }
    if (end == n) scratch.n = at;
  }
  g.sync();
  return scratch.n;
}

template <class Group>
FATHOM_HD void sum_blocks_of(Group g, const float* weights, int n, BestScratch& scratch) {
  for (int b = g.rank(); b < sum_blocks(n); b += g.size()) {
    const int begin = b * kSampleSumBlock;
    scratch.sums[b] = sum_in_order(weights + begin, smaller(n - begin, kSampleSumBlock));
  }
  g.sync();
}

// Sorts what was gathered, which lies in scratch.keys, and draws; asks for a sort of everything
// when that is not enough. `all_sums` are the sums over all candidates by id; read for top-p
// without top-k alone.
template <class Group>
FATHOM_HD void draw_from_best(Group g, State& s, const float* logits, int n_gathered,
                              const double* all_sums, BestScratch& scratch) {
  const Request& r = s.request;
  int n_sort = 1;
  while (n_sort < n_gathered) n_sort *= 2;
  for (int i = n_gathered + g.rank(); i < n_sort; i += g.size()) scratch.keys[i] = ~uint64_t{0};
  g.sync();
  sort_keys(g, scratch.keys, n_sort);

  int n = static_cast<int>(smaller(n_gathered, r.wanted()));
  for (int i = g.rank(); i < n; i += g.size()) {
    const int32_t id = candidate_id(scratch.keys[i]);
    scratch.ids[i] = id;
    scratch.weights[i] = candidate_weight(logits[id], s.best(), r.temperature);
  }
  g.sync();
  if (r.top_p < 1.0f) {
    sum_blocks_of(g, scratch.weights, n, scratch);
    const double total =
        r.cuts_k() ? total_in_order(g, scratch.sums, sum_blocks(n), nullptr, scratch.draw)
                   : total_in_order(g, all_sums, sum_blocks(r.vocab_size), nullptr, scratch.draw);
    const int64_t length = top_p_length(g, scratch.weights, n, total, r.top_p, scratch.draw);
    if (length < 0 && !r.cuts_k() && s.n_weighty > static_cast<uint32_t>(n)) {
      if (g.rank() == 0) s.drawn.status = Status::needs_sort;
      return;
    }
    if (length >= 0) n = static_cast<int>(length);
  }
  float* weights = scratch.weights;
  const int32_t* ids = scratch.ids;
  if (r.min_p > 0) {
    n = keep_min_p(g, n, r.min_p, scratch);
    weights = scratch.kept_weights;
    ids = scratch.kept_ids;
  } else if (g.rank() == 0) {
    scratch.n = n;
  }
  sum_blocks_of(g, weights, n, scratch);  // waits for all
  draw_token(g, s, {weights, ids, scratch.sums, nullptr, &scratch.n}, scratch.prefix, scratch.draw);
}

// --- The end of a draw, by one block -------------------------------------------------------------

// Where everything of a row lies; in device memory but for the struct itself.
struct Memory {
  State* state;
  List by_id;           // all candidates
  List sorted;          // the best top_k, or all; its ids are those of the sort
  List kept;            // what min-p leaves of either
  float* kept_weights;  // what `kept` reads
  int32_t* kept_ids;
  double* prefix;          // [sum blocks]
  uint32_t* digit_counts;  // [2][kDigits]
  uint64_t* gathered;      // [kCapacity]
  float* adjusted;         // [vocab_size] logits after penalty and bias
  uint32_t* keys[2];       // [vocab_size] of the sort
  int32_t* ids[2];         // [vocab_size]
};

// The block that ends a draw needs them one after the other.
union FinishScratch {
  BestScratch best;
  DrawScratch draw;
  int32_t counts[kMaxThreads];
};

// Draws from what earlier launches left: weights by id, or the best candidates, n_gathered of them
// in scratch.best.keys. sort_all() leaves the ids of all in the order of preference and returns
// where; it may use the scratch.
template <class Group, class SortAll>
FATHOM_HD void finish_draw(Group g, const Memory& m, const float* logits, int n_gathered,
                           FinishScratch& scratch, const SortAll& sort_all) {
  State& s = *m.state;
  const Request& r = s.request;
  if (r.seeks_best() && s.needs_no_sort()) {
    draw_from_best(g, s, logits, n_gathered, m.by_id.sums, scratch.best);
    g.sync();
    if (s.needs_no_sort()) return;
  }
  List list = m.by_id;
  if (r.cuts_k() || r.cuts_p()) {
    list = m.sorted;
    list.ids = sort_all();
    g.sync();
    weigh_list(g, s, logits, list);
    if (r.cuts_p()) {
      const bool of_all = !r.cuts_k();
      cut_top_p(g, s, list, of_all ? m.by_id.sums : list.sums,
                sum_blocks(of_all ? r.vocab_size : r.top_k), scratch.draw);
      g.sync();
      list.n = &s.n_cut;
      sum_list(g, list, r.min_p);
    }
  }
  if (r.min_p > 0) {
    compact_list(g, s, list, m.kept_weights, m.kept_ids, scratch.counts);
    list = m.kept;
    sum_list(g, list, 0);
  }
  draw_token(g, s, list, m.prefix, scratch.draw);
}

}  // namespace fathom::sample
