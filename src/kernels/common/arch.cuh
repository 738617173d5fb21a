// SPDX-License-Identifier: Apache-2.0
// The one place that asks which architecture device code is compiled for. Below sm_90 the halves of
// programmatic dependence are empty: there a kernel starts when the one before it has ended.
#pragma once

namespace fathom::cuda {

// Products of warpgroups, register counts by warpgroup: code for sm_90a alone.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasWgmma = true;
#else
inline constexpr bool kHasWgmma = false;
#endif

// Returns when all kernels before this one in the stream are complete and visible. The compiler
// moves no load of theirs above it: the asm clobbers memory.
__device__ __forceinline__ void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the stream start as soon as every block has said so or ended.
__device__ __forceinline__ void pdl_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace fathom::cuda
