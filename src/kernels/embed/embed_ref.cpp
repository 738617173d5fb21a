// SPDX-License-Identifier: Apache-2.0
// The formula, row by row, by one thread: the oracle of every backend.
#include <cmath>

#include "kernels/embed/embed.hpp"
#include "kernels/quant/dequant_ref.hpp"

namespace fathom {

void embed_ref(ExecContext&, const EmbedArgs& args) {
  const EmbedArgs::Static& s = args.s;
  const int64_t table_row_bytes = row_bytes(s.table_type, s.d_model);
  for (int64_t row = 0; row < args.step->n_rows; ++row) {
    const int64_t token = args.step->token[row];
    FATHOM_CHECK(token >= 0 && token < s.vocab_size, "token id is outside the vocabulary");
    quant::dequantize_row(s.table_type, s.table + token * table_row_bytes, args.x + row * s.d_model,
                          s.d_model);
    for (int i = 0; i < s.rope_dim / 2; ++i) {
      const double angle = args.step->pos[row] * s.inv_freq[i];
      float* pair = args.rope + row * s.rope_dim + 2 * i;
      pair[0] = static_cast<float>(s.rope_scale * std::cos(angle));
      pair[1] = static_cast<float>(s.rope_scale * std::sin(angle));
    }
  }
}

}  // namespace fathom
