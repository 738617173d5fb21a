#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fetches llama.cpp's vocabularies with their test texts and ids, out of the source distribution of llama-cpp-python
# 0.3.36 on PyPI (76 MB), once, and prints their folder: $FATHOM_CACHE/vocab, default ~/.cache/fathom/vocab.
# A copy that get_peer.sh fetched, or one named by FATHOM_LLAMA_SDIST, is used instead of the network.
set -eu

version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
cache="${FATHOM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fathom}"
folder="$cache/vocab"
sdist="${FATHOM_LLAMA_SDIST:-$cache/peer/llama_cpp_python-$version.tar.gz}"

fail() { echo "get_vocab_vectors.sh: $1" >&2; exit "${2:-1}"; }

if [ -f "$folder/complete-$version" ]; then
  echo "$folder"
  exit 0
fi
mkdir -p "$cache"
# Tests ask side by side: one fetches and the others wait; for ten minutes a failure is not tried again.
exec 9>"$cache/vocab.lock"
flock 9
if [ -f "$folder/complete-$version" ]; then
  echo "$folder"
  exit 0
fi
failed="$cache/vocab.failed"
[ -z "$(find "$failed" -mmin -10 2>/dev/null)" ] || fail "$(cat "$failed")" 3
work=$(mktemp -d "$cache/vocab.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 3' INT TERM
if [ ! -f "$sdist" ]; then
  python="${FATHOM_PYTHON:-python3}"
  local_python="$(dirname "$0")/../.venv/bin/python"
  [ -z "${FATHOM_PYTHON:-}" ] && [ -x "$local_python" ] && python="$local_python"
  # pip also prepares the package's metadata, with a build tool that it fetches built; `:all:` would build that too.
  "$python" -m pip download --quiet --retries 1 --no-deps --no-binary llama-cpp-python --dest "$work" \
    "llama-cpp-python==$version" >"$work/log" 2>&1 || {
    echo "could not download llama-cpp-python $version from PyPI: $(grep . "$work/log" | tail -n 1)" >"$failed"
    fail "$(cat "$failed")" 3
  }
  sdist="$work/llama_cpp_python-$version.tar.gz"
fi
found=$(sha256sum "$sdist" | cut -d' ' -f1)
[ "$found" = "$sha256" ] || fail "$sdist has sha256 $found, expected $sha256; remove it and try again"
tar -xzf "$sdist" -C "$work" --strip-components=4 --wildcards '*/vendor/llama.cpp/models/ggml-vocab-*'
mkdir -p "$folder"
mv "$work"/ggml-vocab-* "$folder/"
touch "$folder/complete-$version"
echo "$folder"
