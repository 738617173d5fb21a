#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# trace.sh BUNDLE OUT [MODEL...]: what can be watched on a GPU. Each way of watching in a process of its own, on a tiny
# model and on each MODEL; then what tracing costs a step. A table at the end, the tests' full output in OUT, with a
# recorded stream of the tiny model's kernels as the fixtures of tests/fixtures/traces are.
set -uo pipefail
bundle=$(realpath "${1:?usage: scripts/gpu/trace.sh BUNDLE OUT [MODEL...]}")
mkdir -p "${2:?usage: scripts/gpu/trace.sh BUNDLE OUT [MODEL...]}"
out=$(realpath "$2")
shift 2
# CUPTI reads its tables of counters from the folder that it lies in: a toolkit's comes before the bundle's copy.
cupti=$(dirname "$(find /usr/local/cuda/ /opt -name 'libnvperf_host.so' -print -quit 2>/dev/null)")
export LD_LIBRARY_PATH=$cupti:$bundle/lib
: >"$out/trace.txt"
failed=0

group() { # model's name, filter
  local log="$out/$1.${2//[^A-Za-z]/}.log" verdict=pass start=$SECONDS
  timeout "${GROUP_SECONDS:-90}" "$bundle/bin/fathom_trace_cuda_test" --gtest_filter="$2" >"$log" 2>&1 || verdict=fail
  [ $verdict = pass ] || failed=1
  printf '%-12s %-40s %-5s %3d s  %s\n' "$1" "$2" "$verdict" $((SECONDS - start)) \
    "$(grep -E '^us a|^[0-9]+ kernels a step|^DRAM bytes' "$log" | tr '\n' ' ')" | tee -a "$out/trace.txt"
}

for model in '' "$@"; do
  name=tiny
  unset FATHOM_TRACE_MODEL FATHOM_TRACE_RECORD
  if [ -n "$model" ]; then
    name=$(basename "$model" .gguf)
    export FATHOM_TRACE_MODEL=$model
  else
    export FATHOM_TRACE_RECORD=$out/records.json
  fi
  group "$name" 'CudaTrace.*-*TimeOf*'
  group "$name" 'CudaCounters.*'
  group "$name" 'CudaStalls.*'
  group "$name" 'CudaUntraced.TimeOfAStep'
  group "$name" 'CudaUntraced.TimeOfAStepGraphByGraph'
  group "$name" 'CudaTrace.TimeOfAStepKernelByKernel'
done
group tiny 'CudaUntraced.AnotherSubscriberIsNamed'
exit $failed
