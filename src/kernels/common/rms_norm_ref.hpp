// SPDX-License-Identifier: Apache-2.0
// Root mean square normalisation (arXiv 1910.07467) in double:
//   out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]
#pragma once

#include <cmath>
#include <cstdint>

namespace fathom {

template <class T>
void rms_norm_ref(const T* x, const float* weight, int64_t n, double eps, double* out) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(n) + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

}  // namespace fathom
