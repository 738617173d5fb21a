// SPDX-License-Identifier: Apache-2.0
// Included by every .cu file: CMake 3.25 with nvcc 13 falls back to C++17 silently when asked for
// C++20 in its own way (cmake/cuda.cmake).
#pragma once

static_assert(__cplusplus >= 202002L, "CUDA code is C++20: compile it with -std=c++20");
