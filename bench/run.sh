#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [arguments of bench/peers/peers.py]: all performance targets. Obtains the peer and the models, then measures
# what needs no peer (bench/targets.py) and Fathom against llama.cpp in interleaved rounds (bench/peers/peers.py);
# results go to bench/results/<machine>/. Wants an idle machine. Ends with the status of the first part that failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${FATHOM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fathom}
peer=$(scripts/get_peer.sh)
scripts/get_model.sh smollm2-135m >/dev/null
status=0
python3 bench/targets.py --fathom build/cpu/fathom --models-dir "$cache" || status=$?
python3 bench/peers/peers.py --fathom build/cpu/fathom --peer-dir "$peer" --models-dir "$cache" "$@" ||
  status=$((status ? status : $?))
exit "$status"
