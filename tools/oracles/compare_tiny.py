#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""For each family and rope type: a tiny F32 model run by NumPy and by llama.cpp, max |delta
logit| < 1e-3.

Two oracles that share no code agree only when pairing, biases, norms and rope scaling are right.
Prints a table and, with --json, records it with the versions; exits 1 when a model misses the
bound.
"""
import argparse
import datetime
import json
import pathlib
import platform
import sys
import tempfile

import numpy as np

from llama_logits import LlamaModel
from numpy_model import Model
from tiny_models import FIXTURE_IDS, TINY_MODELS, VOCAB_SIZE, write_gguf

LIMIT = 1e-3
# Longer than the fixtures, so that the slow rope pairs turn visibly.
LONG_IDS = FIXTURE_IDS + [int(x) for x in np.random.RandomState(7).randint(0, VOCAB_SIZE, 240)]


def compare(model, folder, peer_dir):
    path = pathlib.Path(folder) / f"{model.name}.gguf"
    write_gguf(model, path)
    expected = Model(path).logits(LONG_IDS)
    peer = LlamaModel(peer_dir, path)
    found = peer.logits(LONG_IDS)
    version = peer.version
    peer.close()
    return {"model": model.name, "tokens": len(LONG_IDS), "logit_std": float(expected.std()),
            "max_abs_delta": float(np.abs(found - expected).max()), "limit": LIMIT}, version


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-dir", required=True, help="folder of the llama.cpp build")
    parser.add_argument("--json", type=pathlib.Path, help="write the result here")
    args = parser.parse_args()
    from importlib.metadata import version as package_version
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for model in TINY_MODELS:
            row, peer_version = compare(model, folder, args.peer_dir)
            row["pass"] = row["max_abs_delta"] < LIMIT
            rows.append(row)
            print(f"{row['model']:18} std {row['logit_std']:5.2f}  max |delta| "
                  f"{row['max_abs_delta']:.2e}  {'ok' if row['pass'] else 'FAILED'}")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({
            "what": __doc__.splitlines()[0], "date": datetime.date.today().isoformat(),
            "versions": {"llama.cpp": peer_version, "gguf": package_version("gguf"),
                         "numpy": np.__version__, "python": platform.python_version()},
            "rows": rows}, indent=1) + "\n")
    sys.exit(0 if all(row["pass"] for row in rows) else 1)


if __name__ == "__main__":
    main()
