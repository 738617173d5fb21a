// SPDX-License-Identifier: Apache-2.0
// A backend library on a machine that lacks its device.
#include "base/error.hpp"
#include "device/backend.hpp"

namespace fathom {
namespace {

DeviceInfo info() {
  fail(ErrorCode::unavailable, "no abacus can be used: none was found; use --backend cpu");
}

}  // namespace
}  // namespace fathom

extern "C" const fathom::Backend* fathom_backend(uint32_t) {
  using namespace fathom;
  static const DeviceApi kDevice = [] {
    DeviceApi device{};
    device.info = info;
    return device;
  }();
  static const Backend kBackend = [] {
    Backend backend{};
    backend.abi = kBackendAbi;
    backend.name = "nodevice";
    backend.build_id = "tests";
    backend.device = &kDevice;
    return backend;
  }();
  return &kBackend;
}
