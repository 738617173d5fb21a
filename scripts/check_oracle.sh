#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_oracle.sh: llama.cpp and NumPy as oracles. Tiny models of every family and rope type, then SmolLM2: token ids,
# divergence from the exact logits, perplexity. Results go to bench/results/oracle, which is committed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

peer=$(scripts/get_peer.sh)
model=$(scripts/get_model.sh smollm2-135m)
python=${FATHOM_PYTHON:-.venv/bin/python}
"$python" tools/oracles/compare_tiny.py --peer-dir "$peer" --json bench/results/oracle/tiny_models.json
"$python" tools/oracles/compare_real_model.py "$model" --peer-dir "$peer" --fathom build/cpu/fathom \
  --threads "$(nproc)" --json bench/results/oracle/smollm2_q4_1.json
