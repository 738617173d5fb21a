#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bundle.sh FOLDER: what the scripts beside this one need on a GPU machine without a compiler or packages: the programs
# of build/cuda with the libraries they load (the C and C++ runtimes and the driver excepted).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

out=${1:?usage: scripts/gpu/bundle.sh FOLDER}
rm -rf "${out:?}/bin" "${out:?}/lib"
mkdir -p "$out/bin" "$out/lib"
programs=(fathom fathom_backends_cuda_test fathom_model_cuda_test fathom_decode_cuda_test)
[ ! -x build/cuda/attn_cuda_bench ] || programs+=(attn_cuda_bench) # for attn.sh alone
for program in "${programs[@]}"; do
  cp "build/cuda/$program" "$out/bin/"
  ldd "build/cuda/$program"
done | awk '/=> \// && $1 !~ /^(libc|libm|libgcc_s|libstdc\+\+|libcuda)\.so/ {print $3}' | sort -u | xargs cp -L -t "$out/lib"
cp build/cuda/libfathom_cuda.so "$out/bin/" # searched beside the program
strip "$out"/bin/* "$out"/lib/*
git rev-parse --short=12 HEAD >"$out/COMMIT"
du -sh "$out"
