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
FOLDERS = ("cpu-avx512", "cpu-avx512/vnni_peer", "cpu-avx2")
MEASURES = {"decode_d0": "decode, depth 0", "decode_d4096": "decode, depth 4096",
            "prefill_512": "prefill 512", "first_token": "start to first token"}


def cell(row):
    low, high = row["ratio_ci"]
    limit = row["pct_of_limit"]
    share = "" if limit is None else f", {limit:.0f} % of the read ceiling"
    return f"{row['ours']:.0f} {row['unit']}, **{row['ratio']:.2f}×** [{low:.2f}, {high:.2f}]{share}"


def commits_of(folder, summary):
    """Rows are measured one by one: the commits of the raw files that the table's rows come from."""
    found = set()
    for raw in {row["raw"] for row in summary["rows"] if row["id"] in MEASURES}:
        commit, *changed = json.loads((ROOT / "bench/results" / folder / raw).read_text())["commit"].split("-")
        found.add("-".join([commit[:12], *changed]))  # "-dirty": measured with changes that were not committed
    return ", ".join(sorted(found))


def table(folder):
    summary = json.loads((ROOT / "bench/results" / folder / "summary.json").read_text())
    rows = {(row["model"], row["id"]): row for row in summary["rows"]}
    models = sorted({model for model, measure in rows if measure in MEASURES})
    peers = sorted({row["peer"].split(", flash")[0] for row in summary["rows"]
                    if row["id"] in MEASURES})
    lines = [f"`bench/results/{folder}` ({summary['date']}, commit {commits_of(folder, summary)}): "
             f"{summary['machine']['cpu']}, 2 threads; peer: {'; '.join(peers)}.", "",
             "| model | " + " | ".join(MEASURES.values()) + " |", "|---" * (len(MEASURES) + 1) + "|"]
    for model in models:
        cells = [cell(rows[model, m]) if (model, m) in rows else "–" for m in MEASURES]
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def section():
    present = [f for f in FOLDERS if (ROOT / "bench/results" / f / "summary.json").exists()]
    return "\n\n".join([BEGIN] + [table(folder) for folder in present] + [END])


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
