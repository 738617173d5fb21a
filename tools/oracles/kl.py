#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far logits lie from a base: mean KL(base || other) per token in nats, and top-1 agreement.

Both files hold [n_tokens, vocab_size] logits of the same ids (logits_file.py). With the ids also
the perplexity of each: row t predicts id t + 1.
"""
import argparse
import json
import pathlib

import numpy as np

from logits_file import load_logits, parse_ids


def log_softmax(rows):
    rows = np.asarray(rows, np.float64)
    rows = rows - rows.max(axis=1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


def in_chunks(n_rows, chunk=64):
    return (slice(begin, min(n_rows, begin + chunk)) for begin in range(0, n_rows, chunk))


def compare(base, other):
    if base.shape != other.shape:
        raise SystemExit(f"shapes differ: base {base.shape}, other {other.shape}")
    kl, same_top, worst_delta = [], 0, 0.0
    for rows in in_chunks(len(base)):
        log_p, log_q = log_softmax(base[rows]), log_softmax(other[rows])
        if not (np.isfinite(log_p).all() and np.isfinite(log_q).all()):
            raise SystemExit(f"logits that are not finite in rows {rows.start}..{rows.stop}")
        kl.append((np.exp(log_p) * (log_p - log_q)).sum(axis=1))
        same_top += int((log_p.argmax(axis=1) == log_q.argmax(axis=1)).sum())
        worst_delta = max(worst_delta, float(np.abs(base[rows] - other[rows]).max()))
    kl = np.concatenate(kl)
    return {"tokens": len(kl), "mean_kl": float(kl.mean()), "median_kl": float(np.median(kl)),
            "p99_kl": float(np.quantile(kl, 0.99)), "max_kl": float(kl.max()),
            "top1_agreement": same_top / len(kl), "max_abs_delta_logit": worst_delta}


def negative_log_likelihood(logits, ids, first=0):
    """NLL of ids[t + 1] by row t, for t >= first; [len(ids) - 1 - first] values."""
    out = []
    for rows in in_chunks(len(ids) - 1):
        targets = np.asarray(ids[rows.start + 1:rows.stop + 1])
        out.append(-log_softmax(logits[rows])[np.arange(len(targets)), targets])
    return np.concatenate(out)[first:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", help="logits of the oracle")
    parser.add_argument("others", nargs="+", help="logits to judge")
    parser.add_argument("--vocab-size", type=int, help="row width, for raw f32 files")
    parser.add_argument("--ids-file", type=pathlib.Path, help="the ids, for perplexities")
    parser.add_argument("--json", type=pathlib.Path, help="write the result here")
    args = parser.parse_args()
    base = load_logits(args.base, args.vocab_size)
    ids = parse_ids(args.ids_file.read_text())[:len(base)] if args.ids_file else None
    rows = []
    for path in args.others:
        other = load_logits(path, args.vocab_size)
        row = {"other": pathlib.Path(path).name, **compare(base, other)}
        if ids:
            row["base_perplexity"], row["perplexity"] = (
                float(np.exp(negative_log_likelihood(x, ids).mean())) for x in (base, other))
        rows.append(row)
        print(f"{row['other']}: mean KL {row['mean_kl']:.3e}, p99 {row['p99_kl']:.3e}, top-1 "
              f"{100 * row['top1_agreement']:.2f} % over {row['tokens']} tokens"
              + (f", perplexity {row['perplexity']:.4f} (base {row['base_perplexity']:.4f})"
                 if ids else ""))
    if args.json:
        args.json.write_text(json.dumps({"base": pathlib.Path(args.base).name, "rows": rows},
                                        indent=1) + "\n")


if __name__ == "__main__":
    main()
