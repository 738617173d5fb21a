#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench.sh BUNDLE OUT [MODELS] [arguments of gpu_peers.py]: the tests of peers.sh of Fathom alone, and whether a synthetic
# cache costs a step what a real prefill's does (group fill). OUT gets ours_<model>.json and its rows as summary.json; in the
# tree as with peers.sh. Four minutes.
set -euo pipefail
usage="usage: scripts/gpu/bench.sh BUNDLE OUT [MODELS] [arguments of gpu_peers.py]"
bundle=$(realpath "${1:?$usage}")
mkdir -p "${2:?$usage}"
out=$(realpath "$2") models=${3:-qwen2.5-7b-q4_k_m}
shift $(($# < 3 ? $# : 3))
[ $# -gt 0 ] || set -- --groups decode kvq8 prefill batch fill deep
export LD_LIBRARY_PATH=$bundle/lib
# shellcheck disable=SC2086  # models are a list of words
exec python3 "$bundle/bench/peers/gpu_peers.py" --fathom "$bundle/bin/fathom" --models-dir "${TMPDIR:-/tmp}" \
  --out "$out" --commit "$(<"$bundle/COMMIT")" --models ${models//,/ } "$@"
