// SPDX-License-Identifier: Apache-2.0
// A canary for the clock of the core that the caller runs on: how fast a chain of dependent
// multiplications goes, which neither memory nor other work on the core's units changes much.
#pragma once

namespace fathom::measure {

// Multiplications a nanosecond, the best of three runs of some 20 us: proportional to the clock.
double cpu_speed();

}  // namespace fathom::measure
