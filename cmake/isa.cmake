# SPDX-License-Identifier: Apache-2.0
# One object per instruction set: a file named *_<isa>.cpp gets the flags of its set and only that.
# The scalar set is the portable fallback and a check of the others: compile time matters, speed not.
set(FATHOM_ISA_FLAGS_scalar "-O1")
set(FATHOM_ISA_FLAGS_avx2 "-mavx2;-mfma;-mf16c;-mbmi2")
set(FATHOM_ISA_FLAGS_avx512
    "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mavx512vbmi;-mavx2;-mfma;-mf16c;-mbmi2;-mprefer-vector-width=512")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # GCC 12 warns inside its own intrinsics
  list(APPEND FATHOM_ISA_FLAGS_avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
endif()

function(fathom_apply_isa_flags)
  foreach(source IN LISTS ARGN)
    foreach(isa scalar avx2 avx512)
      if(source MATCHES "_${isa}\\.cpp$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${FATHOM_ISA_FLAGS_${isa}}")
      endif()
    endforeach()
  endforeach()
endfunction()
