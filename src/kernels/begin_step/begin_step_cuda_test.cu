// SPDX-License-Identifier: Apache-2.0
// The GPU's begin_step against the reference: few rows and a prompt's many, with requests and
// without, each place of the ring, replayed as one graph.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/begin_step/begin_step.hpp"
#include "kernels/begin_step/begin_step_cases.hpp"
#include "kernels/common/cxx20.cuh"
#include "tests/support/cuda_fixture.hpp"

namespace fathom {
namespace {

class BeginStepCuda : public test::CudaTest {};

TEST_F(BeginStepCuda, EqualsTheReferenceInEveryPlaceOfTheRing) {
  for (const int n_rows : {2, 3, 8, 33, 700}) {
    for (const int n_requests : {0, 1, 32, 600}) {
      BeginStepCase c(n_rows, n_requests);
      const HostBuffer inbox = make_host_buffer(api(), static_cast<int64_t>(c.inbox.size()));
      std::memcpy(inbox.get().data, c.inbox.data(), c.inbox.size());
      const auto n_steps = upload(std::vector<int64_t>{0});
      const auto rows = upload(c.rows), newest = upload(c.newest), history = upload(c.history);
      const auto requests = upload(c.requests);
      BeginStepArgs args = c.args();
      args.inbox = inbox.get().data;
      args.n_steps = n_steps.get();
      args.rows = rows.get();
      args.requests = reinterpret_cast<std::byte*>(requests.get());
      args.newest = newest.get();
      args.history = history.get();
      ExecContext host;
      const auto equal = [&](int step) {
        begin_step_ref(host, c.args());
        EXPECT_EQ(download(n_steps)[0], c.n_steps);
        EXPECT_EQ(download(rows), c.rows) << n_rows << " rows, step " << step;
        EXPECT_EQ(download(requests), c.requests) << n_requests << " requests, step " << step;
        EXPECT_EQ(download(history), c.history) << n_rows << " rows, step " << step;
      };
      begin_step_cuda(ctx(), args);
      equal(0);
      const Graph graph = capture_graph(api(), stream(), [&] { begin_step_cuda(ctx(), args); });
      for (int step = 1; step < 2 * kStepRing; ++step) {
        api().graph_launch(graph.get(), stream().get());
        equal(step);
      }
    }
  }
}

}  // namespace
}  // namespace fathom
