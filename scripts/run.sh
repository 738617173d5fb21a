#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh: what `make run` shows: text from SmolLM2-135M-Instruct, streamed, then where the time of a decode step goes
# at two depths. Without network and without the model it says so and takes random weights of the same shape.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fathom=build/cpu/fathom
prompt=${PROMPT:-"The sea is deep because"}
cache=${FATHOM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fathom}
without="random weights of the same shape take its place, so the text means nothing"
if ! model=$(scripts/get_model.sh smollm2-135m "$without"); then
  mkdir -p "$cache"
  model=$cache/synthetic-smollm2-135m.gguf
  [ -f "$model" ] || "$fathom" synth "$model" --shape smollm2-135m --type q4_1 -q
fi
show() {
  local word line="\$"
  for word in "$@"; do
    [[ $word == *[^[:alnum:]_./,=-]* ]] && word=${word@Q}
    line+=" $word"
  done
  printf '\n%s\n' "$line" >&2
  "$@"
}
# The last line of `run` is set against the read bandwidth that doctor keeps.
if [ ! -f "$cache/machine.json" ]; then
  echo "run: measuring how fast this machine reads its memory: 3 s, once; 'fathom doctor' shows it" >&2
  "$fathom" doctor >/dev/null
fi
show "$fathom" run "$model" -p "$prompt" -n "${N:-128}" --echo
show "$fathom" bench "$model" --profile --depths 64,1641
