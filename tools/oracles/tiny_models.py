#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tiny F32 GGUF models, one for each family and rope type, the same bytes on every machine.

Weights come from numpy's RandomState (its streams are frozen) and are scaled so that every
mechanism shows in the logits: attention is far from uniform, biases and norm weights differ from
0 and 1. Written by PyPI `gguf` with a byte-level tokenizer, so that other engines load them. All
shapes stay small on purpose: the files are committed in tests/fixtures with the logits of the
NumPy oracle (--fixtures).
"""
import argparse
import dataclasses
import json
import pathlib
import zlib

import numpy as np

from numpy_model import Model

N_SPECIAL = 2
MERGES = ("t h", "th e")
VOCAB_SIZE = 256 + len(MERGES) + N_SPECIAL
FIXTURE_IDS = [256, 72, 33, 257, 5, 199, 72, 72, 130, 258, 11, 64, 250, 33, 7, 101]


@dataclasses.dataclass(frozen=True)
class TinyModel:
    name: str
    arch: str
    d_model: int = 32
    d_ff: int = 32
    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 32
    head_dim_key: bool = True  # False: the file leaves head_dim to d_model / n_heads
    rope_freq_base: float = 10000.0
    scaling: dict = dataclasses.field(default_factory=dict)
    rope_freqs: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    tied_head: bool = True


SMALL_HEADS = {"n_heads": 2, "n_kv_heads": 1}  # where only the angles are new
TINY_MODELS = (
    TinyModel("llama_plain", "llama", d_model=64, n_heads=2, n_kv_heads=1, head_dim_key=False),
    TinyModel("llama_rope_freqs", "llama", rope_freq_base=500000.0, rope_freqs=True),
    TinyModel("llama_linear", "llama", **SMALL_HEADS, scaling={"type": "linear", "factor": 4.0}),
    TinyModel("llama_yarn", "llama", **SMALL_HEADS,
              scaling={"type": "yarn", "factor": 8.0, "original_context_length": 1024,
                       "attn_factor": 1.25}),
    TinyModel("llama_bias", "llama", qkv_bias=True, output_bias=True, tied_head=False),
    TinyModel("qwen2_bias", "qwen2", d_model=64, n_heads=2, n_kv_heads=1, head_dim_key=False,
              rope_freq_base=1000000.0, qkv_bias=True),
    TinyModel("qwen3_qk_norm", "qwen3", rope_freq_base=1000000.0, qk_norm=True),
)


def byte_pieces():
    """The 256 printable stand-ins of byte-level BPE, by byte value."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def llama3_factors(model):
    """The frequency factors of Llama 3.1 (scale 8, low 1, high 4), for a trained context of 64."""
    freq = model.rope_freq_base ** (-np.arange(0, model.head_dim, 2) / model.head_dim)
    turns = 64.0 * freq / (2.0 * np.pi)
    smooth = np.clip((turns - 1.0) / 3.0, 0.0, 1.0)
    return 1.0 / ((1.0 - smooth) / 8.0 + smooth)


def tensors(model):
    """(name, array) in file order; each has its own seed, so that adding one moves no other."""
    def normal(name, *shape, scale=1.0, mean=0.0):
        random = np.random.RandomState(zlib.crc32(f"{model.name}/{name}".encode()))
        return name, (mean + scale * random.standard_normal(shape)).astype(np.float32)

    def matrix(name, rows, cols, gain=1.0):
        return normal(name, rows, cols, scale=gain / np.sqrt(cols))

    q_dim, kv_dim = model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
    yield normal("token_embd.weight", VOCAB_SIZE, model.d_model, scale=0.5)
    if model.rope_freqs:
        yield "rope_freqs.weight", llama3_factors(model).astype(np.float32)
    for layer in range(model.n_layers):
        blk = f"blk.{layer}."
        yield normal(blk + "attn_norm.weight", model.d_model, scale=0.2, mean=1.0)
        yield matrix(blk + "attn_q.weight", q_dim, model.d_model, gain=1.5)
        yield matrix(blk + "attn_k.weight", kv_dim, model.d_model, gain=1.5)
        yield matrix(blk + "attn_v.weight", kv_dim, model.d_model)
        if model.qkv_bias:
            yield normal(blk + "attn_q.bias", q_dim, scale=0.5)
            yield normal(blk + "attn_k.bias", kv_dim, scale=0.5)
            yield normal(blk + "attn_v.bias", kv_dim, scale=0.5)
        if model.qk_norm:
            yield normal(blk + "attn_q_norm.weight", model.head_dim, scale=0.3, mean=1.2)
            yield normal(blk + "attn_k_norm.weight", model.head_dim, scale=0.3, mean=1.2)
        yield matrix(blk + "attn_output.weight", model.d_model, q_dim)
        if model.output_bias:
            yield normal(blk + "attn_output.bias", model.d_model, scale=0.5)
        yield normal(blk + "ffn_norm.weight", model.d_model, scale=0.2, mean=1.0)
        yield matrix(blk + "ffn_gate.weight", model.d_ff, model.d_model)
        yield matrix(blk + "ffn_up.weight", model.d_ff, model.d_model)
        yield matrix(blk + "ffn_down.weight", model.d_model, model.d_ff)
    yield normal("output_norm.weight", model.d_model, scale=0.2, mean=1.0)
    if not model.tied_head:
        yield matrix("output.weight", VOCAB_SIZE, model.d_model, gain=2.0)


def write_gguf(model, path):
    import gguf
    writer = gguf.GGUFWriter(str(path), model.arch)
    writer.add_name(model.name)
    writer.add_context_length(4096)
    writer.add_block_count(model.n_layers)
    writer.add_embedding_length(model.d_model)
    writer.add_feed_forward_length(model.d_ff)
    writer.add_head_count(model.n_heads)
    writer.add_head_count_kv(model.n_kv_heads)
    if model.head_dim_key:
        writer.add_key_length(model.head_dim)
        writer.add_value_length(model.head_dim)
        writer.add_rope_dimension_count(model.head_dim)
    writer.add_rope_freq_base(model.rope_freq_base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB_SIZE)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for key, value in model.scaling.items():
        add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}
        add[type(value)](f"{model.arch}.rope.scaling.{key}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre({"llama": "llama-bpe"}.get(model.arch, "qwen2"))
    merged = [merge.replace(" ", "") for merge in MERGES]
    writer.add_token_list(byte_pieces() + merged + ["<|begin|>", "<|end|>"])
    writer.add_token_types([gguf.TokenType.NORMAL] * (256 + len(merged))
                           + [gguf.TokenType.CONTROL] * N_SPECIAL)
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(VOCAB_SIZE - 2)
    writer.add_eos_token_id(VOCAB_SIZE - 1)
    writer.add_add_bos_token(False)
    for name, array in tensors(model):
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def expected_logits_text(model, path):
    """JSON with one row of logits per line; 7 digits, far below the tolerance of 1e-3."""
    logits = Model(path).logits(FIXTURE_IDS)
    rows = ",\n".join(json.dumps([float(f"{x:.7g}") for x in row]) for row in logits)
    return (f'{{"model": "{model.name}.gguf", "maker": "tools/oracles/tiny_models.py --fixtures",\n'
            f'"vocab_size": {VOCAB_SIZE}, "ids": {json.dumps(FIXTURE_IDS)},\n'
            f'"logits": [\n{rows}\n]}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--fixtures", action="store_true", help="also NAME.logits.json, from NumPy")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for model in TINY_MODELS:
        path = args.folder / f"{model.name}.gguf"
        write_gguf(model, path)
        if args.fixtures:
            text = expected_logits_text(model, path)
            (args.folder / f"{model.name}.logits.json").write_text(text)
        print(f"{path} {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
