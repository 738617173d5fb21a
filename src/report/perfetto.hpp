// SPDX-License-Identifier: Apache-2.0
// Traced steps as a Perfetto trace: TrackEvents of the protobuf format, encoded by hand, as only a
// few fields are needed. Kernels that overlap lie on lanes of their own, since slices of one track
// must nest. Source: perfetto.dev/docs/reference/trace-packet-proto and synthetic-track-event.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fathom::report {

struct TraceSlice {
  std::string name;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::vector<std::pair<std::string, std::string>> notes;  // shown with the slice
};

struct TraceTrack {
  std::string name;
  std::vector<TraceSlice> slices;  // by start
};

// The bytes of a .pftrace file. Each track's times start at 0.
std::string perfetto_trace(const std::vector<TraceTrack>& tracks);

}  // namespace fathom::report
