// SPDX-License-Identifier: Apache-2.0
// What this library was built from: printed by --version and doctor, stored with every result.
#pragma once

namespace fathom {

struct BuildInfo {
  const char* version;     // "0.1.0"
  const char* commit;      // 12 hex digits, "-dirty" behind them when files differ; or "unknown"
  const char* compiler;    // "GNU 12.2.0"
  const char* build_type;  // "Release"
  const char* sanitize;    // "address,undefined", or empty
  const char* cuda;        // version of the CUDA compiler; empty when built without
};

const BuildInfo& build_info();

}  // namespace fathom
