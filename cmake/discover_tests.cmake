# SPDX-License-Identifier: Apache-2.0
# fathom_discover_tests(<target> <labels>...): one ctest entry per GoogleTest case, found when ctest starts. One
# entry per program would hide a failing case beside a skipped one; tests/tools/discovery proves that this does not.
include(GoogleTest)

function(fathom_discover_tests target)
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120 PROPERTIES TIMEOUT 600)
  # A list of labels does not survive the way through gtest_discover_tests, so a second file, read after the
  # first, sets them on the tests that it found.
  set(script ${CMAKE_CURRENT_BINARY_DIR}/${target}_labels.cmake)
  file(WRITE ${script} "foreach(test IN LISTS ${target}_TESTS)
  set_tests_properties(\"\${test}\" PROPERTIES LABELS \"${ARGN}\")
endforeach()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${script})
endfunction()
