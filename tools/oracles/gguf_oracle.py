#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our GGUF reader and writer with the PyPI package gguf.

Usage: gguf_oracle.py GGUF_PROBE [smollm2-135m] (the test program tests/oracles/gguf_probe.cpp).
Without a model: a file of our writer and a file of gguf's writer, each read by both. With one: the
model's file, read by both. Keys, types, values, shapes, offsets and sizes must be equal.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

SKIPPED = 77


def expected_lines(path):
    """What gguf sees, in the format of `gguf_probe dump`."""
    reader = gguf.GGUFReader(path)
    version = int(reader.fields["GGUF.version"].contents())
    yield f"version {version} alignment {reader.alignment}"
    for name, field in reader.fields.items():
        if name.startswith("GGUF."):
            continue
        elements = [field.parts[i].tobytes().hex() for i in field.data]
        kind, element = int(field.types[0]), int(field.types[-1])
        values = "".join(e + "," for e in elements)
        yield f"key {name.encode().hex()} {kind} {element} {len(elements)} {values}"
    for t in reader.tensors:
        shape = [int(n) for n in t.shape]
        dims = ",".join(str(n) for n in shape + [1] * (4 - len(shape)))
        name = t.name.encode().hex()
        yield f"tensor {name} {int(t.tensor_type)} {len(shape)} {dims} {t.data_offset} {t.n_bytes}"


def compare(probe, path):
    ours = subprocess.run([probe, "dump", path], check=True, capture_output=True, text=True).stdout
    ours, theirs = ours.split("\n")[:-1], list(expected_lines(path))
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if a.rstrip() != b.rstrip():
            sys.exit(f"{path}: line {i} differs\n  ours: {a[:400]}\n  gguf: {b[:400]}")
    if len(ours) != len(theirs):
        sys.exit(f"{path}: {len(ours)} lines of ours, {len(theirs)} of gguf")
    print(f"{Path(path).name}: {len(ours) - 1} keys and tensors are equal")
    return len(ours)


def check_written_data(path):
    for number, t in enumerate(gguf.GGUFReader(path).tensors):
        pattern = (31 * number + 7 * np.arange(t.n_bytes, dtype=np.uint64)).astype(np.uint8)
        if t.data.tobytes() != pattern.tobytes():
            sys.exit(f"{path}: the data of {t.name} is not what was written")


def write_theirs(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(128)
    writer.add_uint8("u8", 255)
    writer.add_int8("i8", -1)
    writer.add_uint16("u16", 65535)
    writer.add_int16("i16", -1)
    writer.add_uint32("u32", 2**32 - 1)
    writer.add_int32("i32", -1)
    writer.add_uint64("u64", 2**64 - 1)
    writer.add_int64("i64", -(2**63))
    writer.add_float32("f32", 0.1)
    writer.add_float64("f64", 0.1)
    writer.add_bool("bool", False)
    writer.add_string("text", "\u20ac\n")
    writer.add_array("strings", ["", "x", "\u00fc"])
    writer.add_array("ints", [-1, 0, 2**31 - 1])
    writer.add_array("floats", [0.5, -1e30])
    writer.add_array("bools", [True, False])
    rng = np.random.default_rng(1)
    writer.add_tensor("f32", rng.random((3, 5), dtype=np.float32))
    writer.add_tensor("f16", rng.random((2, 3, 4), dtype=np.float32).astype(np.float16))
    quantised = gguf.quantize(rng.random((7, 64), dtype=np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q8_0", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("i32", np.arange(9, dtype=np.int32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    probe = sys.argv[1]
    if len(sys.argv) > 2:
        script = Path(__file__).parents[2] / "scripts/get_model.sh"
        got = subprocess.run(["bash", script, sys.argv[2]], capture_output=True, text=True)
        if got.returncode != 0:
            print(f"SKIPPED: no {sys.argv[2]}: {got.stderr.strip()}")
            return SKIPPED
        compare(probe, got.stdout.strip())
        return 0
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = f"{folder}/ours.gguf", f"{folder}/theirs.gguf"
        subprocess.run([probe, "write", ours], check=True)
        n_lines = compare(probe, ours)
        if n_lines < 50:
            sys.exit(f"only {n_lines} lines were compared")
        check_written_data(ours)
        write_theirs(theirs)
        compare(probe, theirs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
