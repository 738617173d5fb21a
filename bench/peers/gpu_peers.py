#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fathom on a GPU, alone or beside llama.cpp's CUDA build: the same file and cache type, rounds in
random order.

Each round runs every group of tests; in a group every program runs once, one right after the
other, in random order, in blocks of seconds. Only ratios inside a round are compared, of medians
over a block's repetitions but the first, in which llama.cpp still warms up. The read ceiling is
measured by Fathom between its own repetitions. Depth is reached by a real prefill in llama.cpp and
by a synthetic cache fill in Fathom; the group `fill` (of Fathom alone) measures what that changes.
Writes peers_<model>.json (or ours_<model>.json without a peer) with all samples, and the rows of
summary.json; exits 1 when a target is missed or a group could not be measured, 4 when a gate says
that the figures cannot be trusted.

A model is SHAPE-TYPE of `fathom synth`, written when missing. Plain Python 3.11, no third-party
package, no network: all paths come from flags.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time

import results
from peers import GATE_FAILED, run_json
from round_stats import ratio_summary

FILL_LIMIT = 0.01     # a synthetic cache may change a step's time by so much
CEILING_RATIO = 1.03  # of the read ceiling: no step is faster
LEAST_CEILING_GBPS = {"h200": 4500.0}
BATCH_CELLS = 256     # llama.cpp pads the cache of a sequence to a multiple

# group: its tests, id: (prompt tokens, generated tokens, depth, sequences).
GROUPS = {
    "decode": {"decode_d0": (0, 64, 0, 1), "decode_d1641": (0, 64, 1641, 1),
               "decode_d4096": (0, 64, 4096, 1), "decode_d32768": (0, 64, 32768, 1)},
    "deep": {"decode_d131072": (0, 64, 131072, 1)},
    "kvq8": {"kvq8_d32768": (0, 64, 32768, 1)},
    "prefill": {"prefill_512": (512, 0, 0, 1), "prefill_3314": (3314, 0, 0, 1),
                "prefill_32768": (32768, 0, 0, 1)},
    "batch": {"batch8_d2048": (0, 64, 2048, 8), "batch32_d2048": (0, 64, 2048, 32)},
    "fill": {"fill_d4096": (0, 64, 4096, 1)},
}
DEFAULT_GROUPS = ("decode", "kvq8", "prefill", "batch")
ROUNDS = {"decode": 5, "fill": 3}  # of the default; 3 of the others
REPETITIONS = {"fill": 15}  # 3 of the others

# id: [(field, comparison, bound)], for the model of the issue.
TARGETS = {("qwen2.5-7b-q4_k_m", row_id): targets for row_id, targets in {
    "decode_d0": (("pct_of_limit", ">=", 80.0), ("ratio", ">=", 3.0)),
    "decode_d1641": (("pct_of_limit", ">=", 80.0), ("ratio", ">=", 3.0)),
    "decode_d4096": (("pct_of_limit", ">=", 80.0), ("ratio", ">=", 3.0)),
    "decode_d32768": (("pct_of_limit", ">=", 80.0), ("ratio", ">=", 2.6)),
    "decode_d131072": (("pct_of_limit", ">=", 80.0), ("ratio", ">=", 1.8)),
    "kv_marginal_d32768": (("pct_of_limit", ">=", 85.0),),
    "kvq8_over_f16_d32768": (("ours", ">=", 1.0),),
    "prefill_512": (("ratio", ">=", 1.5),),
    "prefill_3314": (("ratio", ">=", 3.0),),
    "prefill_32768": (("ratio", ">=", 2.2),),
    "batch8_d2048": (("pct_of_limit", ">=", 65.0), ("ratio", ">=", 5.0)),
    "batch32_d2048": (("pct_of_limit", ">=", 55.0), ("ratio", ">=", 3.5)),
}.items()}
FILL_TARGET = (("ratio", "<=", 1.0 + FILL_LIMIT), ("ratio", ">=", 1.0 - FILL_LIMIT))


# What is run.

def numbers(tests, place):
    """The distinct values of one place of the tests, in order, as a list flag takes them."""
    return ",".join(str(v) for v in dict.fromkeys(test[place] for test in tests.values()))


def kv_type(group):
    return "q8_0" if group == "kvq8" else "f16"


def fathom_command(args, group, model_path):
    tests = GROUPS[group]
    fill = "real,synthetic" if group == "fill" else "synthetic"
    return [str(args.fathom), "bench", str(model_path), "--backend", "cuda", "--json", "-q",
            "-p", numbers(tests, 0), "-n", numbers(tests, 1), "-d", numbers(tests, 2),
            "-npl", numbers(tests, 3), "--fill", fill, "-ctk", kv_type(group),
            "-ctv", kv_type(group), "-ub", str(args.ubatch), "-r", str(repetitions(args, group)),
            "--seed", str(args.seed)]


def llama_command(args, group, model_path):
    tests = GROUPS[group]
    common = ["-m", str(model_path), "-ngl", "99", "-fa", "on", "-ctk", kv_type(group),
              "-ctv", kv_type(group), "-ub", str(args.ubatch)]
    if group != "batch":
        return [str(args.peer), "bench", *common, "-p", numbers(tests, 0), "-n", numbers(tests, 1),
                "-d", numbers(tests, 2), "-r", str(repetitions(args, group)), "-o", "json"]
    widest = max(test[3] for test in tests.values())
    tokens = max(test[1] + test[2] for test in tests.values())
    cells = widest * (-(-tokens // BATCH_CELLS) * BATCH_CELLS)
    return [str(args.peer), "batched-bench", *common, "-c", str(cells), "-npp", numbers(tests, 2),
            "-ntg", numbers(tests, 1), "-npl", numbers(tests, 3), "--output-format", "jsonl"]


def repetitions(args, group):
    return args.repetitions or REPETITIONS.get(group, 3)


def rows_by_test(tests, rows):
    """{id: row}: each test's row of what a program printed."""
    found = {}
    for row in rows:
        key = (row["n_prompt"], row["n_gen"], row["n_depth"], row.get("n_seqs", 1))
        for test_id, test in tests.items():
            if test == key:
                found[test_id] = row
    missing = [test_id for test_id in tests if test_id not in found]
    if missing:
        raise SystemExit(f"found no row of {', '.join(missing)}")
    return found


def batched_rows(text):
    """Rows of llama-batched-bench, one JSON object a line, in llama-bench's form."""
    rows = []
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            row = json.loads(line)
            rows.append({**row, "n_prompt": 0, "n_gen": row["tg"], "n_depth": row["pp"],
                         "n_seqs": row["pl"], "samples_ts": [row["speed_tg"]]})
    return rows


def run_text(command):
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}: "
                         f"{done.stderr.strip()[-600:]}")
    return done.stdout, time.monotonic() - begin


def fathom_block(args, group, model_path):
    command = fathom_command(args, group, model_path)
    document, wall_s = run_json(command, accepted=(0, GATE_FAILED))
    rows = document["summary"]["rows"]
    block = {"arm": "fathom", "command": command, "wall_s": wall_s, "gates": document["gates"],
             "orders": document["summary"]["orders"], "machine": document["machine"],
             "ceiling_gbps": [s["gbps"] for s in document["samples"] if s["arm"] == "ceiling"]}
    if group == "fill":
        block["rows"] = {row["kv_fill"]: row for row in rows}
    else:
        block["rows"] = rows_by_test(GROUPS[group], rows)
    return block


def llama_block(args, group, model_path):
    command = llama_command(args, group, model_path)
    if group == "batch":
        text, wall_s = run_text(command)
        rows = batched_rows(text)
    else:
        rows, wall_s = run_json(command)
    found = rows_by_test(GROUPS[group], rows)
    return {"arm": "llama", "command": command, "wall_s": wall_s, "rows": found}


def arms_of(args, group):
    arms = {"fathom": fathom_block}
    if args.peer and group != "fill":
        arms["llama"] = llama_block
    return arms


def measure(args, seconds, model_path, rng, keep):
    """keep({group: [{"round", "started_s", "clocks", "blocks"}]}) after every group: blocks in the
    order in which they ran, clocks the GPU's state before the first and after each. Ends early,
    between groups, when the next would go beyond `seconds`. A group in which a program fails is
    given up and the others go on; {group: why}."""
    begin, longest, failed = time.monotonic(), {}, {}
    rounds = {group: [] for group in args.groups}
    for number in range(max(rounds_of(args, group) for group in args.groups)):
        order = [group for group in args.groups if number < rounds_of(args, group)]
        rng.shuffle(order)
        for group in order:
            spent = time.monotonic() - begin
            if group in failed or number > 0 and spent + longest[group] > seconds:
                continue
            arms = list(arms_of(args, group).items())
            rng.shuffle(arms)
            start = time.monotonic()
            clocks, blocks = [gpu_state()], []
            try:
                for _, run in arms:
                    blocks.append(run(args, group, model_path))
                    clocks.append(gpu_state())
            except SystemExit as error:
                failed[group] = str(error)
                print(f"group {group} is given up: {error}", file=sys.stderr, flush=True)
                continue
            longest[group] = max(longest.get(group, 0.0), time.monotonic() - start)
            rounds[group].append({"round": number, "started_s": start - begin, "clocks": clocks,
                                  "blocks": blocks})
            keep(rounds)
            print(f"round {number} {group:8} " + "  ".join(
                f"{b['arm']} {b['wall_s']:.0f} s" for b in blocks), file=sys.stderr, flush=True)
    return failed


def rounds_of(args, group):
    return args.rounds or ROUNDS.get(group, 3)


# The machine.

GPU_FIELDS = ("name", "driver_version", "memory.total", "memory.used", "utilization.gpu",
              "clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")


def gpu_state():
    """{field: text} of the first GPU now."""
    done = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(GPU_FIELDS)}",
                           "--format=csv,noheader", "-i", "0"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"nvidia-smi ended with {done.returncode}: {done.stdout}{done.stderr}")
    return dict(zip(GPU_FIELDS, (field.strip() for field in done.stdout.split(","))))


def gpu_machine(state):
    cpu, _ = results.cpu_info()
    return {"class": state["name"].removeprefix("NVIDIA ").lower().replace(" ", "_"),
            "gpu": state["name"], "driver": state["driver_version"],
            "gpu_memory": state["memory.total"], "cpu": cpu,
            "kernel": results.platform.release()}


# What was measured -> rows and gates. No file, process or clock below this line up to the next.

def block_of(entry, arm):
    return next((block for block in entry["blocks"] if block["arm"] == arm), None)


def value_of(block, test_id):
    """Tokens a second: the median of a block's repetitions but the first, for llama.cpp's first is
    slower than its others (a prompt of 512 by a fifth), after its own warm-up too."""
    samples = block["rows"][test_id]["samples_ts"]
    return statistics.median(samples[1:] or samples)


def limit_of(row, value):
    """tok/s that the read ceiling beside these samples allows; None for prefill, which computes."""
    if row["n_gen"] == 0 or not row["pct_of_peak"]:
        return None
    return 100.0 * value / row["pct_of_peak"]


def values_of(entries, test_id):
    """[{arm: tok/s}], one a round."""
    return [{block["arm"]: value_of(block, test_id) for block in entry["blocks"]}
            for entry in entries]


def row_of(row_id, model, unit, rounds, peer, raw, limits=()):
    """rounds: [{"fathom": value, "llama": value}], the latter where there is a peer."""
    has_peer = peer is not None and all("llama" in r for r in rounds)
    row = dict.fromkeys(results.ROW_KEYS)
    row.update(id=row_id, model=model, unit=unit, raw=raw,
               ours=statistics.median(r["fathom"] for r in rounds))
    if has_peer:
        summary = ratio_summary(rounds, "fathom", "llama")
        row.update(peer=peer, peer_value=summary["peer_value"], ratio=summary["ratio"],
                   ratio_ci=summary["ratio_ci"])
    if limits and all(limits):
        row.update(limit=statistics.median(limits), pct_of_limit=statistics.median(
            100.0 * r["fathom"] / limit for r, limit in zip(rounds, limits)))
    return row


def speed_row(test_id, model, entries, peer, raw):
    rounds = values_of(entries, test_id)
    limits = [limit_of(block_of(entry, "fathom")["rows"][test_id], r["fathom"])
              for entry, r in zip(entries, rounds)]
    return row_of(test_id, model, "tok/s", rounds, peer, raw, limits)


def step_bytes(row):
    return row["gbps"] * row["median_ns"] / row["n_gen"]


def marginal_rows(model, entries, peer, raw):
    """How fast the cache is read: the bytes that lie between two depths over the time between them.
    The bytes are those that Fathom declares; for llama.cpp, which reads as many, over its time.
    No row when a deeper step took no longer: then noise alone was measured."""
    near, far = "decode_d4096", "decode_d32768"
    rounds, limits = [], []
    for entry in entries:
        ours = block_of(entry, "fathom")
        extra_bytes = step_bytes(ours["rows"][far]) - step_bytes(ours["rows"][near])
        extra_ns = {b["arm"]: 1e9 / value_of(b, far) - 1e9 / value_of(b, near)
                    for b in entry["blocks"]}
        if min(extra_ns.values()) <= 0:
            return []
        rounds.append({arm: extra_bytes / ns for arm, ns in extra_ns.items()})
        limits.append(ours["rows"][far]["peak_gbps"])
    return [row_of("kv_marginal_d32768", model, "GB/s", rounds, peer, raw, limits)]


def fill_row(model, entries, raw):
    """A step behind a synthetic cache over one behind a real prefill, inside Fathom's rounds."""
    rounds = []
    for entry in entries:
        rows = entry["blocks"][0]["rows"]
        for pair in zip(rows["synthetic"]["samples_ns"], rows["real"]["samples_ns"]):
            us = [ns * 1e-3 / rows["real"]["n_gen"] for ns in pair]
            rounds.append(dict(zip(("synthetic", "real"), us)))
    summary = ratio_summary(rounds, "synthetic", "real")
    row = dict.fromkeys(results.ROW_KEYS)
    return {**row, "id": "fill_d4096", "model": model, "unit": "us a step", "ours": summary["ours"],
            "peer": "fathom behind a real prefill", "peer_value": summary["peer_value"],
            "ratio": summary["ratio"], "ratio_ci": summary["ratio_ci"], "raw": raw}


def q8_row(model, rounds, raw):
    """How much faster a q8_0 cache is than an f16 one at depth 32,768."""
    f16 = {entry["round"]: value_of(block_of(entry, "fathom"), "decode_d32768")
           for entry in rounds["decode"]}
    values = [{"fathom": value_of(block_of(entry, "fathom"), "kvq8_d32768") / f16[entry["round"]]}
              for entry in rounds["kvq8"] if entry["round"] in f16]
    return row_of("kvq8_over_f16_d32768", model, "times f16", values, None, raw)


def rows_of_rounds(record):
    """All rows of a raw file."""
    model, rounds, raw = record["model"], record["rounds"], record["raw"]
    peer = record["peer"]["name"] if record["peer"] else None
    rows = []
    for group, entries in rounds.items():
        if entries and group == "fill":
            rows.append(fill_row(model, entries, raw))
        elif entries:
            rows += [speed_row(test_id, model, entries, peer, raw) for test_id in GROUPS[group]]
    if rounds.get("decode"):
        rows += marginal_rows(model, rounds["decode"], peer, raw)
    if rounds.get("decode") and rounds.get("kvq8"):
        rows.append(q8_row(model, rounds, raw))
    return rows


def fathom_blocks(rounds):
    return [block for entries in rounds.values() for entry in entries
            for block in entry["blocks"] if block["arm"] == "fathom"]


def ceiling_gates(rounds, machine_class):
    samples = [gbps for block in fathom_blocks(rounds) for gbps in block["ceiling_gbps"]]
    least = LEAST_CEILING_GBPS.get(machine_class)
    found = statistics.median(samples) if samples else None
    gates = [{"id": "ceiling", "pass": found is not None and found >= (least or 0.0),
              "value": found, "limit": least,
              "why": "GB/s, median of all samples of the read ceiling"}]
    for group, entries in rounds.items():
        for test_id in GROUPS[group] if group != "fill" else ():
            shares = [block_of(entry, "fathom")["rows"][test_id]["pct_of_peak"]
                      for entry in entries]
            if shares and all(shares):
                ratio = statistics.median(shares) / 100.0
                gates.append({"id": "ceiling", "pass": ratio <= CEILING_RATIO, "value": ratio,
                              "limit": CEILING_RATIO,
                              "why": f"{test_id}: share of the read ceiling"})
    return gates


def hash_gates(rounds):
    """Every process of every round ends with the same logits."""
    gates = []
    for group, entries in rounds.items():
        for key in sorted({k for entry in entries for k in block_of(entry, "fathom")["rows"]}):
            hashes = {block_of(entry, "fathom")["rows"][key]["logits_hash"] for entry in entries}
            gates.append({"id": "output_hash", "pass": len(hashes) == 1 and "" not in hashes,
                          "value": len(hashes), "limit": 1,
                          "why": f"{group} {key}: hashes of the last logits over all rounds"})
    return gates


def idle_gate(before):
    used = float(before["memory.used"].split()[0])
    return {"id": "gpu_idle", "pass": used < 2048.0, "value": used, "limit": 2048.0,
            "why": "MiB of the GPU's memory that others held before the first block"}


def gates_of_rounds(rounds, machine, before):
    return [idle_gate(before), *ceiling_gates(rounds, machine["class"]), *hash_gates(rounds)]


def targets_of(row):
    if row["id"].startswith("fill_"):
        return FILL_TARGET
    return TARGETS.get((row["model"], row["id"]), ())


def verdict(row):
    """'met', 'missed', or 'none' where no target is set or the peer was not there to compare."""
    judged = [(row[field], comparison, bound) for field, comparison, bound in targets_of(row)
              if row[field] is not None]
    if not judged:
        return "none"
    met = all(v >= bound if comparison == ">=" else v <= bound for v, comparison, bound in judged)
    return "met" if met else "missed"


# Output and the command line.

def print_row(row):
    peer = "" if row["ratio"] is None else (
        f"  peer {row['peer_value']:9.1f}  ratio {row['ratio']:6.3f} "
        f"[{row['ratio_ci'][0]:.3f}, {row['ratio_ci'][1]:.3f}]")
    limit = "" if row["pct_of_limit"] is None else f"  {row['pct_of_limit']:5.1f} % of limit"
    goal = ", ".join(f"{field} {comparison} {bound:g}"
                     for field, comparison, bound in targets_of(row))
    ours = f"{row['ours']:9.{1 if row['ours'] >= 10 else 3}f}"
    print(f"{row['model']:20} {row['id']:21} {ours} {row['unit']:9}{peer}{limit}"
          + (f"  target {goal}: {verdict(row)}" if goal else ""), flush=True)


def model_path_of(args, model):
    shape, _, file_type = model.rpartition("-")
    path = args.models_dir / f"{model}.gguf"
    if not path.exists():
        args.models_dir.mkdir(parents=True, exist_ok=True)
        run_text([str(args.fathom), "synth", str(path), "--shape", shape, "--type", file_type,
                  "-q"])
    return path


def measure_model(args, model, seconds, rng):
    path = model_path_of(args, model)
    before = gpu_state()
    machine = gpu_machine(before)
    raw = f"{'peers' if args.peer else 'ours'}_{model}.json"
    record = {"model": model, "raw": raw, "file_bytes": path.stat().st_size, "machine": machine,
              "commit": args.commit, "date": results.today(), "seed": args.seed,
              "ubatch": args.ubatch, "peer": peer_of(args), "gpu_before": before}

    def keep(rounds):
        record.update(rounds=rounds, gates=gates_of_rounds(rounds, machine, before))
        results.write_json(args.out / raw, record)

    failed = measure(args, seconds, path, rng, keep)
    if "rounds" not in record:
        raise SystemExit(f"{model}: no group could be measured")
    rows = rows_of_rounds(record)
    results.update_summary(args.out, args.commit, machine, rows)
    for row in rows:
        print_row(row)
    return rows, record["gates"], failed


def peer_of(args):
    if not args.peer:
        return None
    build = results.read_or_none(args.peer.parent / "build_line.txt") or "llama.cpp, CUDA"
    return {"name": build.split(" (")[0] + ", flash attention on", "build": build}


def parse_args(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fathom", type=pathlib.Path, required=True)
    parser.add_argument("--peer", type=pathlib.Path, help="llama-peer of pack_peer.sh; without it "
                        "Fathom is measured alone")
    parser.add_argument("--models-dir", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--models", nargs="+", default=["qwen2.5-7b-q4_k_m"])
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(DEFAULT_GROUPS))
    parser.add_argument("--rounds", type=int, help="of every group, instead of 5 or 3")
    parser.add_argument("-r", "--repetitions", type=int, help="samples in one block")
    parser.add_argument("--seconds", type=float, default=480.0,
                        help="for all models; no group begins that would end later, but each "
                        "runs once")
    parser.add_argument("--ubatch", type=int, default=512, help="-ub of both programs")
    parser.add_argument("--seed", type=int, default=1, help="order of groups and programs")
    parser.add_argument("--commit", required=True, help="of the program")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse_args(argv)
    rng = random.Random(args.seed)
    all_rows, gates, given_up = [], [], []
    end = time.monotonic() + args.seconds
    for number, model in enumerate(args.models):
        seconds = (end - time.monotonic()) / (len(args.models) - number)
        rows, model_gates, failed = measure_model(args, model, seconds, rng)
        given_up += failed
        all_rows += rows
        gates += model_gates
    failed = results.report_failed(gates)
    missed = [row for row in all_rows if verdict(row) == "missed"]
    return 1 if given_up else GATE_FAILED if failed else 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
