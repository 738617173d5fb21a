// SPDX-License-Identifier: Apache-2.0
// The only file that sees the generated values, so that a new commit compiles one file.
#include "base/build_info.hpp"

#include "fathom_build_info.hpp"

namespace fathom {

const BuildInfo& build_info() { return kBuildInfo; }

}  // namespace fathom
