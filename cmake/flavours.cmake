# SPDX-License-Identifier: Apache-2.0
# Which test programs a sanitizer flavour builds and runs. A label of this table is added to every test program
# whose name matches; target tests_<label> builds them, `ctest -L <label>` runs them.
set(FATHOM_FLAVOUR_LABELS memory threads cuda)
# Address and undefined-behaviour sanitizers: whatever parses bytes or computes addresses.
set(FATHOM_LABEL_memory "^fathom_(base|tensor|device|gguf|text|cache|kernels.*)_test$")
# Thread sanitizer: whatever runs on more than one thread. Other tests join with LABEL threads. Those of the products
# (kernels_quant) and of sample, which take most time there, are of one thread.
set(FATHOM_LABEL_threads "^fathom_(base|engine|kernels_(attn|embed|norm_.*|.*_proj_residual))_test$")
# What the compile-only CUDA flavour builds and runs; its programs say LABEL cuda.
set(FATHOM_LABEL_cuda "^fathom_.*_cuda_test$")

foreach(label IN LISTS FATHOM_FLAVOUR_LABELS)
  if(FATHOM_TESTS)
    add_custom_target(tests_${label})
  endif()
endforeach()

# Appends to <labels_var> the flavours of a test program and makes it part of tests_<label>.
function(fathom_join_flavours target labels_var)
  set(labels ${${labels_var}})
  foreach(label IN LISTS FATHOM_FLAVOUR_LABELS)
    if(target MATCHES "${FATHOM_LABEL_${label}}")
      list(APPEND labels ${label})
    endif()
    if(label IN_LIST labels)
      add_dependencies(tests_${label} ${target})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES labels)
  set(${labels_var} ${labels} PARENT_SCOPE)
endfunction()
