#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# replay.sh BUNDLE OUT [PARTS...]: attribution with another engine's attention (docs/replay.md). First its tests, then
# `attribute` at 1 and 1,641 tokens with the variant "seed" for one sequence and for four, with the production kernel (also
# at 1 and 32,768: far_b1), and what changing a knob does; PARTS are some of tests seed_b1 seed_b4 production_b1 far_b1
# confirm_b1 confirm_b4 (all if absent).
# A table at the end; OUT gets a JSON document and a page of each part. REPLAY_SECONDS is the time to measure of a part.
set -uo pipefail
bundle=$(realpath "${1:?usage: scripts/gpu/replay.sh BUNDLE OUT [PARTS...]}")
mkdir -p "${2:?usage: scripts/gpu/replay.sh BUNDLE OUT [PARTS...]}"
out=$(realpath "$2")
shift 2
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(tests seed_b1 seed_b4 production_b1 far_b1 confirm_b1 confirm_b4)
# CUPTI reads its tables of counters from the folder that it lies in: a toolkit's comes before the bundle's copy.
cupti=$(dirname "$(find /usr/local/cuda/ /opt -name 'libnvperf_host.so' -print -quit 2>/dev/null)")
export LD_LIBRARY_PATH=$cupti:$bundle/lib
seconds=${REPLAY_SECONDS:-20}
model=${TMPDIR:-/tmp}/fathom_replay.gguf
[ -s "$model" ] || "$bundle/bin/fathom" synth "$model" --shape qwen2.5-7b --type q4_k_m -q || exit 1
failed=0

attribute() { # part, arguments
  local part=$1 depths=1,1641
  shift
  case $part in far_*) depths=1,32768 ;; esac
  timeout "${PART_SECONDS:-150}" "$bundle/bin/fathom" attribute "$model" --backend cuda --depths "$depths" --fill synthetic \
    --seconds "$seconds" --json --html "$out/replay_$part.html" "$@" >"$out/replay_$part.json" 2>"$out/replay_$part.err"
  local rc=$?
  echo "$part: exit $rc" | tee -a "$out/replay.txt"
  tail -n 4 "$out/replay_$part.err" | tee -a "$out/replay.txt"
}

knobs=(--confirm splits=64 --confirm splits=128 --confirm staging=16 --confirm values=1 --confirm staging=16,values=1
  --confirm splits=8,warps=8,window=256 --confirm variant=production)
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu --format=csv,noheader >"$out/replay.txt"
[ ! -f "$bundle/COMMIT" ] || echo "commit $(cat "$bundle/COMMIT")" >>"$out/replay.txt"
for part in "${parts[@]}"; do
  case $part in
    tests) timeout 90 "$bundle/bin/fathom_backends_cuda_test" --gtest_filter='CudaAttnSeed.*:LaunchWatch.*' --gtest_brief=1 |
      tail -n 1 | tee -a "$out/replay.txt" || failed=1 ;;
    seed_b*) attribute "$part" --variant seed -npl "${part#seed_b}" ;;
    production_b* | far_b*) attribute "$part" -npl "${part##*_b}" ;;
    confirm_b*) attribute "$part" --variant seed -npl "${part#confirm_b}" "${knobs[@]}" ;;
    *) echo "replay.sh: found '$part'" >&2 && exit 2 ;;
  esac
done
python3 "$bundle/scripts/gpu/replay_table.py" "$out"/replay_*.json | tee -a "$out/replay.txt"
exit $failed
