#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks in NumPy that synthetic models behave as promised.

Usage: synth_oracle.py SYNTH_PROBE [SHAPE:TYPE ...]
Residual RMS in every layer, entropy of the logits at every step and the number of distinct tokens of a
greedy run, for the tiny shapes or for those named; the first two for every pure type as well.
The limits are those of src/convert/synth.hpp.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small products: threads only wait for each other
import numpy as np

from numpy_model import Model, softmax

RESIDUAL_RMS = (0.1, 100.0)
LOGIT_ENTROPY = (1.0, 8.0)  # nats
N_GREEDY, N_DISTINCT = 256, 100
TINY = ["tiny-llama3:F16", "tiny-qwen2:Q8_0", "tiny-qwen3:F32"]
TYPES = ("F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4").split()


class WatchedModel(Model):
    """Keeps dequantised weights, and the RMS of the residual after every sublayer."""

    def __init__(self, path):
        super().__init__(path)
        self._cache = {}

    def weight(self, name, rows=slice(None)):
        if name not in self._cache:
            self._cache[name] = super().weight(name)
        return self._cache[name][rows]

    def logits(self, ids):
        self._residual = self.weight("token_embd.weight", rows=np.asarray(ids))
        self.residual_rms = [self._rms()]
        return super().logits(ids)

    def _rms(self):
        return np.sqrt(np.mean(self._residual**2, axis=-1))

    def _add(self, delta):
        self._residual = self._residual + delta
        self.residual_rms.append(self._rms())
        return delta

    def _attention(self, *args):
        return self._add(super()._attention(*args))

    def _ffn(self, *args):
        return self._add(super()._ffn(*args))


def entropies(logits):
    p = softmax(logits)
    return -np.sum(p * np.log(np.maximum(p, 1e-300)), axis=-1)


def behaviour(model, ids):
    """(problem or None, description) of one forward pass over ids."""
    entropy = entropies(model.logits(ids))
    rms = np.array(model.residual_rms)
    text = f"residual RMS {rms.min():.2f}-{rms.max():.2f}, entropy {entropy.min():.2f}-{entropy.max():.2f}"
    good = RESIDUAL_RMS[0] <= rms.min() and rms.max() <= RESIDUAL_RMS[1]
    good = good and LOGIT_ENTROPY[0] <= entropy.min() and entropy.max() <= LOGIT_ENTROPY[1]
    return good, text


def greedy(model, first_id):
    ids = [first_id]
    while len(ids) <= N_GREEDY:
        ids.append(int(np.argmax(model.logits(ids)[-1])))
    return ids


def write(probe, folder, shape, kind, mode):
    path = folder / f"{shape}-{kind}-{mode}.gguf"
    subprocess.run([probe, str(path), shape, kind, mode], check=True)
    return path


def main():
    probe, named = sys.argv[1], sys.argv[2:]
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for item in named or TINY:
            shape, kind = item.split(":")
            model = WatchedModel(write(probe, folder, shape, kind, "mix"))
            ids = greedy(model, 40)
            good, text = behaviour(model, ids[:-1])
            n_distinct = len(set(ids[1:]))
            good = good and n_distinct >= N_DISTINCT
            print(f"{'ok  ' if good else 'FAIL'} {item}: {text}, {n_distinct} distinct of {N_GREEDY}")
            failures += not good
        for kind in [] if named else TYPES:
            model = WatchedModel(write(probe, folder, "tiny-kquant", kind, "pure"))
            good, text = behaviour(model, np.random.default_rng(1).integers(0, 500, 128))
            print(f"{'ok  ' if good else 'FAIL'} tiny-kquant pure {kind}: {text}")
            failures += not good
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
