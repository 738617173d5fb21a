#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole-model oracle in NumPy, float64: llama, qwen2 and qwen3 written from the formula.

Shares no code with the engine: the file is opened and dequantised by PyPI `gguf`.
A hyper-parameter or tensor that this file does not know is an error, so that agreement cannot come
from ignoring the same key.
"""
import argparse
import dataclasses
import math

import numpy as np

from logits_file import add_id_arguments, ids_from, save_logits

# Which two elements of a head rotate together: norm (2j, 2j+1), neox (j, j + rope_dim/2).
PAIRING = {"llama": "norm", "qwen2": "neox", "qwen3": "neox"}

# Keys of the architecture that carry no arithmetic of the forward pass.
INERT_KEYS = {"vocab_size", "context_length", "rope.scaling.finetuned"}


@dataclasses.dataclass(frozen=True)
class Config:
    arch: str
    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    norm_eps: float
    rope_dim: int
    rope_pairing: str = "norm"
    rope_freq_base: float = 10000.0
    rope_scaling: str = "none"  # none, linear, yarn
    rope_factor: float = 1.0
    rope_attn_factor: float = 1.0
    rope_orig_ctx: int = 0
    yarn_ext_factor: float = 1.0
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0


class Metadata:
    """The keys of one architecture; remembers which were read, to refuse the rest."""

    def __init__(self, reader):
        self._values = {k: f.contents() for k, f in reader.fields.items()
                        if not k.startswith(("GGUF.", "tokenizer."))}
        self.arch = self._values["general.architecture"]
        self._read = set(INERT_KEYS)

    def get(self, key, default=None):
        self._read.add(key)
        value = self._values.get(f"{self.arch}.{key}", default)
        if value is None:
            raise ValueError(f"the file lacks {self.arch}.{key}")
        return value

    def unread(self):
        prefix = self.arch + "."
        own = {k[len(prefix):] for k in self._values if k.startswith(prefix)}
        return sorted(own - self._read)


def read_config(reader):
    meta = Metadata(reader)
    if meta.arch not in PAIRING:
        raise ValueError(f"architecture {meta.arch}: this oracle knows {', '.join(PAIRING)}")
    d_model = meta.get("embedding_length")
    n_heads = meta.get("attention.head_count")
    head_dim = meta.get("attention.key_length", d_model // n_heads)
    if meta.get("attention.value_length", head_dim) != head_dim:
        raise ValueError("key_length and value_length differ: not supported")
    old_linear = meta.get("rope.scale_linear", 0.0)  # the key of early files
    factor = meta.get("rope.scaling.factor", old_linear)
    scaling = meta.get("rope.scaling.type", "linear" if factor else "none")
    if scaling not in ("none", "linear", "yarn"):
        raise ValueError(f"rope scaling {scaling}: this oracle knows none, linear, yarn")
    config = Config(
        arch=meta.arch,
        n_layers=meta.get("block_count"),
        d_model=d_model,
        d_ff=meta.get("feed_forward_length"),
        n_heads=n_heads,
        n_kv_heads=meta.get("attention.head_count_kv", n_heads),
        head_dim=head_dim,
        norm_eps=float(meta.get("attention.layer_norm_rms_epsilon")),
        rope_dim=meta.get("rope.dimension_count", head_dim),
        rope_pairing=PAIRING[meta.arch],
        rope_freq_base=float(meta.get("rope.freq_base", 10000.0)),
        rope_scaling=scaling,
        rope_factor=float(factor) or 1.0,
        rope_attn_factor=float(meta.get("rope.scaling.attn_factor", 1.0)),
        rope_orig_ctx=meta.get("rope.scaling.original_context_length", meta.get("context_length")),
        yarn_ext_factor=float(meta.get("rope.scaling.yarn_ext_factor", 1.0)),
        yarn_beta_fast=float(meta.get("rope.scaling.yarn_beta_fast", 32.0)),
        yarn_beta_slow=float(meta.get("rope.scaling.yarn_beta_slow", 1.0)))
    if meta.unread():
        raise ValueError(f"hyper-parameters this oracle does not know: {', '.join(meta.unread())}")
    return config


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def silu(x):
    return x / (1.0 + np.exp(-x))


def rope_angles(config, positions, freq_factors):
    """Angle [n_tokens, rope_dim/2] and the magnitude that multiplies cos and sin."""
    pair = np.arange(config.rope_dim // 2)
    base, factor = config.rope_freq_base, config.rope_factor
    extrapolated = positions[:, None] * base ** (-2.0 * pair / config.rope_dim) / freq_factors
    if config.rope_scaling == "none":
        return extrapolated, config.rope_attn_factor
    interpolated = extrapolated / factor
    if config.rope_scaling == "linear":
        return interpolated, config.rope_attn_factor

    # YaRN (arXiv:2309.00071): pairs that turn more than beta_fast times within the trained context
    # keep their frequency, those below beta_slow are interpolated, a linear ramp between.
    def pair_turning(n_turns):
        return (config.rope_dim * math.log(config.rope_orig_ctx / (n_turns * 2.0 * math.pi))
                / (2.0 * math.log(base)))
    low = max(0.0, math.floor(pair_turning(config.yarn_beta_fast)))
    high = min(config.rope_dim - 1.0, math.ceil(pair_turning(config.yarn_beta_slow)))
    keep = (1.0 - np.clip((pair - low) / max(0.001, high - low), 0.0, 1.0)) * config.yarn_ext_factor
    magnitude = 1.0 + 0.1 * math.log(factor) if factor > 1.0 else 1.0
    return (interpolated * (1.0 - keep) + extrapolated * keep,
            magnitude * config.rope_attn_factor)


def rotate(config, x, angles, magnitude):
    """x [n_tokens, n_heads, head_dim]; the elements past rope_dim stay."""
    half = config.rope_dim // 2
    if config.rope_pairing == "norm":
        first, second = np.arange(half) * 2, np.arange(half) * 2 + 1
    else:
        first, second = np.arange(half), np.arange(half) + half
    cos, sin = (magnitude * f(angles)[:, None, :] for f in (np.cos, np.sin))
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def causal_attention(q, k, v, query_chunk=512):
    """q [n, n_heads, head_dim], k and v [n, n_kv_heads, head_dim] -> [n, n_heads * head_dim]."""
    n_tokens, n_heads, head_dim = q.shape
    group_size = n_heads // k.shape[1]
    out = np.empty_like(q)
    for head in range(n_heads):
        keys, values = k[:, head // group_size], v[:, head // group_size]
        for begin in range(0, n_tokens, query_chunk):
            end = min(n_tokens, begin + query_chunk)
            scores = q[begin:end, head] @ keys[:end].T / math.sqrt(head_dim)
            future = np.arange(end)[None, :] > np.arange(begin, end)[:, None]
            scores[future] = -np.inf
            out[begin:end, head] = softmax(scores) @ values[:end]
    return out.reshape(n_tokens, n_heads * head_dim)


class Model:
    """One GGUF file. Tensors are dequantised when used: memory stays near one layer's weights."""

    def __init__(self, path):
        import gguf  # here, so that the formulas above can be tested without it
        self._dequantize = gguf.quants.dequantize
        reader = gguf.GGUFReader(str(path))
        self.config = read_config(reader)
        self._tensors = {t.name: t for t in reader.tensors}
        self._used = set()

    @property
    def vocab_size(self):
        return int(self._tensors["token_embd.weight"].shape[1])

    def _find(self, name):
        self._used.add(name)
        return self._tensors.get(name)

    def weight(self, name, rows=slice(None)):
        tensor = self._find(name)
        if tensor is None:
            raise ValueError(f"the file lacks tensor {name}")
        return self._dequantize(tensor.data[rows], tensor.tensor_type).astype(np.float64)

    def optional(self, name, otherwise):
        return self.weight(name) if self._find(name) is not None else otherwise

    def linear(self, name, x):
        return x @ self.weight(name + ".weight").T + self.optional(name + ".bias", 0.0)

    def _attention(self, layer, x, angles, magnitude):
        c, prefix = self.config, f"blk.{layer}.attn_"
        q = self.linear(prefix + "q", x).reshape(len(x), c.n_heads, c.head_dim)
        k = self.linear(prefix + "k", x).reshape(len(x), c.n_kv_heads, c.head_dim)
        v = self.linear(prefix + "v", x).reshape(len(x), c.n_kv_heads, c.head_dim)
        if c.arch == "qwen3":
            q = rms_norm(q, self.weight(prefix + "q_norm.weight"), c.norm_eps)
            k = rms_norm(k, self.weight(prefix + "k_norm.weight"), c.norm_eps)
        q, k = (rotate(c, t, angles, magnitude) for t in (q, k))
        return self.linear(prefix + "output", causal_attention(q, k, v))

    def _ffn(self, layer, x):
        prefix = f"blk.{layer}.ffn_"
        return self.linear(prefix + "down",
                           silu(self.linear(prefix + "gate", x)) * self.linear(prefix + "up", x))

    def logits(self, ids):
        """Logits [n_tokens, vocab_size] of one sequence that starts at position 0."""
        c = self.config
        ids = np.asarray(ids)
        if ids.min() < 0 or ids.max() >= self.vocab_size:
            raise ValueError(f"token ids must lie in [0, {self.vocab_size})")
        freq_factors = self.optional("rope_freqs.weight", 1.0)
        angles, magnitude = rope_angles(c, np.arange(len(ids), dtype=np.float64), freq_factors)
        x = self.weight("token_embd.weight", rows=ids)
        for layer in range(c.n_layers):
            norm = lambda name: self.weight(f"blk.{layer}.{name}.weight")
            normed = rms_norm(x, norm("attn_norm"), c.norm_eps)
            x = x + self._attention(layer, normed, angles, magnitude)
            x = x + self._ffn(layer, rms_norm(x, norm("ffn_norm"), c.norm_eps))
        x = rms_norm(x, self.weight("output_norm.weight"), c.norm_eps)
        tied = self._find("output.weight") is None
        logits = (x @ self.weight("token_embd.weight").T) if tied else self.linear("output", x)
        unused = sorted(set(self._tensors) - self._used)
        if unused:
            raise ValueError(f"tensors this oracle does not know: {', '.join(unused[:5])}")
        return logits


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    add_id_arguments(parser)
    parser.add_argument("--out", required=True, help="logits: .npy, else raw f32")
    args = parser.parse_args()
    logits = Model(args.model).logits(ids_from(args))
    save_logits(args.out, logits)
    print(f"{args.out}: {logits.shape[0]} x {logits.shape[1]} logits")


if __name__ == "__main__":
    main()
