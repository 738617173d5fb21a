#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds llama.cpp, the peer of bench/peers and tools/oracles, for this machine (Release, GGML_NATIVE=ON) from the
# source distribution of llama-cpp-python 0.3.36 on PyPI, once, and prints the build folder on stdout.
# --force builds again; --sources builds nothing and prints the folder of the sources. build_line.txt in the build
# folder records how it was built.
set -eu

version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
targets="llama llama-bench llama-completion llama-perplexity llama-quantize llama-tokenize"
flags="-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_TESTS=OFF
  -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_MTMD=OFF"

cache="${FATHOM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fathom}/peer"
sdist="$cache/llama_cpp_python-$version.tar.gz"
source_dir="$cache/llama_cpp_python-$version/vendor/llama.cpp"
# Built for this CPU: a cache that moves to another one must not serve it.
cpu=$(grep -m1 -E '^(flags|Features)' /proc/cpuinfo | sha256sum | cut -c1-8)
build_dir="$cache/llama.cpp-$version-$cpu"

fail() { echo "get_peer.sh: $1" >&2; exit "${2:-1}"; }

[ "${1:-}" = --force ] && rm -rf "$build_dir"
if [ "${1:-}" != --sources ] && [ -f "$build_dir/build_line.txt" ]; then
  echo "$build_dir"
  exit 0
fi
for tool in $([ "${1:-}" = --sources ] || echo cmake ninja c++) python3 sha256sum; do
  command -v "$tool" >/dev/null || fail "found no $tool; scripts/setup.sh installs it" 3
done

mkdir -p "$cache"
if [ ! -f "$sdist" ]; then
  python=python3
  [ -x "$(dirname "$0")/../.venv/bin/python" ] && python="$(dirname "$0")/../.venv/bin/python"
  "$python" -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$cache" \
    "llama-cpp-python==$version" >&2 || fail "could not download llama-cpp-python $version from PyPI" 3
fi
found=$(sha256sum "$sdist" | cut -d' ' -f1)
[ "$found" = "$sha256" ] || fail "$sdist has sha256 $found, expected $sha256; remove it and try again"
[ -d "$source_dir" ] || tar -xzf "$sdist" -C "$cache"
if [ "${1:-}" = --sources ]; then
  echo "$source_dir"
  exit 0
fi

# shellcheck disable=SC2086  # flags and targets are lists of words
{
  cmake -G Ninja -S "$source_dir" -B "$build_dir" $flags
  cmake --build "$build_dir" --target $targets
} >"$cache/build.log" 2>&1 || fail "the build failed; $cache/build.log says why"

{
  echo "llama.cpp of llama-cpp-python $version (sha256 $sha256)"
  echo "cmake -G Ninja" "$flags"
  echo "cmake --build --target $targets"
  c++ --version | head -1
  grep -m1 'model name' /proc/cpuinfo || true
} >"$build_dir/build_line.txt"
echo "$build_dir"
