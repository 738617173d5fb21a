#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check.sh BUNDLE OUT: correctness on a GPU. The tests of the kernels and of whole models, then compute-sanitizer's four
# tools on a part of them; a table at the end, the tests' full output in OUT.
set -uo pipefail
bundle=$(realpath "${1:?usage: scripts/gpu/check.sh BUNDLE OUT}")
mkdir -p "${2:?usage: scripts/gpu/check.sh BUNDLE OUT}"
out=$(realpath "$2")
export LD_LIBRARY_PATH=$bundle/lib
: >"$out/check.txt"
failed=0

row() { printf '%-24s %-5s %4d s  %s\n' "$@" | tee -a "$out/check.txt"; }

run() { # name, command...
  local name=$1 start=$SECONDS verdict=pass
  shift
  "$@" >"$out/$name.log" 2>&1 || verdict=fail
  [ $verdict = pass ] || failed=1
  row "$name" "$verdict" $((SECONDS - start)) "$(grep -E '^\[  (PASSED|FAILED)  \]|ERROR SUMMARY' "$out/$name.log" | head -n 2 | tr '\n' ' ')"
}

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu --format=csv,noheader | tee "$out/gpu.txt"
# The decoders' tests need the folder that they were built in, and no GPU.
run kernels timeout 200 "$bundle/bin/fathom_backends_cuda_test" --gtest_filter='-*Sass*:*CodePlaces*'
run models timeout 200 "$bundle/bin/fathom_model_cuda_test"
run decode timeout 200 "$bundle/bin/fathom_decode_cuda_test"
if [ "${3:-}" != quick ]; then
  # The sanitizers slow kernels by two orders of magnitude: the small cases of every op.
  small='Sanitized/*:SampleCuda.Sanitized*:*CudaMatmul.NonFinite*:Cases/*PaddedRows*:Formats/CudaAttn.EveryHeadDim/*'
  for tool in memcheck racecheck initcheck synccheck; do
    run "$tool" timeout 300 compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$bundle/bin/fathom_backends_cuda_test" --gtest_filter="${SANITIZED:-$small}"
  done
fi
exit $failed
