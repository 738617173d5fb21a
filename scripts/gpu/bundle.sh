#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bundle.sh FOLDER: what the scripts beside this one need on a GPU machine without a compiler or packages: the programs
# of build/cuda with the libraries they load (the C and C++ runtimes and the driver excepted), these scripts, and the
# commit. FOLDER itself, when it lies in the tree, does not make the commit dirty. FOLDER/peer is pack_peer.sh's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

out=${1:?usage: scripts/gpu/bundle.sh FOLDER}
rm -rf "${out:?}/bin" "${out:?}/lib"
mkdir -p "$out/bin" "$out/lib"
programs=(fathom)
for program in fathom_backends_cuda_test fathom_model_cuda_test fathom_decode_cuda_test fathom_trace_cuda_test attn_cuda_bench; do # for check.sh, trace.sh and attn.sh alone
  [ ! -x "build/cuda/$program" ] || programs+=("$program")
done
for program in "${programs[@]}"; do
  cp "build/cuda/$program" "$out/bin/"
  ldd "build/cuda/$program"
done | awk '/=> \// && $1 !~ /^(libc|libm|libgcc_s|libstdc\+\+|libcuda)\.so/ {print $3}' | sort -u | xargs cp -L -t "$out/lib"
cp build/cuda/libfathom_cuda.so "$out/bin/" # searched beside the program
strip "$out"/bin/* "$out"/lib/*
rm -rf "$out/scripts" "$out/bench"
mkdir -p "$out/scripts/gpu" "$out/bench/peers"
cp scripts/gpu/*.sh scripts/gpu/*.py "$out/scripts/gpu/"
cp bench/peers/*.py "$out/bench/peers/"
dirty=
[ -z "$(git status --porcelain --untracked-files=no -- . ":!bench/results")" ] || dirty=-dirty
echo "$(git rev-parse --short=12 HEAD)$dirty" >"$out/COMMIT"
du -sh "$out"
