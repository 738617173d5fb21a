#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logits and token ids from llama.cpp, called through ctypes on its libllama.so.

The peer comes from scripts/get_peer.sh. Structures are passed by value, so their layout below
belongs to the version in the sdist of llama-cpp-python 0.3.36; `check_layout` refuses a library
whose defaults differ.
"""
import argparse
import ctypes as ct
import pathlib

import numpy as np

from logits_file import add_id_arguments, ids_from, save_logits

KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "bf16": 30}  # ggml type ids


def _fields(ctype, names):
    return [(name, ctype) for name in names.split()]


class ModelParams(ct.Structure):
    _fields_ = [
        *_fields(ct.c_void_p, "devices tensor_buft_overrides"),
        *_fields(ct.c_int32, "n_gpu_layers split_mode load_mode lazy_mode main_gpu"),
        *_fields(ct.c_void_p, "tensor_split progress_callback progress_callback_data kv_overrides"),
        *_fields(ct.c_bool, "vocab_only check_tensors use_extra_bufts no_host no_alloc load_mtp"),
    ]


class ContextParams(ct.Structure):
    _fields_ = [
        *_fields(ct.c_uint32, "n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max"
                              " n_outputs_max_per_seq"),
        *_fields(ct.c_int32, "n_threads n_threads_batch ctx_type rope_scaling_type pooling_type"
                             " attention_type flash_attn_type"),
        *_fields(ct.c_float, "rope_freq_base rope_freq_scale yarn_ext_factor yarn_attn_factor"
                             " yarn_beta_fast yarn_beta_slow"),
        ("yarn_orig_ctx", ct.c_uint32),
        ("defrag_thold", ct.c_float),
        *_fields(ct.c_void_p, "cb_eval cb_eval_data"),
        *_fields(ct.c_int32, "type_k type_v"),
        *_fields(ct.c_void_p, "abort_callback abort_callback_data"),
        *_fields(ct.c_bool, "embeddings offload_kqv no_perf op_offload swa_full kv_unified"),
        ("samplers", ct.c_void_p),
        ("n_samplers", ct.c_size_t),
        ("ctx_other", ct.c_void_p),
    ]


class Batch(ct.Structure):
    _fields_ = [
        ("n_tokens", ct.c_int32),
        *_fields(ct.c_void_p, "token embd pos n_seq_id seq_id logits"),
    ]


def load_library(peer_dir):
    """libllama.so of a build folder (in it, or in its bin/ or lib/)."""
    peer_dir = pathlib.Path(peer_dir)
    for folder in (peer_dir, peer_dir / "bin", peer_dir / "lib"):
        if (folder / "libllama.so").exists():
            lib = ct.CDLL(str(folder / "libllama.so"))
            break
    else:
        raise SystemExit(f"{peer_dir} holds no libllama.so; scripts/get_peer.sh builds one")
    signatures = {
        "llama_version": (ct.c_char_p, []),
        "llama_backend_init": (None, []),
        "llama_log_set": (None, [ct.c_void_p, ct.c_void_p]),
        "llama_model_default_params": (ModelParams, []),
        "llama_context_default_params": (ContextParams, []),
        "llama_model_load_from_file": (ct.c_void_p, [ct.c_char_p, ModelParams]),
        "llama_model_get_vocab": (ct.c_void_p, [ct.c_void_p]),
        "llama_vocab_n_tokens": (ct.c_int32, [ct.c_void_p]),
        "llama_tokenize": (ct.c_int32, [ct.c_void_p, ct.c_char_p, ct.c_int32, ct.c_void_p,
                                        ct.c_int32, ct.c_bool, ct.c_bool]),
        "llama_init_from_model": (ct.c_void_p, [ct.c_void_p, ContextParams]),
        "llama_decode": (ct.c_int32, [ct.c_void_p, Batch]),
        "llama_get_logits_ith": (ct.POINTER(ct.c_float), [ct.c_void_p, ct.c_int32]),
        "llama_free": (None, [ct.c_void_p]),
        "llama_model_free": (None, [ct.c_void_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    check_layout(lib)
    return lib


def check_layout(lib):
    c, m = lib.llama_context_default_params(), lib.llama_model_default_params()
    found = (c.n_ctx, c.n_batch, c.n_ubatch, c.n_seq_max, c.flash_attn_type, c.yarn_beta_slow,
             c.type_k, c.type_v, c.offload_kqv, c.kv_unified, c.n_samplers, c.ctx_other,
             m.vocab_only, m.use_extra_bufts, m.no_alloc)
    expected = (512, 2048, 512, 1, -1, -1.0, 1, 1, True, False, 0, None, False, True, False)
    if found != expected:
        raise SystemExit(f"this libllama.so has other defaults than the version known here: found "
                         f"{found}, expected {expected}; build the one of scripts/get_peer.sh")


class LlamaModel:
    def __init__(self, peer_dir, model_path, quiet=True):
        self._lib = load_library(peer_dir)
        if quiet:
            self._no_log = ct.CFUNCTYPE(None, ct.c_int, ct.c_char_p, ct.c_void_p)(lambda *_: None)
            self._lib.llama_log_set(self._no_log, None)
        self._lib.llama_backend_init()
        params = self._lib.llama_model_default_params()
        params.n_gpu_layers = 0
        self._model = self._lib.llama_model_load_from_file(str(model_path).encode(), params)
        if not self._model:
            raise SystemExit(f"llama.cpp could not load {model_path} (--verbose says why)")
        self._vocab = self._lib.llama_model_get_vocab(self._model)
        self.vocab_size = self._lib.llama_vocab_n_tokens(self._vocab)
        self.version = self._lib.llama_version().decode()

    def close(self):
        self._lib.llama_model_free(self._model)

    def tokenize(self, text, add_special=False, parse_special=False):
        data = text if isinstance(text, bytes) else text.encode()
        ids = (ct.c_int32 * (len(data) + 8))()
        count = self._lib.llama_tokenize(self._vocab, data, len(data), ids, len(ids), add_special,
                                         parse_special)
        if count < 0:
            raise RuntimeError(f"llama_tokenize needs {-count} ids, more than bytes")
        return list(ids[:count])

    def logits(self, ids, threads=2, ubatch=512, flash_attn=0, kv_type="f32"):
        """Logits [n_tokens, vocab_size] of one sequence, `ubatch` tokens a step.

        flash_attn: 0 off, 1 on, -1 as llama.cpp decides.
        """
        lib = self._lib
        params = lib.llama_context_default_params()
        params.n_ctx = (len(ids) + 255) // 256 * 256
        params.n_batch = params.n_ubatch = ubatch
        params.n_outputs_max = params.n_outputs_max_per_seq = ubatch
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = flash_attn
        params.type_k = params.type_v = KV_TYPES[kv_type]
        context = lib.llama_init_from_model(self._model, params)
        if not context:
            raise SystemExit("llama.cpp could not make a context (--verbose says why)")
        out = np.empty((len(ids), self.vocab_size), np.float32)
        for begin in range(0, len(ids), ubatch):
            part = np.asarray(ids[begin:begin + ubatch], np.int32)
            wanted = np.ones(len(part), np.int8)
            batch = Batch(n_tokens=len(part), token=part.ctypes.data, logits=wanted.ctypes.data)
            status = lib.llama_decode(context, batch)
            if status:
                raise RuntimeError(f"llama_decode returned {status} at token {begin}")
            for row in range(len(part)):
                pointer = lib.llama_get_logits_ith(context, row)
                out[begin + row] = np.ctypeslib.as_array(pointer, (self.vocab_size,))
        lib.llama_free(context)
        return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--peer-dir", required=True, help="folder of the llama.cpp build")
    parser.add_argument("--verbose", action="store_true", help="llama.cpp's own log")
    commands = parser.add_subparsers(dest="command", required=True)
    tokenize = commands.add_parser("tokenize", help="print the ids of a text file")
    tokenize.add_argument("text", type=pathlib.Path)
    tokenize.add_argument("-n", type=int, help="only the first N ids")
    logits = commands.add_parser("logits", help="all logits of given ids")
    add_id_arguments(logits)
    logits.add_argument("--out", required=True, help="logits: .npy, else raw f32")
    logits.add_argument("-t", "--threads", type=int, default=2)
    logits.add_argument("-ub", "--ubatch", type=int, default=512, help="tokens in one step")
    logits.add_argument("-fa", "--flash-attn", type=int, choices=(-1, 0, 1), default=0)
    logits.add_argument("-ctk", "--kv-type", choices=KV_TYPES, default="f32")
    args = parser.parse_args()
    model = LlamaModel(args.peer_dir, args.model, quiet=not args.verbose)
    if args.command == "tokenize":
        print(*model.tokenize(args.text.read_bytes())[:args.n])
        return
    values = model.logits(ids_from(args), args.threads, args.ubatch, args.flash_attn, args.kv_type)
    save_logits(args.out, values)
    print(f"{args.out}: {values.shape[0]} x {values.shape[1]} logits, llama.cpp {model.version}")


if __name__ == "__main__":
    main()
