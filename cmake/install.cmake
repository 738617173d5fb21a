# SPDX-License-Identifier: Apache-2.0
# cmake --install: the program, libfathom, the public headers of include/fathom and find_package(Fathom). Backend
# libraries go to lib/fathom, where the loader looks. The program finds libfathom relative to itself.
include(CMakePackageConfigHelpers)

file(RELATIVE_PATH to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
if(TARGET fathom_cli)
  set_target_properties(fathom_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
  install(TARGETS fathom_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET fathom_backend_cuda)
  set_target_properties(fathom_backend_cuda PROPERTIES INSTALL_RPATH "$ORIGIN/..")
  install(TARGETS fathom_backend_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/fathom)
endif()
install(TARGETS fathom EXPORT FathomTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/fathom DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Fathom)
install(EXPORT FathomTargets NAMESPACE Fathom:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/FathomConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/FathomConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/FathomConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/FathomConfig.cmake ${PROJECT_BINARY_DIR}/FathomConfigVersion.cmake
        DESTINATION ${package_dir})
