// SPDX-License-Identifier: Apache-2.0
// The reference product of a step: out[row, o] = sum_k W[o, k] in[row, k] in double, k ascending,
// whatever the number of rows or threads. W is in file layout; each of its rows is dequantised
// once per call.
#pragma once

#include <vector>

#include "base/thread_pool.hpp"
#include "tensor/packed_matrix.hpp"

namespace fathom::quant {

// `in` is [n_rows, w.cols]; out is [n_rows, w.rows].
std::vector<double> linear_ref(ThreadPool* pool, const PackedMatrix& w,
                               const std::vector<double>& in, int64_t n_rows,
                               const float* bias = nullptr);

}  // namespace fathom::quant
