#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The results table of README.md, made from the committed summary.json files.

usage: results_table.py [--check]   writes the table between its marks, or fails when it differs
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- results: tools/results_table.py -->", "<!-- end of results -->"
FOLDERS = ("cpu-avx512", "cpu-avx512/vnni_peer", "cpu-avx512/zen4", "cpu-avx2")
GPU_FOLDERS = ("h200",)
MEASURES = {"decode_d0": "decode, depth 0", "decode_d4096": "decode, depth 4096",
            "prefill_512": "prefill 512", "first_token": "start to first token"}

GPU_MEASURES = {
    "decode_d0": "decode, depth 0", "decode_d1641": "decode, depth 1,641", "decode_d4096": "decode, depth 4,096",
    "decode_d32768": "decode, depth 32,768", "decode_d131072": "decode, depth 131,072",
    "kvq8_d32768": "decode, depth 32,768, q8_0 cache", "batch8_d2048": "8 sequences at depth 2,048",
    "batch32_d2048": "32 sequences at depth 2,048", "kv_marginal_d32768": "cache read, from depth 4,096 to 32,768",
    "prefill_512": "prefill 512", "prefill_3314": "prefill 3,314", "prefill_32768": "prefill 32,768"}  # fmt: skip


def cell(row):
    low, high = row["ratio_ci"]
    limit = row["pct_of_limit"]
    share = "" if limit is None else f", {limit:.0f} % of the read ceiling"
    return f"{row['ours']:.0f} {row['unit']}, **{row['ratio']:.2f}×** [{low:.2f}, {high:.2f}]{share}"


def commits_of(folder, summary, measures):
    """Rows are measured one by one: the commits of the raw files that the table's rows come from."""
    found = set()
    for raw in {row["raw"] for row in summary["rows"] if row["id"] in measures}:
        commit, *changed = json.loads((ROOT / "bench/results" / folder / raw).read_text())["commit"].split("-")
        found.add("-".join([commit[:12], *changed]))  # "-dirty": measured with changes that were not committed
    return ", ".join(sorted(found))


def table(folder):
    summary = json.loads((ROOT / "bench/results" / folder / "summary.json").read_text())
    rows = {(row["model"], row["id"]): row for row in summary["rows"]}
    models = sorted({model for model, measure in rows if measure in MEASURES})
    peers = sorted({row["peer"].split(", flash")[0] for row in summary["rows"]
                    if row["id"] in MEASURES})
    lines = [f"`bench/results/{folder}` ({summary['date']}, commit {commits_of(folder, summary, MEASURES)}): "
             f"{summary['machine']['cpu']}, 2 threads; peer: {'; '.join(peers)}.", "",
             "| model | " + " | ".join(MEASURES.values()) + " |", "|---" * (len(MEASURES) + 1) + "|"]
    for model in models:
        cells = [cell(rows[model, m]) if (model, m) in rows else "–" for m in MEASURES]
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def gpu_cells(row):
    """Ours, the peer's, the ratio with its interval, the share of the read ceiling."""
    ratio = "–" if row["ratio"] is None else "**{:.2f}×** [{:.2f}, {:.2f}]".format(row["ratio"], *row["ratio_ci"])
    share = "–" if row["pct_of_limit"] is None else f"{row['pct_of_limit']:.0f} %"
    peer = "–" if row["peer_value"] is None else f"{row['peer_value']:,.0f}"
    return [f"{row['ours']:,.0f} {row['unit']}", peer, ratio, share]


def rounds_of(folder, summary):
    """"3 to 5 rounds": over the groups of tests in the raw files that the table's rows come from."""
    counts = set()
    for raw in {row["raw"] for row in summary["rows"] if row["id"] in GPU_MEASURES}:
        groups = json.loads((ROOT / "bench/results" / folder / raw).read_text())["rounds"]
        counts |= {len(entries) for entries in groups.values() if entries}
    return f"{min(counts)} to {max(counts)} rounds" if len(counts) > 1 else f"{max(counts)} rounds"


def gpu_table(folder):
    """A table a model, a row a measure."""
    summary = json.loads((ROOT / "bench/results" / folder / "summary.json").read_text())
    rows = {(row["model"], row["id"]): row for row in summary["rows"]}
    peers = sorted({row["peer"] for row in summary["rows"] if row["peer"] and row["id"] in GPU_MEASURES})
    machine = summary["machine"]
    parts = [f"`bench/results/{folder}` ({summary['date']}, commit {commits_of(folder, summary, GPU_MEASURES)}): "
             f"{machine['gpu']}, driver {machine['driver']}, {rounds_of(folder, summary)}"
             + (f"; peer: {'; '.join(peers)}" if peers else "") + "."]
    for model in sorted({model for model, measure in rows if measure in GPU_MEASURES}):
        lines = [f"| {model} | Fathom | llama.cpp | ratio | of the read ceiling |", "|---|---|---|---|---|"]
        lines += [f"| {name} | " + " | ".join(gpu_cells(rows[model, measure])) + " |"
                  for measure, name in GPU_MEASURES.items() if (model, measure) in rows]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def section():
    def present(folders):
        return [f for f in folders if (ROOT / "bench/results" / f / "summary.json").exists()]
    tables = [table(f) for f in present(FOLDERS)] + [gpu_table(f) for f in present(GPU_FOLDERS)]
    return "\n\n".join([BEGIN] + tables + [END])


def main():
    path = ROOT / "README.md"
    text = path.read_text()
    head, _, rest = text.partition(BEGIN)
    _, found, tail = rest.partition(END)
    if not found:
        raise SystemExit(f"README.md: found no '{BEGIN}' … '{END}'")
    new = head + section() + tail
    if "--check" in sys.argv[1:]:
        if new != text:
            raise SystemExit("README.md: the results differ from bench/results; run tools/results_table.py")
    else:
        path.write_text(new)


if __name__ == "__main__":
    main()
