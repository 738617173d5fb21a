// SPDX-License-Identifier: Apache-2.0
// What tests on a GPU share: a fixture that skips where there is none, arrays on the device, and
// a workspace. Copies run on the fixture's stream, in the order in which they are written.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "backends/cuda/device_api.hpp"
#include "base/check.hpp"
#include "device/owned.hpp"
#include "kernels/common/arriving_lanes.cuh"
#include "kernels/common/cluster_limit.cuh"
#include "kernels/exec_context.hpp"

namespace fathom::test {

// n values on the device, 256-byte aligned.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(Buffer buffer, int64_t n) : buffer_(std::move(buffer)), n_(n) {}
  T* get() const { return reinterpret_cast<T*>(buffer_.get().data); }
  int64_t size() const { return n_; }
  int64_t size_bytes() const { return n_ * static_cast<int64_t>(sizeof(T)); }

 private:
  Buffer buffer_;
  int64_t n_ = 0;
};

// A test derives from this, or from CudaTestWithParam, and passes ctx() to the op.
class CudaTest : public testing::Test {
 public:
  static const DeviceApi& api() { return cuda::device_api(); }

 protected:
  void SetUp() override {
    try {
      info_ = api().info();
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::unavailable) << error.what();
      GTEST_SKIP() << error.what();
    }
    if (std::getenv("FATHOM_ALL_LANES_ARRIVE")) cuda::arriving_lanes = 32;
    if (std::getenv("FATHOM_SMALL_CLUSTERS")) cuda::most_cluster_blocks = 8;
    stream_ = make_stream(api());
    ctx_.stream.handle = stream_.get();
  }

  // A failed kernel shows here, under the test that ran it.
  void TearDown() override {
    if (stream_) {
      EXPECT_NO_THROW(synchronize());
    }
  }

  const DeviceInfo& info() const { return info_; }
  const Stream& stream() const { return stream_; }
  ExecContext& ctx() { return ctx_; }
  void synchronize() { api().stream_synchronize(stream_.get()); }

  template <class T>
  DeviceArray<T> upload(std::span<const T> values) {
    DeviceArray<T> out = uninitialized<T>(static_cast<int64_t>(values.size()));
    if (values.empty()) return out;
    api().copy_to_device(out.get(), values.data(), out.size_bytes(), stream_.get());
    synchronize();
    return out;
  }
  template <class T>
  DeviceArray<T> upload(const std::vector<T>& values) {
    return upload(std::span<const T>(values));
  }
  // Every byte 0xff: floats are NaN, integers -1. What an op should have written shows.
  template <class T>
  DeviceArray<T> poisoned(int64_t n) {
    const std::vector<std::byte> bytes(static_cast<size_t>(n) * sizeof(T), std::byte{0xff});
    DeviceArray<T> out = uninitialized<T>(n);
    if (n == 0) return out;
    api().copy_to_device(out.get(), bytes.data(), out.size_bytes(), stream_.get());
    synchronize();
    return out;
  }
  template <class T>
  std::vector<T> download(const DeviceArray<T>& values) {
    std::vector<T> out(static_cast<size_t>(values.size()));
    if (!out.empty()) {
      api().copy_to_host(out.data(), values.get(), values.size_bytes(), stream_.get());
    }
    synchronize();
    return out;
  }

  // Scratch of ctx(): of the planned size and poisoned, so that what no kernel wrote shows; or as
  // it was allocated, for compute-sanitizer's initcheck.
  static bool keeps_scratch_fresh() { return std::getenv("FATHOM_FRESH_SCRATCH") != nullptr; }
  void use_workspace(int64_t bytes) {
    workspace_ =
        keeps_scratch_fresh() ? uninitialized<std::byte>(bytes) : poisoned<std::byte>(bytes);
    ctx_.workspace = {workspace_.get(), bytes};
  }

 private:
  // At least one byte, since a buffer cannot be empty.
  template <class T>
  DeviceArray<T> uninitialized(int64_t n) {
    const int64_t bytes = n * static_cast<int64_t>(sizeof(T));
    return {make_buffer(api(), bytes > 0 ? bytes : 1), n};
  }

  DeviceInfo info_;
  Stream stream_;
  ExecContext ctx_;
  DeviceArray<std::byte> workspace_;
};

template <class T>
class CudaTestWithParam : public CudaTest, public testing::WithParamInterface<T> {};

}  // namespace fathom::test
