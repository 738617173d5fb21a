// SPDX-License-Identifier: Apache-2.0
// The emulator itself: kernels that work, and each mistake that it is there to find.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "cuda_runtime.h"

#include "cuda_pipeline.h"
#include "emulator/fragments.hpp"
#include "fathom/error.hpp"
#include "kernels/common/cuda_check.cuh"
#include "kernels/common/dynamic_shared.cuh"
#include "kernels/common/mma.cuh"
#include "tests/support/cuda_fixture.hpp"

namespace fathom {
namespace {

using testing::HasSubstr;

class Emulator : public test::CudaTest {
 protected:
  template <class... Params, class... Args>
  void run(void (*kernel)(Params...), unsigned n_threads, size_t shared_bytes, Args... args) {
    cuda::launch(kernel, dim3(1), dim3(n_threads), shared_bytes, ctx().stream.handle, args...);
  }
  // The text of the error that ends the launch.
  template <class... Params, class... Args>
  std::string error_of(void (*kernel)(Params...), Args... args) {
    try {
      run(kernel, 64, 1024, args...);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::device_fault);
      return error.what();
    }
    return "no error";
  }
};

__global__ void reverse(int* values) {
  auto* shared = cuda::dynamic_shared<int>();
  const int i = static_cast<int>(threadIdx.x), n = static_cast<int>(blockDim.x);
  shared[i] = values[i];
  __syncthreads();
  values[i] = shared[n - 1 - i];
}
TEST_F(Emulator, RunsABlockWithSharedMemory) {
  std::vector<int> numbers(96);
  for (int i = 0; i < 96; ++i) numbers[static_cast<size_t>(i)] = i;
  const auto many = upload(numbers);
  run(reverse, 96, 96 * sizeof(int), many.get());
  std::reverse(numbers.begin(), numbers.end());
  EXPECT_EQ(download(many), numbers);
}

__global__ void note_order(std::vector<int>* order) {
  order->push_back(static_cast<int>(threadIdx.x));
}
TEST_F(Emulator, ThreadsHaveAnotherOrderInEachBlock) {
  std::set<std::vector<int>> orders;
  for (int i = 0; i < 4; ++i) {
    std::vector<int> order;
    run(note_order, 64, 0, &order);
    EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), 64u);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 4u);
}

__global__ void product(const uint32_t* a, const uint32_t* b, int* out) {
  const int zeros[4] = {};
  int d[4];
  const uint32_t own[4] = {a[threadIdx.x], a[32 + threadIdx.x], a[64 + threadIdx.x],
                           a[96 + threadIdx.x]};
  cuda::mma_k32<cuda::CodeSign::plus>(d, own, b[threadIdx.x], b[32 + threadIdx.x], zeros);
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + static_cast<unsigned>(i)] = d[i];
}
// By hand: a single 1 in row 9, k 22, is a byte of register 3 of lane (9 % 8) * 4 + 22 % 16 / 4;
// row 9 of the product is then row 22 of b, and stands in lanes 4 to 7 as the second pair.
TEST_F(Emulator, ProductHasTheFragmentsOfPtx) {
  std::vector<uint32_t> a(128, 0), b(64, 0);
  a[3 * 32 + 1 * 4 + 1] = 1u << 16;
  for (uint32_t col = 0; col < 8; ++col) b[32 + col * 4 + 1] = (256 - col) % 256 << 16;  // -col
  const auto out = poisoned<int>(128);
  const auto device_a = upload(a), device_b = upload(b);
  run(product, 32, 0, device_a.get(), device_b.get(), out.get());
  const std::vector<int> got = download(out);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const bool row9 = lane / 4 == 1 && i >= 2;
      EXPECT_EQ(got[static_cast<size_t>(4 * lane + i)], row9 ? -(lane % 4 * 2 + i % 2) : 0) << lane;
    }
  }
}

__global__ void read_unwritten(float* out) {
  out[threadIdx.x] = cuda::dynamic_shared<float>()[threadIdx.x];
}
TEST_F(Emulator, SharedMemoryIsPoisoned) {
  const auto out = upload(std::vector<float>(64, 1.0f));
  run(read_unwritten, 64, 256, out.get());
  for (const float x : download(out)) EXPECT_TRUE(std::isnan(x));
}

// mistake 0: none; 1: no wait; 2: the wait comes after the read; 3: from an odd address; 4: not
// committed
__global__ void copy(const std::byte* from, float* out, int mistake) {
  auto* shared = cuda::dynamic_shared<std::byte>();
  std::byte* to = shared + 16 * threadIdx.x;
  __pipeline_memcpy_async(to, from + 16 * threadIdx.x + (mistake == 3 ? 4 : 0), 16);
  if (mistake != 4) __pipeline_commit();
  if (mistake != 1 && mistake != 2) __pipeline_wait_prior(0);
  out[threadIdx.x] = *reinterpret_cast<const float*>(to);
  if (mistake == 2) __pipeline_wait_prior(0);
}
TEST_F(Emulator, CopiesLandWhenTheyAreWaitedFor) {
  const auto from = upload(std::vector<float>(4 * 65, 2.0f));
  const auto out = poisoned<float>(64);
  const auto* bytes = reinterpret_cast<const std::byte*>(from.get());
  run(copy, 64, 1024, bytes, out.get(), 0);
  for (const float x : download(out)) EXPECT_EQ(x, 2.0f);
  run(copy, 64, 1024, bytes, out.get(), 2);
  for (const float x : download(out)) EXPECT_TRUE(std::isnan(x)) << "read before it was there";
  EXPECT_THAT(error_of(copy, bytes, out.get(), 1), HasSubstr("copies were not waited for"));
  EXPECT_THAT(error_of(copy, bytes, out.get(), 3), HasSubstr("not aligned to 16 bytes"));
  EXPECT_THAT(error_of(copy, bytes, out.get(), 4), HasSubstr("not committed"));
}

__global__ void load_matrix(int offset) {
  uint32_t out[2];
  emulator::load_matrices(out, cuda::dynamic_shared<std::byte>() + offset);
}
TEST_F(Emulator, MatricesAreAligned) {
  EXPECT_EQ(error_of(load_matrix, 16), "no error");
  EXPECT_THAT(error_of(load_matrix, 8), HasSubstr("ldmatrix is not aligned"));
}

__global__ void load_vector(const std::byte* from, float* to) {
  *to = reinterpret_cast<const float4*>(from)->x;
}
TEST_F(Emulator, MisalignedVectorsEndTheProgram) {
  const auto values = upload(std::vector<float>(8, 1.0f));
  const auto* bytes = reinterpret_cast<const std::byte*>(values.get());
  run(load_vector, 32, 0, bytes, values.get());
  EXPECT_DEATH(run(load_vector, 32, 0, bytes + 4, values.get()), "misaligned address");
}

__global__ void one_thread_stays_away() {
  if (threadIdx.x != 5) __syncthreads();
}
__global__ void a_warp_stays_away() {
  if (threadIdx.x < 32) cuda::barrier_sync(1, 64);
}
__global__ void two_sizes() { cuda::barrier_sync(1, threadIdx.x < 32 ? 64 : 96); }
__global__ void one_arrives_twice() {
  if (threadIdx.x < 32) cuda::barrier_arrive(1, 64);
  if (threadIdx.x < 32) cuda::barrier_arrive(1, 64);
}
__global__ void nobody_waits() {
  if (threadIdx.x < 32) cuda::barrier_arrive(2, 64);
}
__global__ void crossed() {  // each warp waits for what the other would say after its own wait
  const int first = threadIdx.x < 32 ? 1 : 2;
  cuda::barrier_sync(first, 64);
  cuda::barrier_arrive(3 - first, 64);
}
__global__ void arrive_and_wait(int* value, int* seen) {
  if (threadIdx.x < 32) {
    value[threadIdx.x] = 7;
    cuda::barrier_arrive(1, 64);
  } else {
    cuda::barrier_sync(1, 64);
    seen[threadIdx.x - 32] = value[threadIdx.x - 32];
  }
}
TEST_F(Emulator, BarriersThatNobodyOpensAreErrors) {
  const auto value = upload(std::vector(32, 0)), seen = upload(std::vector(32, 0));
  for (int i = 0; i < 4; ++i) run(arrive_and_wait, 64, 0, value.get(), seen.get());
  EXPECT_EQ(download(seen), std::vector(32, 7));
  EXPECT_THAT(error_of(one_thread_stays_away), HasSubstr("deadlock"));
  EXPECT_THAT(error_of(a_warp_stays_away), HasSubstr("waits in barrier_sync"));
  EXPECT_THAT(error_of(two_sizes), HasSubstr("a barrier of"));
  EXPECT_THAT(error_of(one_arrives_twice), HasSubstr("arrives twice"));
  EXPECT_THAT(error_of(nobody_waits), HasSubstr("barrier 2 is left with 32 arrivals"));
  EXPECT_THAT(error_of(crossed), HasSubstr("deadlock"));
  run(arrive_and_wait, 64, 0, value.get(), seen.get());  // and nothing of them is left
}

__global__ void lanes_part(int* out) {
  if (threadIdx.x % 2 == 0) {
    *out = __shfl_xor_sync(0xffffffffu, 1, 1);
  } else {
    __syncwarp();
  }
}
__global__ void half_a_mask(int* out) { *out = __shfl_xor_sync(0xffffu, 1, 1); }
TEST_F(Emulator, LanesOfAWarpGoTogether) {
  const auto out = upload(std::vector{0});
  EXPECT_THAT(error_of(lanes_part, out.get()), HasSubstr("lanes of a warp are at"));
  EXPECT_THAT(error_of(half_a_mask, out.get()), HasSubstr("full mask"));
}

__global__ void write_past_the_end() { cuda::dynamic_shared<std::byte>()[1024] = std::byte{1}; }
TEST_F(Emulator, SharedMemoryEndsWhereTheLaunchSays) {
  EXPECT_THAT(error_of(write_past_the_end), HasSubstr("written past the 1024 bytes"));
  EXPECT_THROW(run(a_warp_stays_away, 64, 49 << 10), Error) << "nobody allowed more than 48 KiB";
  EXPECT_THROW(
      cudaFuncSetAttribute(note_order, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10),
      Error);
}

}  // namespace
}  // namespace fathom
