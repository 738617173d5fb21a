#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# offline.sh PACK OUT WHAT [arguments of targets.py or peers.py]: performance targets on a machine without network, with
# what bench/pack.sh collected; two cores for each model, models side by side. WHAT is
#   formats       kernel tests, then targets.py: every format's product, depth, reserved cache
#   native|vnni   peers.py against llama.cpp built for this CPU, or for AVX-512 VNNI without AMX
# The pack holds these scripts too, so that PACK/bench/offline.sh needs no tree; results carry the commit of the pack.
# Work files stay in ${TMPDIR:-/tmp}/fathom_offline, so that a later call builds nothing again.
set -euo pipefail

[ $# -ge 3 ] || { echo "usage: offline.sh PACK OUT formats|native|vnni [arguments]" >&2 && exit 2; }
bench=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
pack=$(realpath "$1") out=$(realpath "$2") what=$3
shift 3
[ -s "$pack/COMMIT" ] || { echo "offline.sh: found no $pack/COMMIT; bench/pack.sh $pack makes the pack" >&2 && exit 2; }
commit=$(<"$pack/COMMIT")
export LD_LIBRARY_PATH=$pack/lib
work=${TMPDIR:-/tmp}/fathom_offline
mkdir -p "$work/models" "$out"
fathom=$pack/bin/fathom

synth() { [ -s "$work/models/$3" ] || "$fathom" synth "$work/models/$3" --shape "$1" --type "$2" >/dev/null 2>&1; }
synth smollm2-135m q4_1 smollm2-135m.gguf
for type in q4_k_m q6_k q8_0; do synth qwen2.5-0.5b "$type" "qwen2.5-0.5b-$type.gguf"; done

build_peer() { # name, first line of build_line.txt, cmake flags
  local build=$work/$1 common="-DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF -DLLAMA_BUILD_SERVER=OFF \
-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF $3"
  [ ! -s "$build/build_line.txt" ] || return 0
  [ -d "$work/llama.cpp" ] || tar -C "$work" -xJf "$pack/llama.cpp.tar.xz"
  # shellcheck disable=SC2086  # flags are a list of words
  { cmake -G Ninja -S "$work/llama.cpp" -B "$build" $common &&
    cmake --build "$build" --target llama-bench llama-completion; } >"$work/$1.log" 2>&1
  echo "llama.cpp of llama-cpp-python 0.3.36, $2 ($(c++ --version | head -n 1): cmake $common)" >"$build/build_line.txt"
}

case $what in
  formats)
    "$pack/bin/fathom_kernels_quant_test" | tail -n 1
    "$pack/bin/fathom_kernels_attn_test" | tail -n 1
    taskset -c 0,1 python3 "$bench/targets.py" --commit "$commit" --fathom "$fathom" \
      --matmul-bench "$pack/bin/matmul_bench" --models-dir "$work/models" --out "$out" "$@"
    exit
    ;;
  native) build_peer native "native" "-DGGML_NATIVE=ON" ;;
  vnni)
    build_peer vnni "AVX-512 VNNI without AMX" "-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON \
-DGGML_BMI2=ON -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON"
    ;;
  *) echo "offline.sh: found '$what', expected formats, native or vnni" >&2 && exit 2 ;;
esac

core=0
for model in smollm2-135m-q4_1 qwen2.5-0.5b-q4_k_m qwen2.5-0.5b-q6_k qwen2.5-0.5b-q8_0; do
  taskset -c "$core,$((core + 1))" python3 "$bench/peers/peers.py" --commit "$commit" --fathom "$fathom" \
    --peer-dir "$work/$what" --models-dir "$work/models" --out "$out" --models "$model" "$@" &
  core=$((core + 2))
done
wait
