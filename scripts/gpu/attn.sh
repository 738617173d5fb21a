#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attn.sh BUNDLE OUT: the time of attention in a chain of launches (src/backends/cuda/attn_bench.cpp) beside the read
# ceiling, with the clocks before and after; OUT gets attn.json and attn.txt.
set -euo pipefail
bundle=$(realpath "${1:?usage: scripts/gpu/attn.sh BUNDLE OUT}")
mkdir -p "${2:?usage: scripts/gpu/attn.sh BUNDLE OUT}"
out=$(realpath "$2")
export LD_LIBRARY_PATH=$bundle/lib
clocks() { nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu --format=csv,noheader; }
{
  [ ! -f "$bundle/COMMIT" ] || echo "commit $(cat "$bundle/COMMIT")"
  clocks
  timeout 120 "$bundle/bin/attn_cuda_bench" "$out/attn.json"
  clocks
} | tee "$out/attn.txt"
