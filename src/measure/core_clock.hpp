// SPDX-License-Identifier: Apache-2.0
// The clock that this core runs at now, measured: a chain of dependent multiplications against the
// monotonic clock. It needs no rights and tells the truth in a virtual machine, whose /proc/cpuinfo
// repeats the nominal clock.
#pragma once

namespace fathom::measure {

// Of the core of the calling thread, in MHz; the fastest of several bursts of a few microseconds,
// so that an interruption does not count. About 30 us.
double core_clock_mhz();

}  // namespace fathom::measure
