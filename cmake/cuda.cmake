# SPDX-License-Identifier: Apache-2.0
# FATHOM_CUDA=AUTO uses a CUDA compiler if there is one, ON fails without it, OFF never looks.
set(FATHOM_WITH_CUDA OFF)
if(NOT FATHOM_CUDA STREQUAL "OFF")
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(FATHOM_WITH_CUDA ON)
  elseif(FATHOM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FATHOM_CUDA=ON, but no CUDA compiler was found: install CUDA 13.0 or put nvcc on PATH")
  endif()
endif()
if(FATHOM_WITH_CUDA)
  message(STATUS "CUDA backend: ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
else()
  message(STATUS "CUDA backend: OFF")
endif()

# The flags of device code. CMake 3.25 knows no C++ above 17 for nvcc and drops CUDA_STANDARD 20 without a word, so
# the language level is an option here; kernels/common/cxx20.cuh stops the build should it ever get lost.
function(fathom_cuda_options target)
  target_compile_options(
    ${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra;-Werror=all-warnings>")
  set_target_properties(${target} PROPERTIES CUDA_STANDARD_REQUIRED OFF POSITION_INDEPENDENT_CODE ON)
endfunction()
