// SPDX-License-Identifier: Apache-2.0
// The reference product: rows are dequantised and summed in double precision.
#include "kernels/quant/linear_ref.hpp"

#include "base/error.hpp"
#include "kernels/common/parallel.hpp"
#include "kernels/quant/dequant_ref.hpp"

namespace fathom::quant {
namespace {

// Rows are taken in groups whose sums run side by side; a group's inputs stand dim-major.
constexpr int64_t kGroup = 8;

std::vector<double> dim_major_groups(const std::vector<double>& in, int64_t n_rows, int64_t cols) {
  const int64_t groups = (n_rows + kGroup - 1) / kGroup;
  std::vector<double> out(groups * cols * kGroup, 0.0);
  for (int64_t row = 0; row < n_rows; ++row) {
    double* group = out.data() + row / kGroup * cols * kGroup;
    for (int64_t k = 0; k < cols; ++k) group[k * kGroup + row % kGroup] = in[row * cols + k];
  }
  return out;
}

}  // namespace

std::vector<double> linear_ref(ThreadPool* pool, const PackedMatrix& w,
                               const std::vector<double>& in, int64_t n_rows, const float* bias) {
  FATHOM_CHECK(static_cast<int64_t>(in.size()) == n_rows * w.cols, "input is not [n_rows, cols]");
  const int64_t row_bytes = fathom::row_bytes(w.packed_type, w.cols);
  const std::vector<double> groups = dim_major_groups(in, n_rows, w.cols);
  std::vector<double> out(n_rows * w.rows);
  parallel_for(pool, w.rows, 16, [&](int64_t begin, int64_t end) {
    std::vector<float> weights(w.cols);
    for (int64_t o = begin; o < end; ++o) {
      dequantize_row(w.packed_type, w.data + o * row_bytes, weights.data(), w.cols);
      for (int64_t first = 0; first < n_rows; first += kGroup) {
        const double* x = groups.data() + first * w.cols;
        double sums[kGroup] = {};
        for (int64_t k = 0; k < w.cols; ++k) {
          const double weight = weights[k];
          for (int64_t i = 0; i < kGroup; ++i) sums[i] += weight * x[k * kGroup + i];
        }
        const int64_t n = n_rows - first < kGroup ? n_rows - first : kGroup;
        for (int64_t i = 0; i < n; ++i) {
          out[(first + i) * w.rows + o] = sums[i] + (bias ? bias[o] : 0.0f);
        }
      }
    }
  });
  return out;
}

}  // namespace fathom::quant
