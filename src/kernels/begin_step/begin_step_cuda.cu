// SPDX-License-Identifier: Apache-2.0
// The launcher: one block, since a step has few rows and a prompt's chunk only some thousand words.
#include "kernels/begin_step/begin_step.hpp"

#include <cuda_runtime.h>

#include "base/check.hpp"
#include "kernels/begin_step/begin_step_kernel.cuh"
#include "kernels/common/cuda_check.cuh"
#include "kernels/common/cxx20.cuh"

namespace fathom {

void begin_step_cuda(ExecContext& ctx, const BeginStepArgs& args) {
  FATHOM_CHECK(args.n_rows >= 0 && args.n_rows <= args.s.max_rows, "more rows than were planned");
  FATHOM_CHECK(args.s.request_bytes % 4 == 0 && args.s.place_bytes % 64 == 0,
               "the inbox holds whole words");
  constexpr int64_t kWord = sizeof(int32_t);
  const cuda::BeginStepParams params = {
      .inbox = reinterpret_cast<const int32_t*>(args.inbox),
      .place_words = args.s.place_bytes / kWord,
      .requests_at = BeginStepArgs::requests_offset(args.s.max_rows) / kWord,
      .n_request_words = args.n_requests * args.s.request_bytes / kWord,
      .n_ctx = args.s.n_ctx,
      .n_rows = args.n_rows,
      .n_steps = args.n_steps,
      .rows = args.rows,
      .requests = reinterpret_cast<int32_t*>(args.requests),
      .newest = args.newest,
      .history = args.history};
  cuda::launch(cuda::begin_step_kernel, dim3(1), dim3(cuda::kBeginStepThreads), 0,
               ctx.stream.handle, params);
  cuda::check_launch("begin_step");
}

}  // namespace fathom
