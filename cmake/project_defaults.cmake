# SPDX-License-Identifier: Apache-2.0
# Language level, build type, output folders, sanitizers.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
# Results are bit-exact across instruction sets, so the compiler may not fuse on its own.
add_compile_options(-ffp-contract=off)

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
endif()

if(FATHOM_SANITIZE)
  add_compile_options(-fsanitize=${FATHOM_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${FATHOM_SANITIZE})
  if(FATHOM_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

find_program(FATHOM_CCACHE ccache)
if(FATHOM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FATHOM_CCACHE})
endif()
