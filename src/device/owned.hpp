// SPDX-License-Identifier: Apache-2.0
// Owners of what a DeviceApi hands out: move-only, given back when they go. A backend library is
// never unloaded, so an owner may outlive whoever loaded the backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/check.hpp"
#include "device/device_api.hpp"

namespace fathom {

// Handle must be cheap to copy and false when empty; Destroy(const DeviceApi&, Handle) must not
// throw.
template <class Handle, auto Destroy>
class Owned {
 public:
  Owned() = default;
  Owned(const DeviceApi& api, Handle handle) : api_(&api), handle_(handle) {}
  Owned(Owned&& other) noexcept
      : api_(std::exchange(other.api_, nullptr)), handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      api_ = std::exchange(other.api_, nullptr);
      handle_ = std::exchange(other.handle_, Handle{});
    }
    return *this;
  }
  ~Owned() { reset(); }

  void reset() noexcept {
    if (handle_) Destroy(*api_, handle_);
    api_ = nullptr;
    handle_ = Handle{};
  }
  Handle get() const { return handle_; }
  explicit operator bool() const { return static_cast<bool>(handle_); }

 private:
  const DeviceApi* api_ = nullptr;
  Handle handle_{};
};

// Bytes of the device, or page-locked bytes of the host.
struct DeviceMemory {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  explicit operator bool() const { return data != nullptr; }
};

namespace destroy {
inline void buffer(const DeviceApi& api, DeviceMemory memory) {
  api.free(memory.data, memory.bytes);
}
inline void host_buffer(const DeviceApi& api, DeviceMemory memory) {
  api.free_host(memory.data, memory.bytes);
}
inline void stream(const DeviceApi& api, void* handle) { api.stream_destroy(handle); }
inline void event(const DeviceApi& api, void* handle) { api.event_destroy(handle); }
inline void graph(const DeviceApi& api, void* handle) { api.graph_destroy(handle); }
}  // namespace destroy

using Buffer = Owned<DeviceMemory, &destroy::buffer>;
using HostBuffer = Owned<DeviceMemory, &destroy::host_buffer>;
using Stream = Owned<void*, &destroy::stream>;
using Event = Owned<void*, &destroy::event>;
using Graph = Owned<void*, &destroy::graph>;

// REQUIRES: bytes > 0.
inline Buffer make_buffer(const DeviceApi& api, int64_t bytes) {
  FATHOM_CHECK(bytes > 0, "a device buffer needs at least one byte");
  return {api, DeviceMemory{static_cast<std::byte*>(api.alloc(bytes)), bytes}};
}
inline HostBuffer make_host_buffer(const DeviceApi& api, int64_t bytes) {
  FATHOM_CHECK(bytes > 0, "a host buffer needs at least one byte");
  return {api, DeviceMemory{static_cast<std::byte*>(api.alloc_host(bytes)), bytes}};
}
inline Stream make_stream(const DeviceApi& api) { return {api, api.stream_create()}; }
inline Event make_event(const DeviceApi& api) { return {api, api.event_create()}; }

// Records what fn() submits to the stream as a graph. Capture ends on every path: when fn throws,
// the partial graph is dropped and the exception goes on.
template <class Fn>
Graph capture_graph(const DeviceApi& api, void* stream, Fn&& fn) {
  api.capture_begin(stream);
  try {
    std::forward<Fn>(fn)();
  } catch (...) {
    try {
      Graph partial{api, api.capture_end(stream)};
    } catch (const Error&) {
      // The device calls a broken capture an error of its own; fn's exception says more.
    }
    throw;
  }
  return {api, api.capture_end(stream)};
}
template <class Fn>
Graph capture_graph(const DeviceApi& api, const Stream& stream, Fn&& fn) {
  return capture_graph(api, stream.get(), std::forward<Fn>(fn));
}

}  // namespace fathom
