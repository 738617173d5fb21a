#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_all.sh [item...]: the long checks, before a piece of work is called done. Goes on after a failure and writes
# bench/results/checks/summary.json (which is committed; each item with the commit that it ran on) and one log per item
# below build/checks.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=$(nproc)

ctest_of() { # preset, ctest arguments
  local preset=$1
  shift
  ctest --test-dir "build/$preset" --no-tests=error --no-label-summary --output-on-failure -j "$jobs" "$@" </dev/null
}
whole_build() {
  cmake --preset "$1" >/dev/null && cmake --build --preset "$1"
}

item_cpu() { scripts/test.sh cpu; }
item_long() { ctest_of cpu -L long; }
item_clang() { whole_build clang && ctest_of clang -LE long; }
item_asan() { whole_build cpu-asan && ctest_of cpu-asan -LE 'long|tree'; }
item_tsan() {
  whole_build cpu-tsan || return 1
  local prefix=()
  ! setarch "$(uname -m)" -R true 2>/dev/null || prefix=(setarch "$(uname -m)" -R)
  TSAN_OPTIONS="halt_on_error=1" "${prefix[@]}" ctest --test-dir build/cpu-tsan --no-tests=error \
    --no-label-summary --output-on-failure -j "$jobs" -LE 'long|tree' </dev/null
}
item_cuda() {
  FATHOM_REQUIRE_CUDA=1 FATHOM_CUDA_ARCHITECTURES='80-real;89-real;90a-real;100-real;120-real' scripts/test.sh cuda
}
item_oracle() { whole_build cpu && scripts/check_oracle.sh; }
item_fuzz() { scripts/fuzz.sh 600 each; }

scripts/setup.sh build python clang || exit
[ $# -gt 0 ] || set -- cpu oracle long clang asan tsan cuda fuzz
mkdir -p build/checks bench/results/checks
rows=build/checks/rows.txt
: >"$rows"
failed=0
for item in "$@"; do
  start=$SECONDS
  printf '%-6s ' "$item"
  if "item_$item" >"build/checks/$item.log" 2>&1; then verdict=pass; else verdict=fail; fi
  [ "$verdict" = pass ] || failed=1
  line=$(grep -E 'tests? passed|number_of_executed_units|^perplexity ' "build/checks/$item.log" | tail -n 1 | sed 's/^ *//')
  printf '%s  %4d s  %s\n' "$verdict" $((SECONDS - start)) "$line"
  printf '%s\t%s\t%s\t%s\n' "$item" "$verdict" $((SECONDS - start)) "$line" >>"$rows"
done
python3 - "$rows" bench/results/checks/summary.json <<'PY'
import json, os, platform, sys, time
sys.path.insert(0, "bench/peers")
import results
rows, out = sys.argv[1:]
cpu, commit = results.cpu_info()[0], results.commit_of(".")
machine = {"cpu": cpu, "cores": os.cpu_count(), "system": platform.platform()}
items = {item["id"]: item for item in json.load(open(out))["items"]} if os.path.exists(out) else {}
for line in open(rows):  # an item that did not run now keeps its row, with its own commit
    item = dict(zip(("id", "verdict", "seconds", "closing_line"), line.rstrip("\n").split("\t")))
    items[item["id"]] = {**item, "seconds": int(item["seconds"]), "commit": commit, "date": time.strftime("%Y-%m-%d"),
                         "machine": machine}
with open(out, "w") as file:
    json.dump({"items": list(items.values())}, file, indent=1)
    file.write("\n")
PY
exit $failed
