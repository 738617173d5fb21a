# SPDX-License-Identifier: Apache-2.0
# Warnings are errors, at top level only.
if(PROJECT_IS_TOP_LEVEL)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror;-Wshadow;-Wnon-virtual-dtor;-Wno-psabi>")
endif()
