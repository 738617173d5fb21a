#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test.sh FLAVOUR...: builds and tests each flavour and says what it runs.
#   cpu   everything, with the oracles
#   asan  address and undefined-behaviour sanitizers over what parses bytes or computes addresses; 30 s of fuzzing
#   tsan  thread sanitizer over what runs on more than one thread
#   cuda  compiles the CUDA backend for sm_80 and sm_90a; its GPU tests skip with a message where there is no GPU
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=$(nproc)

say() { printf '\n== %s\n' "$*"; }

run_ctest() { # preset, ctest arguments
  local preset=$1
  shift
  ctest --test-dir "build/$preset" --no-tests=error --no-label-summary --output-on-failure -j "$jobs" "$@" </dev/null |
    tee "build/$preset/ctest.log" | grep -vE '^ *Start +[0-9]+:|Passed +[0-9.]+ sec$'
}

build() { # preset, cmake arguments of the build
  local preset=$1
  shift
  cmake --preset "$preset" >"build/$preset.configure.log" 2>&1 || {
    cat "build/$preset.configure.log"
    return 1
  }
  cmake --build --preset "$preset" "$@"
}

flavour_cpu() {
  say "cpu: every test of the CPU build"
  # Tests need these; where they cannot be had, the tests say so.
  scripts/get_vocab_vectors.sh >/dev/null 2>&1 </dev/null &
  build cpu
  .venv/bin/python tools/report_sizes.py 2>/dev/null || python3 tools/report_sizes.py || true
  run_ctest cpu -LE long
}

flavour_asan() {
  say "asan: tests labelled memory under address and undefined-behaviour sanitizers, then 30 s of fuzzing"
  build cpu-asan --target tests_memory
  scripts/fuzz.sh 30
  ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 run_ctest cpu-asan -L memory
}

flavour_tsan() {
  say "tsan: tests labelled threads under the thread sanitizer"
  build cpu-tsan --target tests_threads
  # g++ 12's runtime cannot map its shadow under strong address randomisation; where it may be switched off, it is.
  local prefix=()
  ! setarch "$(uname -m)" -R true 2>/dev/null || prefix=(setarch "$(uname -m)" -R)
  # Attention meets its threads in the same way whatever the cache's format: one format is enough for the two sweeps
  # that take longest.
  TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1" "${prefix[@]}" \
    "${BASH_SOURCE[0]}" --ctest cpu-tsan -L threads \
    -E 'Attn\.(GroupsOfEverySize|BitsDependOnTheTokenIndexOnly)/(f32|bf16|q8_0|fp8_e4m3)'
}

flavour_cuda() {
  if ! command -v "${CUDACXX:-nvcc}" >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
    say "cuda: SKIPPED, no CUDA compiler on PATH"
    [ -z "${FATHOM_REQUIRE_CUDA:-}" ]
    return
  fi
  say "cuda: the backend library for sm_80 and sm_90a"
  local architectures=${FATHOM_CUDA_ARCHITECTURES:-80-real;90a-real}
  cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES="$architectures" >build/cuda.configure.log 2>&1 || {
    cat build/cuda.configure.log
    return 1
  }
  cmake --build --preset cuda --target tests_cuda
  run_ctest cuda -L cuda
}

if [ "${1:-}" = --ctest ]; then
  shift
  run_ctest "$@"
  exit
fi
[ $# -gt 0 ] || set -- cpu
parts=(build python)
for flavour in "$@"; do
  if ! declare -F "flavour_$flavour" >/dev/null; then
    echo "test: '$flavour' is no flavour, expected cpu, asan, tsan or cuda" >&2
    exit 2
  fi
  [ "$flavour" != asan ] || parts+=(clang)
done
scripts/setup.sh "${parts[@]}"
mkdir -p build
for flavour in "$@"; do
  "flavour_$flavour"
done
