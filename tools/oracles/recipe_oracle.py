#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/fixtures/recipe_types.txt: the tensor types that llama.cpp's quantiser chooses.

Usage: recipe_oracle.py LLAMA_QUANTIZE > tests/fixtures/recipe_types.txt
For each shape an F16 file is written whose header is complete and whose data is a hole; then
`llama-quantize --dry-run` runs once a mix. The shapes are written down here again, apart from
src/convert/model_shape.cpp, so that a slip in one shows.
"""
import re
import struct
import subprocess
import sys
import tempfile

F32, F16 = 0, 1
MIXES = (
    "F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q2_K_S Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K "
    "IQ4_NL IQ4_XS"
).split()
PURE = "Q4_K Q3_K_S Q6_K IQ4_XS".split()  # with --pure

# arch, layers, d_model, d_ff, heads, kv heads, head dim, vocabulary, tied head, bias, qk norm
SHAPES = {
    "smollm2-135m": ("llama", 30, 576, 1536, 9, 3, 64, 49152, True, False, False),
    "qwen2.5-0.5b": ("qwen2", 24, 896, 4864, 14, 2, 64, 151936, True, True, False),
    "qwen2.5-7b": ("qwen2", 28, 3584, 18944, 28, 4, 128, 152064, False, True, False),
    "llama-3.1-8b": ("llama", 32, 4096, 14336, 32, 8, 128, 128256, False, False, False),
    "qwen3-8b": ("qwen3", 36, 4096, 12288, 32, 8, 128, 151936, False, False, True),
}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair_u32(key, value):
    return text(key) + struct.pack("<II", 4, value)


def pair_f32(key, value):
    return text(key) + struct.pack("<If", 6, value)


def pair_str(key, value):
    return text(key) + struct.pack("<I", 8) + text(value)


def tensors_of(shape):
    arch, n_layers, d_model, d_ff, n_heads, n_kv_heads, head_dim, vocab, tied, bias, qk_norm = shape
    q_dim, kv_dim = n_heads * head_dim, n_kv_heads * head_dim
    out = [("token_embd.weight", F16, [d_model, vocab]), ("output_norm.weight", F32, [d_model])]
    if not tied:
        out.append(("output.weight", F16, [d_model, vocab]))
    for layer in range(n_layers):
        p = f"blk.{layer}."
        out += [
            (p + "attn_norm.weight", F32, [d_model]),
            (p + "ffn_norm.weight", F32, [d_model]),
            (p + "attn_q.weight", F16, [d_model, q_dim]),
            (p + "attn_k.weight", F16, [d_model, kv_dim]),
            (p + "attn_v.weight", F16, [d_model, kv_dim]),
            (p + "attn_output.weight", F16, [q_dim, d_model]),
            (p + "ffn_gate.weight", F16, [d_model, d_ff]),
            (p + "ffn_up.weight", F16, [d_model, d_ff]),
            (p + "ffn_down.weight", F16, [d_ff, d_model]),
        ]
        if bias:
            out += [(p + f"attn_{x}.bias", F32, [q_dim if x == "q" else kv_dim]) for x in "qkv"]
        if qk_norm:
            out += [(p + f"attn_{x}_norm.weight", F32, [head_dim]) for x in "qk"]
    return out


def write_hollow_model(path, shape):
    arch, n_layers, d_model, d_ff, n_heads, n_kv_heads, head_dim, vocab = shape[:8]
    pairs = [
        pair_str("general.architecture", arch),
        pair_u32("general.file_type", 1),
        pair_u32(f"{arch}.block_count", n_layers),
        pair_u32(f"{arch}.context_length", 8192),
        pair_u32(f"{arch}.embedding_length", d_model),
        pair_u32(f"{arch}.feed_forward_length", d_ff),
        pair_u32(f"{arch}.attention.head_count", n_heads),
        pair_u32(f"{arch}.attention.head_count_kv", n_kv_heads),
        pair_u32(f"{arch}.attention.key_length", head_dim),
        pair_u32(f"{arch}.attention.value_length", head_dim),
        pair_u32(f"{arch}.vocab_size", vocab),
        pair_f32(f"{arch}.rope.freq_base", 1e6),
        pair_f32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-6),
        pair_str("tokenizer.ggml.model", "no_vocab"),
    ]
    tensors = tensors_of(shape)
    infos, offset = b"", 0
    for name, kind, dims in tensors:
        infos += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        infos += struct.pack("<IQ", kind, offset)
        n_bytes = 4 if kind == F32 else 2
        for dim in dims:
            n_bytes *= dim
        offset += (n_bytes + 31) // 32 * 32
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + infos
    with open(path, "wb") as file:
        file.write(header)
        file.truncate((len(header) + 31) // 32 * 32 + offset)


def chosen_types(program, path, mix, pure):
    command = [program, "--dry-run"] + (["--pure"] if pure else []) + [path, mix]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{run.stdout[-2000:]}")
    types = {}
    for line in run.stdout.splitlines():
        found = re.match(r"\[ *\d+/ *\d+\] +(\S+) .*type = +(\w+),", line)
        if not found:
            continue
        to = re.search(r"->.*\((\w+)\)", line) or re.search(r"converting to (\w+)", line)
        types[found.group(1)] = (to.group(1) if to else found.group(2)).upper()
    return types


def ranges(layers):
    parts = []
    for layer in layers:
        if parts and parts[-1][1] == layer - 1:
            parts[-1][1] = layer
        else:
            parts.append([layer, layer])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def print_table(shape, mix, types):
    groups = {}
    for name, kind in types.items():
        layer = re.match(r"blk\.(\d+)\.(.*)", name)
        if kind == "F32" and mix != "F32":
            continue  # norms and biases
        key = (layer.group(2) if layer else name, kind)
        groups.setdefault(key, []).append(int(layer.group(1)) if layer else -1)
    for (name, kind), layers in sorted(groups.items()):
        where = "-" if layers == [-1] else ranges(sorted(layers))
        print(shape, mix, name, kind, where)


def main():
    program = sys.argv[1]
    print("# Made by tools/oracles/recipe_oracle.py with llama-quantize --dry-run of llama.cpp as in")
    print("# llama-cpp-python 0.3.36. Columns: shape, mix (+pure: with --pure), tensor, type, layers.")
    for name, shape in SHAPES.items():
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            write_hollow_model(file.name, shape)
            for mix in MIXES:
                print_table(name, mix, chosen_types(program, file.name, mix, False))
            for mix in PURE:
                print_table(name, mix + "+pure", chosen_types(program, file.name, mix, True))


if __name__ == "__main__":
    main()
