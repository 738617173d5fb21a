# SPDX-License-Identifier: Apache-2.0
# fathom_python_test(<name> SCRIPT <file> [ARGS ...] [NEEDS numpy ...] [LABELS ...]): a Python check as a ctest.
# Python is looked for when the test runs (tools/python_test.sh), so a build without it works; the check then skips
# with a message, and fails where CI is set.
function(fathom_python_test name)
  cmake_parse_arguments(ARG "" "SCRIPT" "ARGS;NEEDS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS tree)
  endif()
  list(JOIN ARG_NEEDS " " needs)
  add_test(NAME ${name}
           COMMAND ${PROJECT_SOURCE_DIR}/tools/python_test.sh "${needs}" ${ARG_SCRIPT} ${ARG_ARGS}
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" SKIP_RETURN_CODE 77 TIMEOUT 600)
endfunction()
