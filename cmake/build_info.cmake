# SPDX-License-Identifier: Apache-2.0
# build/<preset>/generated/fathom_build_info.hpp: version, commit, compiler, flavour. Checked in every build, written
# only when it differs, and included by src/base/build_info.cpp alone: a new commit compiles one file.
set(FATHOM_BUILD_INFO ${PROJECT_BINARY_DIR}/generated/fathom_build_info.hpp)
set(FATHOM_BUILD_INFO_COMMAND
    ${CMAKE_COMMAND} -DOUT=${FATHOM_BUILD_INFO} -DSOURCE_DIR=${PROJECT_SOURCE_DIR} -DVERSION=${PROJECT_VERSION}
    "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" -DBUILD_TYPE=${CMAKE_BUILD_TYPE}
    "-DSANITIZE=${FATHOM_SANITIZE}" "-DCUDA=${CMAKE_CUDA_COMPILER_VERSION}"
    -P ${CMAKE_CURRENT_LIST_DIR}/write_build_info.cmake)
execute_process(COMMAND ${FATHOM_BUILD_INFO_COMMAND} COMMAND_ERROR_IS_FATAL ANY)
add_custom_target(fathom_build_info BYPRODUCTS ${FATHOM_BUILD_INFO} COMMAND ${FATHOM_BUILD_INFO_COMMAND}
                  COMMENT "Looking up version and commit" VERBATIM)
