#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pack.sh FOLDER: collects what bench/offline.sh needs on a machine without network: the programs of build/cpu with the
# libraries they load (the C and C++ runtimes excepted), the sources of llama.cpp without what a CPU build leaves out, the
# measuring scripts, and the commit. FOLDER itself, when it lies in the tree, does not make the commit dirty.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:?usage: bench/pack.sh FOLDER}
peer=$(scripts/get_peer.sh)
sources=$(find "$(dirname "$peer")" -path "*/vendor/llama.cpp" -type d -not -path "*/.git/*" | head -n 1)
rm -rf "${out:?}/bin" "${out:?}/lib" "${out:?}/bench"
mkdir -p "$out/bin" "$out/lib"
for program in fathom matmul_bench attn_bench fathom_kernels_quant_test fathom_kernels_attn_test; do
  cp build/cpu/"$program" "$out/bin/"
  ldd build/cpu/"$program"
done | awk '/=> \// && $1 !~ /^(libc|libm|libgcc_s|libstdc\+\+)\.so/ {print $3}' | sort -u | xargs cp -L -t "$out/lib"
strip "$out"/bin/* "$out"/lib/*
left_out=(models docs media tests examples benches conversion gguf-py tools/ui)
for backend in cann cuda et hexagon hip metal musa opencl openvino sycl virtgpu vulkan webgpu zdnn zendnn; do
  left_out+=("ggml/src/ggml-$backend")
done
tar -C "$(dirname "$sources")" "${left_out[@]/#/--exclude=llama.cpp/}" -cJf "$out/llama.cpp.tar.xz" llama.cpp
mkdir -p "$out/bench/peers"
cp bench/*.py bench/offline.sh "$out/bench/"
cp bench/peers/*.py "$out/bench/peers/"
dirty=
git diff --quiet HEAD -- . ":!bench/results" || dirty=-dirty
echo "$(git rev-parse --short=12 HEAD)$dirty" >"$out/COMMIT"
du -sh "$out"
