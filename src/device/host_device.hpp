// SPDX-License-Identifier: Apache-2.0
// The DeviceApi of host memory, shared by the CPU and reference backends. Allocations of 2 MB and
// more are mappings aligned for, and advised to use, huge pages (about 10 % of read bandwidth on
// the build machines); they are zero and cost nothing until touched. Streams are null: work is done
// when a call returns.
#pragma once

#include "device/device_api.hpp"

namespace fathom {

const DeviceApi& host_device();

// Bytes this process could still use: the system's MemAvailable, cut by the memory limits of its
// control groups (v1 and v2), whose reclaimable file cache counts as free, and by RLIMIT_AS.
int64_t host_available_bytes();
int64_t host_total_bytes();

}  // namespace fathom
