# SPDX-License-Identifier: Apache-2.0
# How tests are compiled. -O1: g++ takes a third less time than with -O3, and a test's own loops are short.
# At -O1 g++ 12 takes lists of initial values for uninitialised; clang does not know that warning.
set(FATHOM_TEST_OPTIONS $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>
                        $<$<AND:$<CONFIG:Release>,$<COMPILE_LANG_AND_ID:CXX,GNU>>:-Wno-maybe-uninitialized>)

# What most tests include and hardly ever changes, compiled once a build. It belongs to a program without libfathom, so
# that tests compile beside that. Only g++: clang, the second opinion, sees every test without it.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/test_headers.cpp CONTENT "int main() {}\n")
  add_executable(fathom_test_headers EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/generated/test_headers.cpp)
  target_include_directories(fathom_test_headers PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(fathom_test_headers PRIVATE fmt::fmt nlohmann_json::nlohmann_json GTest::gmock GTest::gtest)
  target_compile_options(fathom_test_headers PRIVATE ${FATHOM_TEST_OPTIONS})
  target_precompile_headers(
    fathom_test_headers PRIVATE <fmt/format.h> <gmock/gmock.h> <gtest/gtest.h> <algorithm> <filesystem> <fstream>
    <functional> <map> <random> <regex> <span> <sstream> <string> <vector> ${PROJECT_SOURCE_DIR}/src/base/json.hpp)
endif()
