# SPDX-License-Identifier: Apache-2.0
# Warnings are errors, at top level only.
if(PROJECT_IS_TOP_LEVEL)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror;-Wshadow;-Wnon-virtual-dtor;-Wno-psabi>")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 sees overlapping copies in plain std::string concatenation (GCC bug 105651).
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>")
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # std::stable_sort of libstdc++ 12 calls what it deprecates itself.
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-deprecated-declarations>")
  endif()
endif()
