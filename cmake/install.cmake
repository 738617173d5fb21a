# SPDX-License-Identifier: Apache-2.0
# The library, its public headers, the program, and the package files for find_package(Fathom).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
