#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# peers.sh BUNDLE OUT [MODELS] [arguments of gpu_peers.py]: Fathom and llama.cpp's CUDA build on the same synthetic models
# (SHAPE-TYPE of fathom synth, comma-separated; qwen2.5-7b-q4_k_m if none is named), in interleaved rounds, with the read
# ceiling between them: bench/peers/gpu_peers.py says how. OUT gets peers_<model>.json and its rows as summary.json. In the tree the
# former belongs into bench/results/h200/; then `bench/peers/summarise.py bench/results/h200` and tools/results_table.py.
# Six minutes, and five more for building the peer where BUNDLE has its sources alone. For instance
#   scripts/gpu/peers.sh BUNDLE OUT llama-3.1-8b-q4_k_m,qwen2.5-7b-q8_0 --groups decode prefill --seconds 200
set -euo pipefail
usage="usage: scripts/gpu/peers.sh BUNDLE OUT [MODELS] [arguments of gpu_peers.py]"
bundle=$(realpath "${1:?$usage}")
mkdir -p "${2:?$usage}"
out=$(realpath "$2") models=${3:-qwen2.5-7b-q4_k_m}
shift $(($# < 3 ? $# : 3))
export LD_LIBRARY_PATH=$bundle/lib
peer=$bundle/peer/llama-peer
[ -s "$peer" ] || [ ! -s "$peer.xz" ] || { xz -dc "$peer.xz" >"$peer.part" && chmod +x "$peer.part" && mv "$peer.part" "$peer"; }
[ -s "$peer" ] || "$bundle/scripts/gpu/build_peer.sh" "$bundle" "$out"
# shellcheck disable=SC2086  # models are a list of words
exec python3 "$bundle/bench/peers/gpu_peers.py" --fathom "$bundle/bin/fathom" --peer "$peer" \
  --models-dir "${TMPDIR:-/tmp}" --out "$out" --commit "$(<"$bundle/COMMIT")" --models ${models//,/ } "$@"
