// SPDX-License-Identifier: Apache-2.0
// Kernels whose waits are known, compiled for each architecture that sass_test.cpp covers. The test
// finds instructions by the lines that are marked here.

// One load of a chain waits for the load before it.
extern "C" __global__ void chase(const int* __restrict__ next, int* out, int n) {
  int at = threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    at = next[at];  // chase: load
  }
  out[threadIdx.x] = at;
}

// Two loads in flight, one consumer.
extern "C" __global__ void two_loads(const float* a, const float* b, float* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const float x = a[i];      // two_loads: first
  const float y = b[i * 3];  // two_loads: second
  out[i] = x * y;            // two_loads: consumer
}

// A wait for a copy to shared memory.
extern "C" __global__ void staged(const float4* a, float* out) {
  __shared__ float4 stage[256];
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&stage[threadIdx.x]));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(a + threadIdx.x));
  asm volatile("cp.async.commit_group;");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  out[threadIdx.x] = stage[threadIdx.x].x;
}
