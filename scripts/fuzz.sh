#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh SECONDS: builds the libFuzzer targets (preset fuzz) and gives each an equal share of SECONDS; with `each`
# behind, SECONDS each. A finding ends the script with the input's path; the corpus grows in build/fuzz/corpus.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=$1
cmake --preset fuzz >/dev/null
if [ ! -s build/fuzz/fuzz_targets.txt ]; then
  echo "fuzz: no target is registered with fathom_fuzz()" >&2
  exit 1
fi
cmake --build --preset fuzz --target fuzzers
n_targets=$(wc -l <build/fuzz/fuzz_targets.txt)
[ "${2:-}" = each ] || seconds=$(((seconds + n_targets - 1) / n_targets))
while read -r target seeds; do
  corpus=build/fuzz/corpus/$target
  mkdir -p "$corpus"
  echo "fuzz: $target for $seconds s"
  if ! build/fuzz/"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$target-" "$corpus" ${seeds:+"$seeds"} >build/fuzz/"$target".log 2>&1 </dev/null; then
    tail -n 40 build/fuzz/"$target".log
    exit 1
  fi
  grep -E 'number_of_executed_units|average_exec_per_sec' build/fuzz/"$target".log | sed 's/^/  /'
done <build/fuzz/fuzz_targets.txt
