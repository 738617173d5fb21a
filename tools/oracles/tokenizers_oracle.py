#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our token ids with the PyPI package tokenizers, on random and on hard Unicode text.

Usage: tokenizers_oracle.py TOKEN_IDS (the test program tests/oracles/token_ids.cpp).
Its tokenizer is built from the file's own vocabulary and merges with the published pre-tokenizer of
each model. Files that cannot be had are named; without any of them the check skips (exit 77).
"""
import mmap
import os
import random
import struct
import subprocess
import sys
import unicodedata

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
N_TEXTS = 3000

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level():
    return [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]


def split(pattern):
    return [
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


# By tokenizer.ggml.pre: the published pre-tokenizer, and whether whole words come before merges.
PUBLISHED = {
    "smollm": ([pre_tokenizers.Digits(individual_digits=True)] + byte_level(), False),
    "gpt-2": (byte_level(), False),
    "llama-bpe": (split(CL100K % r"\p{N}{1,3}"), True),
    "qwen2": (split(CL100K % r"\p{N}"), False),
}


def fetch(script, *args):
    """What a script of ours prints, or None with its reason shown."""
    result = subprocess.run([os.path.join(ROOT, "scripts", script), *args], capture_output=True, text=True)
    if result.returncode == 0:
        return result.stdout.split("\n")[0]
    print(f"not compared: {result.stderr.strip().splitlines()[-1:] or script}")
    return None


def files():
    model = fetch("get_model.sh", "smollm2-135m")
    if model:
        yield model
    folder = fetch("get_vocab_vectors.sh")
    if folder:
        for name in ["gpt-2", "qwen2", "llama-bpe"]:
            yield os.path.join(folder, f"ggml-vocab-{name}.gguf")


NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # value types
STRING, ARRAY = 8, 9


def metadata(path):
    """The key-value pairs of a GGUF file; gguf.GGUFReader takes 15 s for the four vocabularies."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = 0

        def number(code):
            nonlocal at
            (value,) = struct.unpack_from("<" + code, data, at)
            at += struct.calcsize("<" + code)
            return value

        def string():
            nonlocal at
            size = number("Q")
            at += size
            return data[at - size:at].decode("utf-8")

        def value(kind):
            if kind == STRING:
                return string()
            if kind == ARRAY:
                kind, n = number("I"), number("Q")
                return [value(kind) for _ in range(n)]
            return number(NUMBERS[kind])

        assert data[:4] == b"GGUF", f"{path} is no GGUF file"
        at = 8
        _, n_pairs = number("Q"), number("Q")
        return {string(): value(number("I")) for _ in range(n_pairs)}


def oracle(path):
    fields = metadata(path)
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    stages, whole_words = PUBLISHED[fields["tokenizer.ggml.pre"]]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=whole_words))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(stages)
    return tokenizer


# Characters that every version of Unicode knows alike: the two sides carry different versions.
OLD = unicodedata.ucd_3_2_0
STABLE = [
    chr(c)
    for c in range(1, 0x110000)
    if not 0xD800 <= c < 0xE000
    and OLD.category(chr(c)) not in ("Cn", "Co")
    and OLD.category(chr(c)) == unicodedata.category(chr(c))
    and c != 0x180E
]
PIECES = (
    "'s 'S 't 'll 'LL 're 'Ve ' '' 'z '\u017f 0 12 345 6789 3333+777 a Z hello World \u00e9 e\u0301 \u0928\u093f "
    "\u0e01\u0e33 \u4e2d\u6587 \uac00 \u3042 \u0663\u0664 \u00b2 \u2167 \u00bd \U0001f999 \U0001f469\u200d\U0001f680 "
    "\ufe0f ! ?! ... -- _ ( ) $ + ` ~ \u20ac \u3002 \u2026 \u2581 <|im_end|> <s> http://x.y/z?q=1 foo_bar() #include"
).split(" ") + [" ", "  ", "    ", "\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\x01"]


def random_text(rng):
    if rng.random() < 0.2:
        return "".join(rng.choice(STABLE) for _ in range(rng.randrange(1, 40)))
    return "".join(
        rng.choice(PIECES) if rng.random() < 0.9 else rng.choice(STABLE) for _ in range(rng.randrange(0, 40))
    )


def our_ids(program, path, texts):
    encoded = [text.encode() for text in texts]
    data = b"".join(struct.pack("<I", len(text)) + text for text in encoded)
    output = subprocess.run([program, path], input=data, stdout=subprocess.PIPE, check=True).stdout
    return [[int(word) for word in line.split()] for line in output.decode().split("\n")[:-1]]


def compare(program, path):
    rng = random.Random(20240601)
    texts = [random_text(rng) for _ in range(N_TEXTS)]
    with open("/usr/share/common-licenses/GPL-3", encoding="utf-8") as file:
        texts.append(file.read())
    tokenizer = oracle(path)
    found = our_ids(program, path, texts)
    assert len(found) == len(texts), f"{len(found)} answers for {len(texts)} texts"
    n_tokens = 0
    for text, ids in zip(texts, found):
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        n_tokens += len(expected)
        if ids != expected:
            print(f"{os.path.basename(path)}: {text!r}\n  found    {ids}\n  expected {expected}")
            return False
    assert n_tokens > 50000, f"only {n_tokens} tokens were compared"
    print(f"{os.path.basename(path)}: {len(texts)} texts, {n_tokens} tokens equal")
    return True


def main():
    paths = list(files())
    if not paths:
        print("SKIPPED: no vocabulary could be obtained")
        return 77
    return 0 if all([compare(sys.argv[1], path) for path in paths]) else 1


if __name__ == "__main__":
    sys.exit(main())
