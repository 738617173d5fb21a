#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check.sh BUNDLE OUT [quick]: correctness on a GPU. The tests of the kernels in six processes (with 100,000 launches
# behind a slow producer), beside them those of whole models and of decode; then compute-sanitizer's four tools side by
# side on small launches of every kernel (docs/kernels/2026-11-30-cuda-correctness.md); a table at the end, the tests' full
# output in OUT. What needs no GPU, the check of the machine code among it, is in ctest. Every part has a limit, together
# 6 minutes; on an H200 with 16 processor cores it takes one and a half. quick: without the sanitizers. SANITIZED: another
# filter for them.
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
  row "$name" "$verdict" $((SECONDS - start)) "$(grep -E '^\[  (PASSED|FAILED)  \]|(ERROR|RACECHECK) SUMMARY' "$out/$name.log" | head -n 2 | tr '\n' ' ')"
  [ $verdict = pass ]
}

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu --format=csv,noheader | tee "$out/gpu.txt"
pids=()
finish() {
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  pids=()
}
# The decoder's tests need the folder that they were built in, and no GPU.
shards=6
for ((shard = 0; shard < shards; ++shard)); do
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard run "kernels$shard" timeout 200 \
    "$bundle/bin/fathom_backends_cuda_test" --gtest_filter='-*Sass*:*CodePlaces*' &
  pids+=($!)
done
run models timeout 120 "$bundle/bin/fathom_model_cuda_test" &
pids+=($!)
run decode timeout 100 "$bundle/bin/fathom_decode_cuda_test" &
pids+=($!)
finish
if [ "${3:-}" != quick ]; then
  # The sanitizers slow kernels by two orders of magnitude: the small cases of every op.
  small='Sanitized/*:SampleCuda.Sanitized*:*CudaMatmul.NonFinite*:Cases/*PaddedRows*'
  for tool in memcheck racecheck initcheck synccheck; do
    options=(--tool "$tool" --error-exitcode 1)
    settings=(_=)
    case $tool in
      # It credits an arrival at a barrier to its own thread, initcheck has nothing to find in scratch that is poisoned,
      # and synccheck has no room for barriers of more than 8 blocks of a cluster.
      racecheck) settings=(FATHOM_ALL_LANES_ARRIVE=1) ;;
      initcheck) settings=(FATHOM_FRESH_SCRATCH=1) ;;
      synccheck) settings=(FATHOM_SMALL_CLUSTERS=1) ;;
    esac
    run "$tool" env "${settings[@]}" timeout 120 compute-sanitizer "${options[@]}" \
      "$bundle/bin/fathom_backends_cuda_test" --gtest_filter="${SANITIZED:-$small}" &
    pids+=($!)
  done
  finish
fi
exit $failed
