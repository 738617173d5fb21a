#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pack_peer.sh FOLDER: puts the peer of peers.sh into FOLDER/peer: the program that was kept, else its sources for
# build_peer.sh. The program is llama.cpp's llama-bench and llama-batched-bench in one (as `llama-peer bench` and
# `llama-peer batched-bench`), so that the CUDA kernels are there once.
# pack_peer.sh --keep OUT: keeps what build_peer.sh left in OUT, so that nothing is built again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage="usage: scripts/gpu/pack_peer.sh [--keep] FOLDER"
kept=${FATHOM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fathom}/peer-cuda
if [ "${1:?$usage}" = --keep ]; then
  from=${2:?$usage}
  mkdir -p "$kept"
  cat "$from"/llama-peer.xz.* >"$kept/llama-peer.xz.part"
  xz -t <"$kept/llama-peer.xz.part"
  mv "$kept/llama-peer.xz.part" "$kept/llama-peer.xz"
  install -m 644 "$from/peer_build_line.txt" "$kept/build_line.txt"
  ls -l "$kept"
  exit
fi
mkdir -p "$1"
out=$(realpath "$1")/peer
rm -rf "$out"
mkdir -p "$out"
if [ -s "$kept/llama-peer.xz" ]; then
  cp "$kept/llama-peer.xz" "$kept/build_line.txt" "$out/"
  exit
fi

sources=$(scripts/get_peer.sh --sources)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
left_out=(models docs media tests examples benches conversion gguf-py pocs app ci requirements skills scripts tools grammars)
for backend in cann cuda et hexagon hip metal musa opencl openvino sycl virtgpu vulkan webgpu zdnn zendnn blas rpc; do
  [ $backend = cuda ] || left_out+=("ggml/src/ggml-$backend")
done
tar -C "$(dirname "$sources")" "${left_out[@]/#/--exclude=llama.cpp/}" -cf - llama.cpp | tar -C "$work" -xf -
mkdir -p "$work/llama.cpp/tools/peer"
cp -r "$sources/tools/llama-bench" "$sources/tools/batched-bench" "$work/llama.cpp/tools/"
cat >"$work/llama.cpp/tools/CMakeLists.txt" <<'CMAKE'
find_package(Threads REQUIRED)
llama_add_compile_flags()
add_subdirectory(batched-bench)
add_subdirectory(llama-bench)
add_executable(llama-peer peer/main.cpp)
target_link_libraries(llama-peer PRIVATE llama-bench-impl llama-batched-bench-impl)
CMAKE
cat >"$work/llama.cpp/tools/peer/main.cpp" <<'CPP'
#include <cstdio>
#include <cstring>

int llama_bench(int argc, char ** argv);
int llama_batched_bench(int argc, char ** argv);

int main(int argc, char ** argv) {
    if (argc > 1 && strcmp(argv[1], "bench") == 0) return llama_bench(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "batched-bench") == 0) return llama_batched_bench(argc - 1, argv + 1);
    fprintf(stderr, "usage: llama-peer bench|batched-bench ...\n");
    return 2;
}
CPP
tar -C "$work" -cJf "$out/llama.cpp.tar.xz" llama.cpp
cp scripts/gpu/build_peer.sh "$out/"
du -sh "$out"
