#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench.sh BUNDLE OUT [SHAPE] [TYPE]: our speed on a GPU, on a synthetic model made there: text at several depths (the
# cache filled synthetically), then prompts. A table at the end, every sample as JSON in OUT.
set -euo pipefail
bundle=$(realpath "${1:?usage: scripts/gpu/bench.sh BUNDLE OUT [SHAPE] [TYPE]}")
mkdir -p "${2:?usage: scripts/gpu/bench.sh BUNDLE OUT [SHAPE] [TYPE]}"
out=$(realpath "$2") shape=${3:-qwen2.5-7b} type=${4:-q4_k_m}
export LD_LIBRARY_PATH=$bundle/lib
model=${TMPDIR:-/tmp}/$shape-$type.gguf
[ -s "$model" ] || "$bundle/bin/fathom" synth "$model" --shape "$shape" --type "$type"
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu --format=csv,noheader | tee "$out/gpu.txt"
bench() { # name, arguments of fathom bench
  local name=$1
  shift
  "$bundle/bin/fathom" bench "$model" --backend cuda -r 5 "$@" -o json >"$out/$shape-$type-$name.json"
  python3 - "$out/$shape-$type-$name.json" <<'PY'
import json, sys
for row in json.load(open(sys.argv[1])):
    print(f"pp {row['n_prompt']:5}  tg {row['n_gen']:4}  depth {row['n_depth']:7}  {row['avg_ts']:9.1f} tok/s +- {row['stddev_ts']:.1f}")
PY
}
bench text -p 0 -n 128 -d "${DEPTHS:-0,1641,4096}" --fill synthetic
bench prompt -p 512 -n 0
