// SPDX-License-Identifier: Apache-2.0
// In place of attn_cuda.cu, whose clusters are not emulated: the seed's attention (attn_seed.hpp)
// hands steps of many rows to it.
#include "base/error.hpp"
#include "kernels/attn/attn.hpp"

namespace fathom {

int64_t workspace_bytes_cuda(const AttnArgs::Static&) { return 0; }
void attn_cuda(ExecContext&, const AttnArgs&) {
  fail(ErrorCode::unsupported, "attention of clusters is not emulated");
}

}  // namespace fathom
