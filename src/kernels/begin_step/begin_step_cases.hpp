// SPDX-License-Identifier: Apache-2.0
// An inbox with something else in each place: rows of two slots in turn, the second of which has
// the token that the device drew, and a last one that fills up the bucket.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/begin_step/begin_step.hpp"
#include "tensor/step_ring.hpp"

namespace fathom {

struct BeginStepCase {
  static constexpr int64_t kContext = 4000, kMaxRows = 700;
  using Request = std::pair<int64_t, int64_t>;

  // REQUIRES: at least two rows.
  BeginStepCase(int n_rows_given, int n_requests_given)
      : n_rows(n_rows_given), n_requests(n_requests_given) {
    const int64_t offset = BeginStepArgs::requests_offset(kMaxRows);
    place_bytes = (offset + n_requests * static_cast<int64_t>(sizeof(Request)) + 63) / 64 * 64;
    inbox.assign(static_cast<size_t>(kStepRing * place_bytes), std::byte{0x55});
    for (int place = 0; place < kStepRing; ++place) {
      std::vector<int32_t> words;
      for (int row = 0; row < n_rows; ++row) words.push_back(token(place, row));
      for (int row = 0; row < n_rows; ++row) words.push_back(pos(place, row));
      for (int row = 0; row < n_rows; ++row) words.push_back(slot(row));
      for (int row = 0; row < n_rows; ++row) words.push_back(row);
      std::byte* at = inbox.data() + place * place_bytes;
      std::memcpy(at, words.data(), words.size() * sizeof(int32_t));
      for (int i = 0; i < n_requests; ++i) {
        const Request r = request(place, i);
        std::memcpy(at + offset + i * static_cast<int64_t>(sizeof r), &r, sizeof r);
      }
    }
    rows.assign(static_cast<size_t>(4 * n_rows), -7);
    requests.assign(static_cast<size_t>(std::max(1, n_requests)), Request{-7, -7});
    history.assign(2 * kContext, -7);
  }

  int32_t slot(int row) const { return is_padding(row) ? 0 : row % 2; }
  bool is_padding(int row) const { return row == n_rows - 1; }
  int32_t token(int place, int row) const {
    return is_padding(row) ? 0 : row % 2 == 1 ? -1 : 100 * place + row + 1;
  }
  int32_t pos(int place, int row) const { return is_padding(row) ? -1 : 800 * place + row; }
  static Request request(int place, int i) { return {1000 * place + i, -i}; }

  BeginStepArgs args() {
    return {.s = {kContext, place_bytes, kMaxRows, sizeof(Request)},
            .n_rows = n_rows,
            .n_requests = n_requests,
            .inbox = inbox.data(),
            .n_steps = &n_steps,
            .rows = rows.data(),
            .requests = reinterpret_cast<std::byte*>(requests.data()),
            .newest = newest.data(),
            .history = history.data()};
  }

  int32_t n_rows, n_requests;
  int64_t place_bytes = 0;
  std::vector<std::byte> inbox;
  int64_t n_steps = 0;
  std::vector<int32_t> newest{11, 22};
  std::vector<int32_t> rows, history;
  std::vector<Request> requests;
};

}  // namespace fathom
