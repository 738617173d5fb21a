# SPDX-License-Identifier: Apache-2.0
# cmake -DTREE=<build tree> -DWORK=<folder> -DCXX=<compiler> -P check.cmake: installs to a fresh prefix, moves the
# prefix (nothing may depend on where it was), builds the consumer against it and runs consumer and program.
file(REMOVE_RECURSE ${WORK})
function(run)
  execute_process(COMMAND ${ARGV} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
  set(output "${output}" PARENT_SCOPE)
  set(status ${status} PARENT_SCOPE)
endfunction()
function(must)
  run(${ARGV})
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command} ends with ${status}:\n${output}")
  endif()
endfunction()

must(${CMAKE_COMMAND} --install ${TREE} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/prefix)
must(${CMAKE_COMMAND} -G Ninja -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/build -DCMAKE_PREFIX_PATH=${WORK}/prefix
     -DCMAKE_CXX_COMPILER=${CXX})
must(${CMAKE_COMMAND} --build ${WORK}/build)

run(${WORK}/build/consumer ${WORK}/absent.gguf)
if(NOT status EQUAL 1 OR NOT output MATCHES "refused: .*absent.gguf")
  message(FATAL_ERROR "the consumer ends with ${status}, expected 1 and a refusal that names the file:\n${output}")
endif()
if(EXISTS ${WORK}/prefix/bin/fathom)
  run(${WORK}/prefix/bin/fathom --version)
  if(NOT status EQUAL 0 OR NOT output MATCHES "[0-9]+\\.[0-9]+\\.[0-9]+")
    message(FATAL_ERROR "the installed program ends with ${status}:\n${output}")
  endif()
endif()
