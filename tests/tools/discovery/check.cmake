# SPDX-License-Identifier: Apache-2.0
# cmake -DBUILD=<folder> -DCXX=<compiler> -P check.cmake: a failure beside a skip must be red, a skip must be visible
# as one, and both labels must arrive.
execute_process(COMMAND ${CMAKE_COMMAND} -G Ninja -S ${CMAKE_CURRENT_LIST_DIR} -B ${BUILD} -DCMAKE_CXX_COMPILER=${CXX}
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_CTEST_COMMAND} --no-tests=error -L unit -L threads WORKING_DIRECTORY ${BUILD}
                OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
message("${output}")
if(status EQUAL 0)
  message(FATAL_ERROR "a failing case beside a skipped one passed")
endif()
foreach(expected "1 tests failed out of 3" "Sample.Skips \\(Skipped\\)" "Sample.Fails \\(Failed\\)")
  if(NOT output MATCHES "${expected}")
    message(FATAL_ERROR "ctest does not say '${expected}'")
  endif()
endforeach()
