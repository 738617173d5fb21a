#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real model: Fathom and llama.cpp against the exact logits of the NumPy oracle.

On one text: the same token ids; mean KL to the exact logits over 512 scored tokens and top-1
agreement, where Fathom may reach 1.15 times llama.cpp's divergence and, with f32 activations,
1e-6; perplexity over at least 4,096 scored tokens within 1.5 % of llama.cpp's. Without --fathom
only llama.cpp's figures are taken.
"""
import argparse
import json
import pathlib
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version as package_version

import numpy as np

import kl
from llama_logits import LlamaModel
from logits_file import load_logits, parse_ids
from numpy_model import Model

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench" / "peers"))
import results  # noqa: E402  machine data and commit, as in every committed result

KL_RATIO_LIMIT = 1.15
KL_F32_LIMIT = 1e-6
TOP1_LIMIT = 0.93
PERPLEXITY_LIMIT = 0.015
# (ctx, stride, most windows) as `fathom perplexity` takes them.
KL_WINDOWS = (514, 512, 1)
PERPLEXITY_WINDOWS = (512, 256, 16)

# llama.cpp as shipped comes first; the others show how far it lies from itself.
PEER_SETTINGS = {
    "default": {"ubatch": 512, "flash_attn": -1, "kv_type": "f16"},
    "flash attention off, f32 cache": {"ubatch": 512, "flash_attn": 0, "kv_type": "f32"},
    "64 tokens a step": {"ubatch": 64, "flash_attn": -1, "kv_type": "f16"},
}


def windows_of(ids, n_ctx, stride, most):
    """Windows begin every `stride` tokens; the last `stride` predictions of each are scored."""
    begins = range(0, len(ids) - n_ctx + 1, stride)[:most]
    return [(ids[begin:begin + n_ctx], n_ctx - 1 - stride) for begin in begins]


def scored_logits(logits_of, windows):
    return np.concatenate([logits_of(ids)[score_from:-1] for ids, score_from in windows])


def perplexity(logits_of, windows):
    """(perplexity, scored tokens); one window of logits in memory at a time."""
    nll = []
    for ids, score_from in windows:
        nll.append(kl.negative_log_likelihood(logits_of(ids), ids, first=score_from))
    nll = np.concatenate(nll)
    return float(np.exp(nll.mean())), len(nll)


class Fathom:
    def __init__(self, program, model, text, threads):
        self._program, self._model, self._text, self._threads = program, model, text, threads

    def _run(self, *arguments):
        command = [str(self._program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: "
                             f"{done.stderr.strip()}")
        return done.stdout

    def tokenize(self):
        return parse_ids(self._run("tokenize", self._model, "-f", self._text, "--ids"))

    def _perplexity(self, windows, *flags):
        n_ctx, stride, most = windows
        return self._run("perplexity", self._model, self._text, "-c", n_ctx, "--stride", stride,
                         "--chunks", most, "-t", self._threads, "--json", "-q", *flags)

    def logits(self, windows, *flags):
        with tempfile.NamedTemporaryFile(suffix=".logits") as file:
            self._perplexity(windows, "--save-base", file.name, *flags)
            return np.array(load_logits(file.name))

    def perplexity(self, windows):
        return json.loads(self._perplexity(windows))["summary"]


def gate(gate_id, value, limit, passed, why):
    return {"id": gate_id, "pass": bool(passed), "value": value, "limit": limit, "why": why}


def judge_fathom(fathom, ids, exact, peer):
    """Fathom's figures and its gates; peer holds the figures of llama.cpp."""
    exactly = ("--activations", "f32", "-ctk", "f32", "-ctv", "f32")
    figures = {"default": kl.compare(exact, fathom.logits(KL_WINDOWS)),
               "f32": kl.compare(exact, fathom.logits(KL_WINDOWS, *exactly))}
    summary = fathom.perplexity(PERPLEXITY_WINDOWS)
    if summary["scored_tokens"] != peer["perplexity_tokens"]:
        raise SystemExit(f"fathom scored {summary['scored_tokens']} tokens, expected "
                         f"{peer['perplexity_tokens']}: the windows differ")
    figures["perplexity"] = summary["perplexity"]
    own_ids = fathom.tokenize()
    kl_ratio = figures["default"]["mean_kl"] / peer["default"]["mean_kl"]
    top1 = figures["default"]["top1_agreement"]
    off = figures["perplexity"] / peer["perplexity"] - 1.0
    return figures, [
        gate("token_ids", len(own_ids), len(ids), own_ids == ids,
             "ids of the text equal llama.cpp's"),
        gate("kl_f32", figures["f32"]["mean_kl"], KL_F32_LIMIT,
             figures["f32"]["mean_kl"] < KL_F32_LIMIT, "mean KL with f32 activations and cache"),
        gate("kl_ratio", kl_ratio, KL_RATIO_LIMIT, kl_ratio <= KL_RATIO_LIMIT,
             "mean KL over llama.cpp's"),
        gate("top1", top1, TOP1_LIMIT, top1 >= TOP1_LIMIT,
             "same most likely token as the exact logits"),
        gate("perplexity", off, PERPLEXITY_LIMIT, abs(off) <= PERPLEXITY_LIMIT,
             "relative difference from llama.cpp's perplexity"),
    ]


def measure_peer(peer, ids, exact, threads):
    kl_windows, long_windows = windows_of(ids, *KL_WINDOWS), windows_of(ids, *PERPLEXITY_WINDOWS)
    figures = {}
    for name, setting in PEER_SETTINGS.items():
        logits = scored_logits(lambda w: peer.logits(w, threads, **setting), kl_windows)
        figures[name] = kl.compare(exact, logits)
        print(f"llama.cpp, {name}: mean KL {figures[name]['mean_kl']:.3e}, top-1 "
              f"{100 * figures[name]['top1_agreement']:.2f} %", flush=True)
    shipped = PEER_SETTINGS["default"]
    figures["perplexity"], figures["perplexity_tokens"] = perplexity(
        lambda w: peer.logits(w, threads, **shipped), long_windows)
    print(f"llama.cpp perplexity {figures['perplexity']:.4f} over {figures['perplexity_tokens']} "
          f"tokens", flush=True)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--peer-dir", required=True, help="what scripts/get_peer.sh prints")
    parser.add_argument("--fathom", type=pathlib.Path, help="the program to judge")
    parser.add_argument("--text", type=pathlib.Path,
                        default=pathlib.Path("/usr/share/common-licenses/GPL-3"))
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, help="write the result here")
    args = parser.parse_args()
    peer = LlamaModel(args.peer_dir, args.model)
    ids = peer.tokenize(args.text.read_bytes())
    exact = scored_logits(Model(args.model).logits, windows_of(ids, *KL_WINDOWS)).astype(np.float32)
    peer_figures = measure_peer(peer, ids, exact, args.threads)
    result = {
        "what": __doc__.splitlines()[0], "date": results.today(),
        "commit": results.commit_of(ROOT), "machine": results.machine_data(),
        "model": args.model.name, "text": str(args.text), "text_tokens": len(ids),
        "versions": {"llama.cpp": peer.version, "gguf": package_version("gguf"),
                     "numpy": np.__version__, "python": platform.python_version()},
        "windows": {"kl": KL_WINDOWS, "perplexity": PERPLEXITY_WINDOWS}, "llama.cpp": peer_figures}
    gates = []
    if args.fathom:
        fathom = Fathom(args.fathom, args.model, args.text, args.threads)
        result["fathom"], gates = judge_fathom(fathom, ids, exact, peer_figures)
        result["gates"] = gates
        for g in gates:
            print(f"{g['id']:10} {g['value']:.4g} limit {g['limit']:.4g}: "
                  f"{'ok' if g['pass'] else 'FAILED'}  ({g['why']})")
    if args.json:
        results.write_json(args.json, result)
    sys.exit(0 if all(g["pass"] for g in gates) else 1)


if __name__ == "__main__":
    main()
