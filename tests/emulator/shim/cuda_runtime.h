// SPDX-License-Identifier: Apache-2.0
// CUDA's keywords and intrinsics for a C++ compiler, as far as the kernels use them. Included
// before every file that is compiled for the emulator, as nvcc does with the header of this name.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/warp.hpp"

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static  // one block runs at a time

using std::max;
using std::min;

inline void __syncthreads() {
  fathom::emulator::barrier_sync(0, fathom::emulator::block_threads(), "__syncthreads");
}
inline int __syncthreads_and(int predicate) {
  static int all;
  __syncthreads();
  all = 1;
  __syncthreads();
  if (!predicate) all = 0;
  __syncthreads();
  return all;
}
inline int __syncthreads_or(int predicate) { return !__syncthreads_and(!predicate); }
inline void __syncwarp() { fathom::emulator::sync_warp(); }
inline void __threadfence() {}

template <class T>
T __shfl_sync(unsigned mask, T value, int from) {
  return fathom::emulator::shuffle("__shfl_sync", mask, value, [&](int) { return from % 32; });
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return fathom::emulator::shuffle("__shfl_xor_sync", mask, value,
                                   [&](int lane) { return lane ^ bits; });
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int distance) {
  return fathom::emulator::shuffle("__shfl_up_sync", mask, value, [&](int lane) {
    return lane < distance ? lane : lane - distance;
  });
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int distance) {
  return fathom::emulator::shuffle("__shfl_down_sync", mask, value, [&](int lane) {
    return lane + distance < 32 ? lane + distance : lane;
  });
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  for (int bits = 1; bits < 32; bits *= 2) value = max(value, __shfl_xor_sync(mask, value, bits));
  return value;
}
inline int __reduce_add_sync(unsigned mask, int value) {
  for (int bits = 1; bits < 32; bits *= 2) value += __shfl_xor_sync(mask, value, bits);
  return value;
}

// The lanes that have the value of this one.
inline unsigned __match_any_sync(unsigned mask, unsigned value) {
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane) {
    same |= unsigned{__shfl_sync(mask, value, lane) == value} << lane;
  }
  return same;
}
inline int __clz(unsigned x) { return std::countl_zero(x); }
inline int __popc(unsigned x) { return std::popcount(x); }

// A fiber gives way nowhere else than where it waits: what others see is whole.
template <class T>
T atomicAdd(T* to, std::type_identity_t<T> value) {
  const T before = *to;
  *to += value;
  return before;
}
template <class T>
T atomicMax(T* to, std::type_identity_t<T> value) {
  const T before = *to;
  if (value > before) *to = value;
  return before;
}
template <class T>
T atomicOr(T* to, std::type_identity_t<T> value) {
  const T before = *to;
  *to |= value;
  return before;
}
template <class T>
T atomicExch(T* to, std::type_identity_t<T> value) {
  const T before = *to;
  *to = value;
  return before;
}
template <class T>
T __ldcv(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
void __stcg(T* to, std::type_identity_t<T> value) {
  *to = value;
}

template <class T>
T __ldg(const T* from) {
  return *from;
}

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(uint64_t{a} * b >> 32);
}
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyintf(x)); }
inline int __float2int_ru(float x) { return static_cast<int>(std::ceil(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }

// Compiled without contraction: each is rounded by itself.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline float __frcp_rn(float a) { return 1.0f / a; }
// The fast ones, nearer than on the device.
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
using std::isfinite;

inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<int8_t>(a >> 8 * i) * static_cast<int8_t>(b >> 8 * i);
  }
  return sum;
}

// Byte i of the result is byte (selector >> 4i) % 8 of the eight bytes of a, then b.
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    out |= static_cast<uint32_t>(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
  }
  return out;
}
