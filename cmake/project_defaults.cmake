# SPDX-License-Identifier: Apache-2.0
# Language level, build type, output folders, sanitizers.
include(GNUInstallDirs)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
# Results are bit-exact across instruction sets, so the compiler may not fuse on its own.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>")

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
endif()

# Programs do not link again when only the code inside libfathom.so changed.
set(CMAKE_LINK_DEPENDS_NO_SHARED ON)

if(FATHOM_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${FATHOM_SANITIZE};-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=${FATHOM_SANITIZE})
  if(FATHOM_SANITIZE MATCHES undefined)
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>")
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Instrumented code confuses this warning of g++ 12; the plain build keeps it as an error.
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-error=maybe-uninitialized>")
  endif()
endif()

# ccache, with paths relative to the checkout, so that presets and clones share what they compile.
find_program(FATHOM_CCACHE ccache)
if(FATHOM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The two kinds of sloppiness are what ccache wants where headers are precompiled; its hash is of their bytes.
  set(settings CCACHE_SLOPPINESS=pch_defines,time_macros)
  if(NOT DEFINED ENV{CCACHE_BASEDIR})
    list(APPEND settings CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1)
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${settings} ${FATHOM_CCACHE})
endif()
