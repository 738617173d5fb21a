#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build_peer.sh BUNDLE OUT: builds llama.cpp with CUDA for sm_90a from what pack_peer.sh put into BUNDLE/peer, where peers.sh
# finds the program, and leaves it in OUT in parts for `pack_peer.sh --keep`. About five minutes on 16 cores. Needs cmake and nvcc.
# With CONFIGURE_ONLY=1 it ends once CMake has found everything.
set -euo pipefail
peer=$(realpath "${1:?usage: scripts/gpu/build_peer.sh BUNDLE OUT}")/peer
mkdir -p "${2:?usage: scripts/gpu/build_peer.sh BUNDLE OUT}"
out=$(realpath "$2")
work=${TMPDIR:-/tmp}/fathom_peer
flags="-DCMAKE_BUILD_TYPE=Release -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90a-real -DGGML_CUDA_NCCL=OFF -DGGML_NATIVE=OFF \
-DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_APP=OFF \
-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF"
generator="Unix Makefiles"
! command -v ninja >/dev/null || generator=Ninja
command -v nvcc >/dev/null || export PATH=/usr/local/cuda/bin:$PATH
mkdir -p "$work"
[ -d "$work/llama.cpp" ] || tar -C "$work" -xJf "$peer/llama.cpp.tar.xz"
start=$SECONDS
# shellcheck disable=SC2086  # flags are a list of words
cmake -G "$generator" -S "$work/llama.cpp" -B "$work/build" $flags >"$out/peer_build.log" 2>&1 ||
  { tail -n 30 "$out/peer_build.log" && exit 1; }
[ -z "${CONFIGURE_ONLY:-}" ] || exit 0
cmake --build "$work/build" --target llama-peer -j "$(nproc)" >>"$out/peer_build.log" 2>&1 ||
  { grep -E -B 2 -A 5 'error|FAILED' "$out/peer_build.log" | head -n 60 && exit 1; }
cp "$work/build/bin/llama-peer" "$peer/llama-peer"
strip "$peer/llama-peer"
{
  echo "llama.cpp of llama-cpp-python 0.3.36, CUDA ($(nvcc --version | tail -n 2 | head -n 1)): cmake $flags"
  "$peer/llama-peer" bench --help 2>&1 | grep -m 1 -i '^build' || true
  ldd "$peer/llama-peer" | awk '/cublas|cudart|gomp/ {print $1, $3}'
} | tee "$peer/build_line.txt" >"$out/peer_build_line.txt"
xz -T0 -3 -c "$peer/llama-peer" | split -b 15M - "$out/llama-peer.xz."
gzip -f "$out/peer_build.log"
echo "peer built in $((SECONDS - start)) s: $(stat -c %s "$peer/llama-peer") bytes, packed $(cat "$out"/llama-peer.xz.* | wc -c)"
