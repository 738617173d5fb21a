// SPDX-License-Identifier: Apache-2.0
// Runs between two events, and the count of right results.
#include "measure/device_flops.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace fathom::measure {
namespace {

constexpr int64_t kPasses = 8192;  // one or two milliseconds of a large GPU
constexpr int kRuns = 3;           // the first may find the clock low

}  // namespace

const char* arithmetic_name(Arithmetic kind) {
  constexpr const char* kNames[] = {"f32", "f16 tensor", "int8 tensor"};
  return kNames[static_cast<int>(kind)];
}

DeviceFlops::DeviceFlops(const DeviceApi& device)
    : device_(device),
      stream_(make_stream(device)),
      start_(make_event(device)),
      stop_(make_event(device)),
      right_(make_buffer(device, sizeof(uint64_t))),
      host_right_(make_host_buffer(device, sizeof(uint64_t))) {
  FATHOM_CHECK(device.arithmetic_stream != nullptr, "this device has no arithmetic stream");
}

double DeviceFlops::sample_gflops(Arithmetic kind) {
  auto* const right = reinterpret_cast<uint64_t*>(right_.get().data);
  auto* const host_right = reinterpret_cast<uint64_t*>(host_right_.get().data);
  *host_right = 0;
  device_.copy_to_device(right, host_right, sizeof(uint64_t), stream_.get());
  double best = 0;
  int64_t threads = 0;
  for (int run = 0; run < kRuns; ++run) {
    device_.event_record(start_.get(), stream_.get());
    const ArithmeticWork work = device_.arithmetic_stream(kind, kPasses, right, stream_.get());
    device_.event_record(stop_.get(), stream_.get());
    threads += work.threads;
    const double us = device_.event_elapsed_us(start_.get(), stop_.get());
    best = std::max(best, static_cast<double>(work.ops) / us * 1e-3);
  }
  device_.copy_to_host(host_right, right, sizeof(uint64_t), stream_.get());
  device_.stream_synchronize(stream_.get());
  if (*host_right != static_cast<uint64_t>(threads)) {
    fail(ErrorCode::internal, "the {} stream has the right results in {} of {} threads",
         arithmetic_name(kind), *host_right, threads);
  }
  return best;
}

}  // namespace fathom::measure
