#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our dequantisation and quantisation with the PyPI package gguf, bit for bit.

Usage: quant_oracle.py QUANT_STREAM (the test program tests/oracles/quant_stream.cpp).
Blocks are random, all zero, all ones, and random with every f16 field set to each special value;
NaN is compared by position.
"""
import subprocess
import sys

import gguf
import numpy as np

N_RANDOM = 4000
SPECIAL_F16 = [0x0000, 0x8000, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7C01]

# Byte offsets of the f16 fields; then byte runs that hold sub-scales, which are also set to all ones.
FIELDS = {
    "F32": ([], []),
    "F16": ([0], []),
    "BF16": ([0], []),
    "Q4_0": ([0], []),
    "Q4_1": ([0, 2], []),
    "Q5_0": ([0], []),
    "Q5_1": ([0, 2], []),
    "Q8_0": ([0], []),
    "Q2_K": ([80, 82], [(0, 16)]),
    "Q3_K": ([108], [(96, 108)]),
    "Q4_K": ([0, 2], [(4, 16)]),
    "Q5_K": ([0, 2], [(4, 16)]),
    "Q6_K": ([208], [(192, 208)]),
    "IQ4_NL": ([0], []),
    "IQ4_XS": ([0], [(2, 8)]),
    "MXFP4": ([], [(0, 1)]),
}
QUANTIZED = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]


def blocks_for(name, rng):
    n_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    halves, subscales = FIELDS[name]
    parts = [rng.integers(0, 256, (N_RANDOM, n_bytes), dtype=np.uint8)]
    parts.append(np.zeros((1, n_bytes), np.uint8))
    parts.append(np.full((1, n_bytes), 255, np.uint8))
    for offset in halves:
        for value in SPECIAL_F16:
            part = rng.integers(0, 256, (8, n_bytes), dtype=np.uint8)
            part[:, offset] = value & 255
            part[:, offset + 1] = value >> 8
            parts.append(part)
    for begin, end in subscales:
        for fill in (0x00, 0x3F, 0x7F, 0x80, 0xFF):
            part = rng.integers(0, 256, (8, n_bytes), dtype=np.uint8)
            part[:, begin:end] = fill
            parts.append(part)
    if name == "MXFP4":
        part = rng.integers(0, 256, (256, n_bytes), dtype=np.uint8)
        part[:, 0] = np.arange(256)
        parts.append(part)
    if name == "F32":  # infinities, NaNs with small payloads, subnormals
        bits = np.array([0x7F800000, 0xFF800000, 0x7F800001, 1, 0x80000001, 0x007FFFFF], np.uint32)
        parts.append(bits.view(np.uint8).reshape(-1, 4))
    return np.concatenate(parts)


def values_for(rng):
    rows = [rng.standard_normal((2000, 32)), rng.uniform(-1, 1, (2000, 32)) * 1e-3, np.zeros((1, 32))]
    rows.append(np.full((1, 32), 2.5))
    outliers = rng.standard_normal((500, 32))
    outliers[np.arange(500), rng.integers(0, 32, 500)] *= 1000
    rows.append(outliers)
    rows.append(rng.integers(-8, 9, (500, 32)) / 2.0)  # ties
    rows.append(rng.standard_normal((200, 32)) * 1e-7)  # scales that are f16 subnormals
    return np.concatenate(rows).astype(np.float32)


def ours(program, direction, name, data):
    command = [program, direction, name]
    return subprocess.run(command, input=data.tobytes(), stdout=subprocess.PIPE, check=True).stdout


def check_dequantize(program, name, rng):
    blocks = blocks_for(name, rng)
    with np.errstate(all="ignore"):
        want = gguf.dequantize(blocks, gguf.GGMLQuantizationType[name]).astype(np.float32).ravel()
    got = np.frombuffer(ours(program, "dequantize", name, blocks), np.float32)
    if got.shape != want.shape:
        return f"{got.size} values, expected {want.size}"
    nan = np.isnan(want)
    wrong = np.flatnonzero((np.isnan(got) != nan) | (~nan & (got.view(np.uint32) != want.view(np.uint32))))
    if wrong.size:
        i = wrong[0]
        return f"{wrong.size} values differ, first at {i}: {got[i]!r}, expected {want[i]!r}"
    if nan.mean() > 0.5 or np.unique(want[~nan]).size < 100:
        return "degenerate test data"
    return None


def check_quantize(program, name, rng):
    values = values_for(rng)
    with np.errstate(all="ignore"):
        want = gguf.quantize(values, gguf.GGMLQuantizationType[name])
    want = np.frombuffer(want.tobytes(), np.uint8)
    got = np.frombuffer(ours(program, "quantize", name, values), np.uint8)
    if got.shape != want.shape:
        return f"{got.size} bytes, expected {want.size}"
    wrong = np.flatnonzero(got != want)
    if wrong.size:
        block = wrong[0] // gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
        return f"{wrong.size} bytes differ, first in block {block}"
    return None


def main():
    program = sys.argv[1]
    failures = 0
    checks = [(check_dequantize, name) for name in FIELDS] + [(check_quantize, name) for name in QUANTIZED]
    for check, name in checks:
        problem = check(program, name, np.random.default_rng(20240607))
        print(f"{check.__name__[6:]:10} {name:7} {problem or 'equal'}")
        failures += problem is not None
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
