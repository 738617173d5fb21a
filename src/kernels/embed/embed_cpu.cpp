// SPDX-License-Identifier: Apache-2.0
// One row by the caller alone, more rows in chunks of eight by all threads.
#include <cmath>

#include "base/error.hpp"
#include "kernels/embed/embed.hpp"
#include "kernels/quant/dequant_ref.hpp"

namespace fathom {

void embed_cpu(ExecContext& ctx, const EmbedArgs& args) {
  const EmbedArgs::Static& s = args.s;
  const StepState& step = *args.step;
  const int64_t stride = row_bytes(s.table_type, s.d_model);
  auto one = [&](int64_t row) {
    FATHOM_CHECK(step.token[row] >= 0 && step.token[row] < s.vocab_size,
                 "token id outside the vocabulary");
    quant::dequantize_row(s.table_type, s.table + step.token[row] * stride,
                          args.x + row * s.d_model, s.d_model);
    float* rope = args.rope + row * s.rope_dim;
    for (int i = 0; i < s.rope_dim / 2; ++i) {
      const double angle = step.pos[row] * s.inv_freq[i];
      rope[2 * i] = static_cast<float>(std::cos(angle) * s.rope_scale);
      rope[2 * i + 1] = static_cast<float>(std::sin(angle) * s.rope_scale);
    }
  };
  if (step.n_rows == 1) return one(0);
  Chunks chunks(step.n_rows, 8);
  ctx.pool->run([&](Team&) {
    for (int64_t begin, end; chunks.next(begin, end);) {
      for (int64_t row = begin; row < end; ++row) one(row);
    }
  });
}

}  // namespace fathom
