// SPDX-License-Identifier: Apache-2.0
// The cache directory ($FATHOM_CACHE, else fathom in the XDG cache): models by name, and the read
// bandwidth that `doctor` measured on this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "measure/machine.hpp"

namespace fathom::cli {

std::string cache_dir();

// The path of MODEL: itself when it is a file, else NAME or NAME.gguf in the cache directory.
// Throws Error{usage} that lists where it looked.
std::string resolve_model(const std::string& model);

struct MeasuredPeak {
  int threads = 0;
  double median_gbps = 0;
  double max_gbps = 0;
};
// The measured read bandwidth of this machine with so many threads, or else with the most.
std::optional<MeasuredPeak> load_peak(const measure::Machine& machine, int threads);
// Replaces the entry of this machine and thread count. A cache that cannot be written is no error:
// the reason comes back, empty when the peak is stored.
std::string store_peak(const measure::Machine& machine, const MeasuredPeak& peak);

}  // namespace fathom::cli
