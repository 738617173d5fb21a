// SPDX-License-Identifier: Apache-2.0
// The CUDA library is loaded by name, as the program does it; what needs a GPU skips without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <optional>
#include <vector>

#include "backends/cuda/read_stream.hpp"
#include "base/error.hpp"
#include "device/backend_loader.hpp"
#include "device/owned.hpp"

namespace fathom {
namespace {

const Backend& cuda_backend() { return load_backend("cuda", ""); }

TEST(CudaBackend, LoadsWithoutAGpuAndRefusesMatricesByName) {
  const Backend& backend = cuda_backend();
  EXPECT_STREQ(backend.name, "cuda");
  EXPECT_STRNE(backend.build_id, "");
  EXPECT_EQ(backend.plan_matrix(DType::q4_k, 256, 256, Activations::int8).packed_bytes,
            256 * row_bytes(DType::q4_k, 256));
  try {
    backend.plan_matrix(DType::q2_k, 256, 256, Activations::int8);
    FAIL() << "a matrix was planned without a kernel";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), testing::HasSubstr("Q2_K"));
  }
  EXPECT_THROW(backend.plan_matrix(DType::q4_k, 256, 256, Activations::f32), Error);
}

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    try {
      info_ = api_.info();
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::unavailable) << error.what();
      GTEST_SKIP() << error.what();
    }
  }
  const DeviceApi& api_ = *cuda_backend().device;
  DeviceInfo info_;
};

TEST_F(CudaDevice, DescribesItself) {
  EXPECT_THAT(info_.isa, testing::StartsWith("sm_"));
  EXPECT_GT(info_.compute_units, 0);
  EXPECT_GT(info_.total_bytes, int64_t{1} << 30);
  EXPECT_LE(info_.free_bytes, info_.total_bytes);
}

TEST_F(CudaDevice, RefusesMoreMemoryThanItHas) {
  try {
    make_buffer(api_, info_.total_bytes * 2);
    FAIL() << "twice the memory was handed out";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  }
  EXPECT_TRUE(make_buffer(api_, 256)) << "the refusal must not stick to the device";
}

TEST_F(CudaDevice, ReadStreamSumsEveryWordEagerlyAndInAGraph) {
  const Stream stream = make_stream(api_);
  // Around one thread, warp, block and grid, and an odd large one.
  for (const int64_t n_vectors : {1, 31, 33, 511, 513, 16385, 1000003}) {
    std::vector<uint64_t> words(static_cast<size_t>(2 * n_vectors));
    std::iota(words.begin(), words.end(), uint64_t{0x123456789});
    const uint64_t expected = std::accumulate(words.begin(), words.end(), uint64_t{0});
    const int64_t bytes = 16 * n_vectors;
    const Buffer data = make_buffer(api_, bytes);
    const Buffer sum = make_buffer(api_, 8);
    const uint64_t zero = 0;
    api_.copy_to_device(data.get().data, words.data(), bytes, stream.get());
    api_.copy_to_device(sum.get().data, &zero, 8, stream.get());
    const cuda::ReadStreamArgs args = {data.get().data, bytes,
                                       reinterpret_cast<uint64_t*>(sum.get().data)};
    cuda::read_stream(args, stream.get());
    const Graph graph = capture_graph(api_, stream, [&] { cuda::read_stream(args, stream.get()); });
    api_.graph_launch(graph.get(), stream.get());
    uint64_t found = 0;
    api_.copy_to_host(&found, sum.get().data, 8, stream.get());
    api_.stream_synchronize(stream.get());
    EXPECT_EQ(found, 2 * expected) << n_vectors << " vectors, once eager and once replayed";
  }
}

TEST_F(CudaDevice, EventsMeasureTheReadStream) {
  constexpr int64_t kBytes = int64_t{1} << 28;
  const Stream stream = make_stream(api_);
  const Event start = make_event(api_), stop = make_event(api_);
  const Buffer data = make_buffer(api_, kBytes);
  const Buffer sum = make_buffer(api_, 8);
  const cuda::ReadStreamArgs args = {data.get().data, kBytes,
                                     reinterpret_cast<uint64_t*>(sum.get().data)};
  cuda::read_stream(args, stream.get());
  api_.event_record(start.get(), stream.get());
  cuda::read_stream(args, stream.get());
  api_.event_record(stop.get(), stream.get());
  const double elapsed_us = api_.event_elapsed_us(start.get(), stop.get());
  const double gbps = static_cast<double>(kBytes) / elapsed_us * 1e-3;
  EXPECT_GT(gbps, 50) << "slower than any GPU that this is built for";
  EXPECT_LT(gbps, 20000) << "faster than any memory: the kernel did not run";
  RecordProperty("read_gbps", fmt::format("{:.0f}", gbps));
}

// Every thread of every kind has the exact result, at the fewest passes and the most.
TEST_F(CudaDevice, ArithmeticStreamsAreRight) {
  const Stream stream = make_stream(api_);
  const Buffer right = make_buffer(api_, 8);
  for (const Arithmetic kind : {Arithmetic::f32, Arithmetic::f16_tensor, Arithmetic::int8_tensor}) {
    for (const int64_t passes : {64, 1000, 16384}) {
      const uint64_t zero = 0;
      uint64_t found = 0;
      api_.copy_to_device(right.get().data, &zero, 8, stream.get());
      const ArithmeticWork work = api_.arithmetic_stream(
          kind, passes, reinterpret_cast<uint64_t*>(right.get().data), stream.get());
      api_.copy_to_host(&found, right.get().data, 8, stream.get());
      api_.stream_synchronize(stream.get());
      EXPECT_EQ(found, static_cast<uint64_t>(work.threads)) << static_cast<int>(kind) << passes;
      EXPECT_EQ(work.ops % passes, 0);
    }
    EXPECT_THROW(api_.arithmetic_stream(kind, 63, nullptr, stream.get()), Error);
  }
}

TEST_F(CudaDevice, CaptureOfAFailingBodyLeavesTheStreamUsable) {
  const Stream stream = make_stream(api_);
  EXPECT_THROW(capture_graph(api_, stream, [] { fail(ErrorCode::internal, "body"); }), Error);
  EXPECT_NO_THROW(api_.stream_synchronize(stream.get()));
}

}  // namespace
}  // namespace fathom
