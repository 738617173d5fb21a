// SPDX-License-Identifier: Apache-2.0
// The cache directory ($FATHOM_CACHE, else fathom in the XDG cache): models by name, and the read
// bandwidths that `doctor` measured on this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fathom::cli {

std::string cache_dir();

// The path of MODEL: itself when it is a file, else NAME or NAME.gguf in the cache directory.
// Throws Error{usage} that lists where it looked.
std::string resolve_model(const std::string& model);

struct MeasuredPeak {
  int threads = 0;  // 0 = of a device
  double median_gbps = 0;
  double max_gbps = 0;
};
// The measured read bandwidth of the machine or device that `key` names (measure::Machine::key,
// device_key) with so many threads, or else with the most.
std::optional<MeasuredPeak> load_peak(const std::string& key, int threads);
// Replaces the entry of this key and thread count. A cache that cannot be written is no error: the
// reason comes back, empty when the peak is stored.
std::string store_peak(const std::string& key, const MeasuredPeak& peak);

}  // namespace fathom::cli
