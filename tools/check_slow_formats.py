#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the table of slow formats (src/kernels/quant/slow_formats.hpp) to the committed figures.

A format is slow on an instruction set when its decode product reached less than 85 % of the read
ceiling there (format_decode_* of bench/results/cpu-<isa>/summary.json, by bench/targets.py).
usage: check_slow_formats.py [--self-test]
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = "src/kernels/quant/slow_formats.hpp"
LIMIT_PCT = 85.0
ENTRY = re.compile(r'\{"(\w+)", DType::(\w+), (\d+)\}')


def measured(summary):
    """{(isa, type): share of the read ceiling in %}."""
    return {(row["model"], row["id"].removeprefix("format_decode_")): row["pct_of_limit"]
            for row in summary["rows"] if row["id"].startswith("format_decode_")}


def problems(listed, shares):
    """listed: {(isa, type): share in %} of the table."""
    found = []
    for (isa, name), pct in sorted(shares.items()):
        expected = round(pct) if pct < LIMIT_PCT else None
        if listed.get((isa, name)) != expected:
            found.append(f"{TABLE}: {isa} {name} reached {pct:.1f} %, the table has "
                         f"{listed.get((isa, name), 'no row')}")
    found += [f"{TABLE}: {isa} {name} is listed and was never measured"
              for isa, name in sorted(listed.keys() - shares.keys())]
    return found


def self_test():
    shares = measured({"rows": [
        {"model": "avx2", "id": "format_decode_q4_0", "pct_of_limit": 90.0},
        {"model": "avx2", "id": "format_decode_q2_k", "pct_of_limit": 60.0},
        {"model": "avx2", "id": "depth_linearity", "pct_of_limit": 10.0}]})
    assert problems({("avx2", "q2_k"): 60}, shares) == []
    assert len(problems({}, shares)) == 1
    assert len(problems({("avx2", "q2_k"): 61}, shares)) == 1
    assert len(problems({("avx2", "q2_k"): 60, ("avx2", "q4_0"): 90}, shares)) == 1
    assert len(problems({("avx2", "q2_k"): 60, ("avx2", "q3_k"): 50}, shares)) == 1


def main():
    self_test()
    if "--self-test" in sys.argv[1:]:
        return 0
    listed = {(isa, name): int(pct)
              for isa, name, pct in ENTRY.findall((ROOT / TABLE).read_text())}
    shares = {}
    for isa in ("avx2", "avx512"):
        path = ROOT / f"bench/results/cpu-{isa}/summary.json"
        if path.exists():
            shares |= {key: pct for key, pct in measured(json.loads(path.read_text())).items()
                       if key[0] == isa}
    found = problems(listed, shares)
    print("\n".join(found) if found else f"slow formats: ok, {len(shares)} figures")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
