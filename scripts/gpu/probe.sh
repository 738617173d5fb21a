#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# probe.sh BUNDLE OUT: the seed's attention on a GPU. First whether it is right (its tests, the sanitizer on a small
# case), then its freedom map at the Qwen2.5-7B shape, then its times beside the production kernel's. OUT gets
# probe_*.json and probe.txt. Every part has its own time limit; what fails is said at the end.
set -uo pipefail
bundle=$(realpath "${1:?usage: scripts/gpu/probe.sh BUNDLE OUT}")
mkdir -p "${2:?usage: scripts/gpu/probe.sh BUNDLE OUT}"
out=$(realpath "$2")
export LD_LIBRARY_PATH=$bundle/lib
fathom=$bundle/bin/fathom
shape=(--backend cuda --shape qwen2.5-7b)
failed=()
part() { # part NAME SECONDS COMMAND...; its output goes to $to where that is set
  local name=$1 limit=$2 start=$SECONDS
  shift 2
  echo "== $name"
  if [ -n "${to:-}" ]; then
    timeout "$limit" "$@" >"$to" || failed+=("$name: $?")
  else
    timeout "$limit" "$@" || failed+=("$name: $?")
  fi
  echo "-- $name took $((SECONDS - start)) s"
}
clocks() { nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu --format=csv,noheader; }
{
  [ ! -f "$bundle/COMMIT" ] || echo "commit $(cat "$bundle/COMMIT")"
  clocks
  part tests 40 "$bundle/bin/fathom_backends_cuda_test" --gtest_filter='CudaAttnSeed.*:LaunchWatch.*' --gtest_brief=1
  part sanitizer 40 compute-sanitizer --error-exitcode 9 "$fathom" probe attn --backend cuda --shape smollm2-135m \
    -d 1,70 -b 2 --no-times -q --sweep staging=4,16 values=0,1 warps=1,8 window=4,256
  to="$out/probe_freedom.json" part classes 60 "$fathom" probe attn "${shape[@]}" -b 1,4 -d 1,29,52,512,1641 \
    --neighbours --no-times -q --json --sweep splits=16,32,64,128 staging=4,8,16 values=0,1 warps=1,4,8 window=4,16,256
  to="$out/probe_times.json" part times 60 "$fathom" probe attn "${shape[@]}" -b 1,4 -d 1,29,52,512,1641 -q --json \
    -r 9 --sweep splits=16,32,64,128 staging=4,8,16 values=0,1
  to="$out/probe_variants.json" part variants 60 "$fathom" probe attn "${shape[@]}" -b 1,4 -d 1,512,1641 -q --json \
    -r 15 --variant seed --variant production --variant seed:values=1 --variant seed:staging=16,values=1 \
    --variant seed:splits=128 --variant seed:splits=8,warps=8,window=256 \
    --variant seed:splits=8,staging=16,values=1,warps=8,window=256
  part engine 30 "$bundle/bin/fathom_model_cuda_test" --gtest_filter='*AVariantOfAttention*' --gtest_brief=1
  for op in embed norm_qkv_rope_append attn out_proj_residual norm_gate_up_act down_proj_residual sample norm_head; do
    part "$op" 25 "$fathom" probe "$op" "${shape[@]}" -b 4 -d 512 -r 5 -q
  done
  clocks
  [ ${#failed[@]} = 0 ] || printf 'FAILED %s\n' "${failed[@]}"
} 2>&1 | tee "$out/probe.txt"
! grep -q '^FAILED' "$out/probe.txt"
