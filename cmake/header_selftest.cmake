# SPDX-License-Identifier: Apache-2.0
# Each header compiled alone: a header that leans on what its users include first fails here. One with a source of its
# name is compiled by that, which includes it first (tools/check_layers.py, which wants #pragma once too). Built by the
# ctest `header_selftest`, never by `all`; unchanged headers are not compiled again. Device headers (.cuh) are nvcc's.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
     ${PROJECT_SOURCE_DIR}/src/*.hpp ${PROJECT_SOURCE_DIR}/include/*.hpp)
list(FILTER headers EXCLUDE REGEX "^src/backends/cuda/")

set(sources "")
foreach(header IN LISTS headers)
  string(REGEX REPLACE "hpp$" "cpp" own_source ${header})
  if(EXISTS ${PROJECT_SOURCE_DIR}/${own_source})
    continue()
  endif()
  string(REGEX REPLACE "^(src|include)/" "" spelled ${header})
  set(source ${PROJECT_BINARY_DIR}/header_selftest/${header}.cpp)
  set(content "#include \"${spelled}\"\n#include \"${spelled}\"  // and twice\n")
  file(CONFIGURE OUTPUT ${source} CONTENT "${content}" @ONLY)
  list(APPEND sources ${source})
endforeach()

add_library(fathom_header_selftest OBJECT EXCLUDE_FROM_ALL ${sources})
target_include_directories(fathom_header_selftest PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(fathom_header_selftest PRIVATE -O0)
target_link_libraries(fathom_header_selftest PRIVATE fmt::fmt nlohmann_json::nlohmann_json CLI11::CLI11
                                                     spdlog::spdlog fathom_utf8proc Threads::Threads
                                                     $<TARGET_NAME_IF_EXISTS:GTest::gtest>)
add_test(NAME header_selftest
         COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --target fathom_header_selftest)
set_tests_properties(header_selftest PROPERTIES LABELS tree TIMEOUT 900 RUN_SERIAL ON)
