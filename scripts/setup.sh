#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh [build] [python] [pip] [clang]: installs what is missing on a Debian 12 machine and says what; asks nothing.
#   build   compiler, CMake, Ninja, ccache and the libraries of cmake/dependencies.cmake
#   python  .venv with what the oracles and the checks need (tools/requirements.txt); pip: only pip, to obtain a model
#   clang   clang 19 for fuzzing and for a second compiler's opinion
# Without root it prints the one apt line and exits 3. Where CI is set, a missing Python part is an error; elsewhere
# its tests skip with a message. CUDA is used where it is found (cmake/cuda.cmake) and never installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages_build=(g++ cmake ninja-build ccache libfmt-dev nlohmann-json3-dev libcli11-dev libspdlog-dev
  libutf8proc-dev libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev libpcre2-dev
  libboost-context1.81-dev)
packages_python=(python3 python3-venv)
packages_pip=(python3-pip)
packages_clang=(clang-19 libclang-rt-19-dev)

say() { printf 'setup: %s\n' "$*" >&2; }
stop() {
  say "$*"
  exit 3
}

missing_packages() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s\n' "$package"
  done
}

install_packages() {
  command -v dpkg-query >/dev/null || stop "this is no Debian system; install by hand: $*"
  local missing
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    say "these packages are missing; install them, then start again:"
    printf 'sudo apt-get install --no-remove %s\n' "${missing[*]}"
    exit 3
  fi
  say "installing ${missing[*]}"
  local log
  log=$(mktemp)
  export DEBIAN_FRONTEND=noninteractive
  if ! { apt-get update -q && apt-get install -q -y --no-remove --no-install-recommends "${missing[@]}"; } \
    </dev/null >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    stop "apt-get could not install ${missing[*]}; is the network there?"
  fi
  rm -f "$log"
}

make_venv() {
  local stamp=.venv/requirements.txt
  cmp -s tools/requirements.txt "$stamp" && return 0
  say "making .venv with $(grep -v '^#' tools/requirements.txt | tr '\n' ' ')"
  local log why
  log=$(mktemp)
  if { /usr/bin/python3 -m venv --clear .venv &&
    .venv/bin/python -m pip install -q --disable-pip-version-check --retries 2 -r tools/requirements.txt; } \
    </dev/null >"$log" 2>&1; then
    rm -f "$log"
    cp tools/requirements.txt "$stamp"
    return 0
  fi
  why="the Python packages could not be installed ($(tail -n 1 "$log" | sed 's/^ERROR: //'))"
  rm -f "$log"
  [ -z "${CI:-}" ] || stop "$why"
  say "$why: the tests that need them will skip"
}

[ $# -gt 0 ] || set -- build python
packages=()
for part in "$@"; do
  case $part in
    build) packages+=("${packages_build[@]}") ;;
    python) packages+=("${packages_python[@]}") ;;
    pip) packages+=("${packages_pip[@]}") ;;
    clang) packages+=("${packages_clang[@]}") ;;
    *)
      say "'$part' is no part, expected build, python, pip or clang"
      exit 2
      ;;
  esac
done
install_packages "${packages[@]}"
for part in "$@"; do
  [ "$part" != python ] || make_venv
done
