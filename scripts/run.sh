#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh: what `make run` shows: text from SmolLM2-135M-Instruct, streamed, then where the time of a decode step goes
# at two depths. Without network and without the model it says so and takes random weights of the same shape.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fathom=build/cpu/fathom
prompt=${PROMPT:-"The sea is deep because"}
if ! model=$(scripts/get_model.sh smollm2-135m); then
  cache=${FATHOM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fathom}
  mkdir -p "$cache"
  model=$cache/synthetic-smollm2-135m.gguf
  echo "run: without the real model this shows random weights of the same shape, so the text means nothing" >&2
  [ -f "$model" ] || "$fathom" synth "$model" --shape smollm2-135m --type q4_1
fi
show() {
  printf '\n$ %s\n' "$*" >&2
  "$@"
}
# The last line of `run` is set against the read bandwidth that doctor keeps; three seconds, once a machine.
[ -f "${FATHOM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fathom}/machine.json" ] || show "$fathom" doctor >/dev/null
show "$fathom" run "$model" -p "$prompt" -n "${N:-128}"
show "$fathom" bench "$model" --profile --depths 64,1641
