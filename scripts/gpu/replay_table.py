#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""replay_table.py FILE...: results of `fathom attribute --json` as the tables of docs/replay.md. Plain Python 3.11."""
import json
import pathlib
import sys


def us(ns):
    return f"{ns * 1e-3:.1f}"


def growth_table(name, a):
    growth, total, rest = a["closure"]["growth"], a["closure"]["sum"], a["closure"]["residual"]
    lines = [f"{name}: {a['n_parallel']} sequences, {a['rounds']} rounds; step {us(growth['ns'])} us "
             f"[{us(growth['ci_ns'][0])}, {us(growth['ci_ns'][1])}], sum {us(total['ns'])}, left over "
             f"{us(rest['ns'])} [{us(rest['ci_ns'][0])}, {us(rest['ci_ns'][1])}] of {us(a['closure']['limit_ns'])}"]
    for op in a["ops"]:
        lines.append(f"  {op['op']:22} {us(op['ns'][0]):>8} -> {us(op['ns'][1]):>8}  "
                     f"{us(op['growth']['ns']):>8} us")
    return lines


def main():
    for path in map(pathlib.Path, sys.argv[1:]):
        try:
            document = json.loads(path.read_text())
            a = document["summary"]["attribution"]
        except (ValueError, KeyError) as error:
            print(f"{path.name}: no attribution ({error!r})")
            continue
        print("\n".join(growth_table(path.stem, a)))
        for d in a["diagnoses"]:
            print(f"  {d['op']}: {d['verdict']}; " + "; ".join(d["known"]))
        for c in a["confirmations"]:
            effects = "; ".join(f"{e['what']} {us(e['base_ns'])} -> {us(e['changed_ns'])} us" for e in c["effects"])
            probed = ", ".join(f"{p['memory']} {p['us'][0]:.1f} -> {p['us'][1]:.1f}" for p in c["probed"])
            print(f"  {c['knob']}: {c['problem'] or effects}; alone {probed}; engine x{c['engine_ratio']:.2f}")
        for gate in document["gates"]:
            if not gate["pass"]:
                print(f"  gate {gate['id']}: {gate['why']}")


if __name__ == "__main__":
    main()
