# SPDX-License-Identifier: Apache-2.0
"""Logits and token ids on disk, one form for every oracle.

Logits [n_tokens, vocab_size]: `.npy`; a file of `fathom perplexity --save-base` (a header, then f32
rows); or raw little-endian f32 rows (then the reader must know vocab_size). Ids: text, separated by
commas or white space.
"""
import pathlib
import re
import struct

import numpy as np


def save_logits(path, logits):
    path = pathlib.Path(path)
    logits = np.ascontiguousarray(logits, dtype="<f4")
    if path.suffix == ".npy":
        np.save(path, logits)
    else:
        logits.tofile(path)


FATHOM_MAGIC = b"FTHLOGIT"
FATHOM_HEADER = struct.Struct("<8sIIqqqQ")  # magic, version, ctx, vocab_size, stride, windows, hash


def load_logits(path, vocab_size=None):
    path = pathlib.Path(path)
    if path.suffix == ".npy":
        return np.load(path, mmap_mode="r")
    with open(path, "rb") as file:
        head = file.read(FATHOM_HEADER.size)
    if head.startswith(FATHOM_MAGIC):
        _, version, _, vocab_size, *_ = FATHOM_HEADER.unpack(head)
        if version != 1:
            raise SystemExit(f"{path}: version {version} of the logits file, this reader knows 1")
        rows = np.memmap(path, dtype="<f4", mode="r", offset=FATHOM_HEADER.size)
        return rows.reshape(-1, vocab_size)
    if not vocab_size:
        raise SystemExit(f"{path}: raw f32 logits need --vocab-size")
    flat = np.memmap(path, dtype="<f4", mode="r")
    if flat.size % vocab_size:
        raise SystemExit(f"{path}: {flat.size} values are not rows of {vocab_size}")
    return flat.reshape(-1, vocab_size)


def parse_ids(text):
    return [int(word) for word in re.split(r"[,\s]+", text.strip()) if word]


def add_id_arguments(parser):
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--ids", help="token ids, separated by commas or spaces")
    group.add_argument("--ids-file", help="a text file of token ids")


def ids_from(args):
    text = args.ids if args.ids is not None else pathlib.Path(args.ids_file).read_text()
    ids = parse_ids(text)
    if not ids:
        raise SystemExit("found no token id; expected at least one, such as --ids 1,2,3")
    return ids
