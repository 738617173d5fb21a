# SPDX-License-Identifier: Apache-2.0
# fathom_fuzz(<name> SOURCES ... UNITS base gguf ... [CORPUS <folder>]): fuzz_<name>, a libFuzzer program over the
# objects of the named folders, in FATHOM_FUZZERS builds (preset fuzz). Target `fuzzers` builds all;
# scripts/fuzz.sh runs each for a given time.
if(FATHOM_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "FATHOM_FUZZERS=ON needs clang, found ${CMAKE_CXX_COMPILER_ID}: use `cmake --preset fuzz`")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_custom_target(fuzzers)
  file(WRITE ${PROJECT_BINARY_DIR}/fuzz_targets.txt "")
endif()

function(fathom_fuzz name)
  if(NOT FATHOM_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;UNITS" ${ARGN})
  set(target fuzz_${name})
  add_executable(${target} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                                               ${PROJECT_SOURCE_DIR})
  foreach(unit IN LISTS ARG_UNITS)
    target_link_libraries(${target} PRIVATE fathom_${unit})
  endforeach()
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers ${target})
  file(APPEND ${PROJECT_BINARY_DIR}/fuzz_targets.txt "${target} ${ARG_CORPUS}\n")
endfunction()
