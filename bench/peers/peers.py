#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fathom against llama.cpp: the same file, threads and KV type, in interleaved rounds.

Each round runs every arm (fathom; llama.cpp with flash attention off and on) once per test in
random order, in blocks of seconds, so that machine noise meets both; only ratios inside a round
are compared. Writes one raw file per model and the rows of summary.json to
bench/results/<machine>/, prints each measure against its target, and exits 1 when a target is
missed, 4 when a gate says that the figures cannot be trusted.

Plain Python 3.11, no third-party package, no network: all paths come from flags.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

import results
from cpu_share import ForeignShare, wait_until_idle
from round_stats import best_peer_arm, ratio_summary

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER_ARMS = {"llama_fa0": "off", "llama_fa1": "on"}
FOREIGN_LIMIT = 0.1  # share of the machine that others may use, median over the blocks of a test
GATE_FAILED = 4  # fathom's exit status when it measured, but a gate says not to trust it

# id: prompt tokens, generated tokens, depth.
TESTS = {"decode_d0": (0, 48, 0), "decode_d4096": (0, 24, 4096), "prefill_512": (512, 0, 0)}

# name: file in the models folder, and the arguments of `fathom synth` that make it.
MODELS = {
    "smollm2-135m-q4_1": ("smollm2-135m.gguf", None),
    "qwen2.5-0.5b-q4_k_m": ("qwen2.5-0.5b-q4_k_m.gguf", ("qwen2.5-0.5b", "q4_k_m")),
    "qwen2.5-0.5b-q6_k": ("qwen2.5-0.5b-q6_k.gguf", ("qwen2.5-0.5b", "q6_k")),
    "qwen2.5-0.5b-q8_0": ("qwen2.5-0.5b-q8_0.gguf", ("qwen2.5-0.5b", "q8_0")),
}

# (model, id): (field, at least) on cpu-avx512; AVX2 alone asks less of prefill.
TARGETS = {
    ("smollm2-135m-q4_1", "decode_d0"): ("ratio", 1.6),
    ("smollm2-135m-q4_1", "decode_d4096"): ("ratio", 2.2),
    ("smollm2-135m-q4_1", "prefill_512"): ("ratio", 5.0),
    ("qwen2.5-0.5b-q4_k_m", "decode_d0"): ("ratio", 1.2),
    ("qwen2.5-0.5b-q4_k_m", "decode_d4096"): ("ratio", 1.8),
    ("qwen2.5-0.5b-q4_k_m", "prefill_512"): ("ratio", 2.5),
    ("qwen2.5-0.5b-q6_k", "decode_d0"): ("pct_of_limit", 95.0),
    ("qwen2.5-0.5b-q6_k", "decode_d4096"): ("ratio", 1.4),
    ("qwen2.5-0.5b-q6_k", "prefill_512"): ("ratio", 2.3),
    ("qwen2.5-0.5b-q8_0", "decode_d0"): ("pct_of_limit", 95.0),
    ("qwen2.5-0.5b-q8_0", "decode_d4096"): ("ratio", 1.4),
    ("qwen2.5-0.5b-q8_0", "prefill_512"): ("ratio", 2.3),
}
AVX2_PREFILL_RATIO = 1.5
FIRST_TOKEN_RATIO_LIMIT = 1.0


def run_json(command, accepted=(0,)):
    """Runs a command that prints one JSON document; the document and the wall time."""
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in accepted:
        raise SystemExit(f"{' '.join(map(str, command))}\nended with {done.returncode}: "
                         f"{done.stderr.strip()[-600:]}")
    return json.loads(done.stdout), time.monotonic() - begin


def bench_flags(args, test):
    n_prompt, n_gen, depth = TESTS[test]
    return ["-p", n_prompt, "-n", n_gen, "-d", depth, "-t", args.threads, "-r", args.repetitions,
            "-ctk", args.kv_type, "-ctv", args.kv_type]


def block_command(args, arm, test, model_path):
    flags = [str(x) for x in bench_flags(args, test)]
    if arm == "fathom":
        return [str(args.fathom), "bench", str(model_path), *flags, "--json", "-q"]
    return [str(args.peer_dir / "bin" / "llama-bench"), "-m", str(model_path), "-ngl", "0",
            "-fa", PEER_ARMS[arm], *flags, "-o", "json"]


def run_block(args, arm, test, model_path):
    command = block_command(args, arm, test, model_path)
    wait_until_idle(FOREIGN_LIMIT, args.wait_idle)
    with ForeignShare() as foreign:
        if arm == "fathom":
            document, wall_s = run_json(command, accepted=(0, GATE_FAILED))
            rows, gates = document["summary"]["rows"], document["gates"]
        else:
            (rows, wall_s), gates = run_json(command), []
    if len(rows) != 1:
        raise SystemExit(f"{' '.join(command)}: found {len(rows)} rows, expected 1")
    samples = rows[0]["samples_ts"]
    return {"arm": arm, "value": statistics.median(samples), "samples_ts": samples,
            "wall_s": wall_s, "foreign_cpu_share": foreign.value, "command": command,
            "row": rows[0], "gates": gates}


def limit_of(block):
    """tok/s that the read ceiling of this very block allows; None for prefill, which computes."""
    row = block["row"]
    if row["n_gen"] == 0 or not row["pct_of_peak"]:
        return None
    return 100.0 * block["value"] / row["pct_of_peak"]


def measure_test(args, test, model_path, rng):
    """Rounds of one test: [{blocks: [...], values: {arm: tok/s}, limit}]."""
    rounds = []
    for _ in range(args.rounds):
        arms = ["fathom", *PEER_ARMS]
        rng.shuffle(arms)
        blocks = [run_block(args, arm, test, model_path) for arm in arms]
        ours = next(block for block in blocks if block["arm"] == "fathom")
        rounds.append({"blocks": blocks, "limit": limit_of(ours),
                       "values": {block["arm"]: block["value"] for block in blocks}})
    return rounds


def speed_row(test, model, rounds, peer_name, raw):
    values = [r["values"] for r in rounds]
    peer = best_peer_arm(values, list(PEER_ARMS))
    summary = ratio_summary(values, "fathom", peer)
    shares = [100.0 * r["values"]["fathom"] / r["limit"] for r in rounds if r["limit"]]
    return {"id": test, "model": model, "unit": "tok/s", "ours": summary["ours"],
            "peer": f"{peer_name}, flash attention {PEER_ARMS[peer]}",
            "peer_value": summary["peer_value"], "ratio": summary["ratio"],
            "ratio_ci": summary["ratio_ci"],
            "limit": statistics.median(r["limit"] for r in rounds) if shares else None,
            "pct_of_limit": statistics.median(shares) if shares else None, "raw": raw}


def first_token(command):
    """Seconds from process start to the first byte of text, and the peak memory of the process."""
    with ForeignShare() as foreign:
        begin = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL)
        byte = child.stdout.read(1)
        seconds = time.monotonic() - begin
        child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        child.stdout.close()
    if child.returncode or not byte:
        raise SystemExit(f"{' '.join(command)}: exit {child.returncode}, "
                         f"{'some' if byte else 'no'} text")
    return {"seconds": seconds, "peak_bytes": usage.ru_maxrss * 1024,
            "foreign_cpu_share": foreign.value, "command": command}


def run_commands(args, model_path):
    common = ["-p", "The old lighthouse keeper", "-n", "1", "-c", str(args.run_ctx),
              "-t", str(args.threads), "--temp", "0"]
    llama = [str(args.peer_dir / "bin" / "llama-completion"), "-m", str(model_path), *common,
             "-no-cnv", "--no-display-prompt", "--no-warmup", "-ngl", "0"]
    return {"fathom": [str(args.fathom), "run", str(model_path), *common], "llama": llama}


def measure_first_token(args, model_path, rng):
    """Rounds {arm: {seconds, peak_bytes}}; one unmeasured start of each warms the page cache."""
    commands = run_commands(args, model_path)
    for command in commands.values():
        first_token(command)
    rounds = []
    for _ in range(args.start_rounds):
        arms = list(commands)
        rng.shuffle(arms)
        wait_until_idle(FOREIGN_LIMIT, args.wait_idle)
        rounds.append({arm: first_token(commands[arm]) for arm in arms})
    return rounds


def first_token_row(model, rounds, peer_name, raw):
    values = [{arm: 1e3 * r[arm]["seconds"] for arm in r} for r in rounds]
    summary = ratio_summary(values, "fathom", "llama")
    return {"id": "first_token", "model": model, "unit": "ms", "ours": summary["ours"],
            "peer": peer_name, "peer_value": summary["peer_value"], "ratio": summary["ratio"],
            "ratio_ci": summary["ratio_ci"], "limit": None, "pct_of_limit": None, "raw": raw}


def weights_and_cache_bytes(args, model_path):
    command = [str(args.fathom), "inspect", str(model_path), "-c", str(args.run_ctx), "--json"]
    summary = run_json(command)[0]["summary"]
    return summary["tensor_bytes"] + summary["cache"]["bytes"]


def memory_row(model, rounds, allowed_bytes, peer_name, raw):
    values = [{arm: r[arm]["peak_bytes"] / 2**20 for arm in r} for r in rounds]
    summary = ratio_summary(values, "fathom", "llama")
    limit = allowed_bytes / 2**20
    return {"id": "peak_memory", "model": model, "unit": "MiB", "ours": summary["ours"],
            "peer": peer_name, "peer_value": summary["peer_value"], "ratio": summary["ratio"],
            "ratio_ci": summary["ratio_ci"], "limit": limit,
            "pct_of_limit": 100.0 * max(v["fathom"] for v in values) / limit, "raw": raw}


def model_path_of(args, model):
    """The file; synthetic ones are written when missing."""
    file_name, synth = MODELS[model]
    path = args.models_dir / file_name
    if not path.exists() and synth:
        args.models_dir.mkdir(parents=True, exist_ok=True)
        shape, recipe = synth
        subprocess.run([args.fathom, "synth", path, "--shape", shape, "--type", recipe], check=True,
                       stdout=subprocess.DEVNULL)
    if not path.exists():
        raise SystemExit(f"found no {path}; scripts/get_model.sh smollm2-135m obtains it")
    return path


def target_of(row, machine):
    """(field, comparison, bound) or None."""
    if row["id"] == "first_token":
        return "ratio", "<=", FIRST_TOKEN_RATIO_LIMIT
    if row["id"] == "peak_memory":
        return "pct_of_limit", "<=", 100.0
    target = TARGETS.get((row["model"], row["id"]))
    if target and row["id"].startswith("prefill") and machine == "cpu-avx2":
        target = ("ratio", AVX2_PREFILL_RATIO)
    return (target[0], ">=", target[1]) if target else None


def verdict(row, machine):
    """'met', 'missed', or 'none' where no target is set."""
    target = target_of(row, machine)
    if target is None:
        return "none"
    field, comparison, bound = target
    value = row[field]
    if value is None:
        return "missed"
    return "met" if (value >= bound if comparison == ">=" else value <= bound) else "missed"


def gates_of(test, rounds):
    """Fathom's own gates over the rounds of a test. A block's ceiling is noisy, so that gate fails
    when most rounds fail it; any other fails with one."""
    found = {}
    for entry in rounds:
        for block in entry["blocks"]:
            for gate in block["gates"]:
                found.setdefault(gate["id"], []).append(gate)
    gates = []
    for gate_id, all_rounds in found.items():
        failed = [gate for gate in all_rounds if not gate["pass"]]
        allowed = len(all_rounds) // 2 if gate_id == "ceiling" else 0
        gates.append({"id": gate_id, "pass": len(failed) <= allowed, "value": len(failed),
                      "limit": allowed,
                      "why": f"{test}: rounds that failed it" + (f"; {failed[0]['why']}" if failed
                                                                 else "")})
    return gates


def idle_gate(test, shares):
    """Were we alone? The median over the blocks of the CPU share that other processes took."""
    share = statistics.median(shares)
    return {"id": "cpu_idle", "pass": share <= FOREIGN_LIMIT, "value": round(share, 4),
            "limit": FOREIGN_LIMIT, "why": f"{test}: share of the CPUs that others used, median"}


def print_row(row, machine):
    limit = "" if row["pct_of_limit"] is None else f"  {row['pct_of_limit']:5.1f} % of limit"
    target = target_of(row, machine)
    goal = "" if target is None else f"  target {target[0]} {target[1]} {target[2]:g}"
    print(f"{row['model']:22} {row['id']:13} {row['ours']:9.2f} {row['unit']:5} "
          f"peer {row['peer_value']:9.2f}  ratio {row['ratio']:5.2f} "
          f"[{row['ratio_ci'][0]:.2f}, {row['ratio_ci'][1]:.2f}]{limit}{goal}: "
          f"{verdict(row, machine)}", flush=True)


def earlier_rounds(path, record):
    """The rounds that a raw file holds already, when they are of the same program, peer and setting."""
    old = json.loads(path.read_text()) if path.exists() else {}
    same = all(old.get(key) == record[key]
               for key in ("commit", "machine", "peer", "file_bytes", "threads", "kv_type"))
    return (old["rounds"], old["gates"]) if same else ({}, [])


def measure_model(args, model, machine, peer_name, rng):
    path, raw = model_path_of(args, model), f"peers_{model}.json"
    record = {"model": model, "file": path.name, "file_bytes": path.stat().st_size,
              "machine": machine, "commit": args.commit, "date": results.today(),
              "peer": {"name": peer_name, "build": results.read_or_none(
                  args.peer_dir / "build_line.txt")},
              "threads": args.threads, "kv_type": args.kv_type}
    raw_path = args.out / machine["class"] / raw
    rounds, old_gates = earlier_rounds(raw_path, record)
    record["rounds"] = {test: kept for test, kept in rounds.items() if test not in args.tests}
    old_gates = [g for g in old_gates if g["why"].split(":")[0] in record["rounds"]]
    rows, gates = [], []
    for test in args.tests:
        if test in TESTS:
            record["rounds"][test] = rounds = measure_test(args, test, path, rng)
            new = [speed_row(test, model, rounds, peer_name, raw)]
            shares = [block["foreign_cpu_share"] for r in rounds for block in r["blocks"]]
            gates += gates_of(test, rounds)
        else:
            record["rounds"][test] = rounds = measure_first_token(args, path, rng)
            allowed = 1.1 * weights_and_cache_bytes(args, path) + 32 * 2**20
            new = [first_token_row(model, rounds, peer_name, raw),
                   memory_row(model, rounds, allowed, peer_name, raw)]
            shares = [start["foreign_cpu_share"] for r in rounds for start in r.values()]
        gates.append(idle_gate(test, shares))
        for row in new:
            print_row(row, machine["class"])
        rows += new
        record["gates"] = old_gates + gates
        results.write_json(raw_path, record)  # a run that is stopped keeps what it measured
    return rows, gates


def parse_args(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fathom", type=pathlib.Path, default=ROOT / "build/cpu/fathom")
    parser.add_argument("--peer-dir", type=pathlib.Path, required=True,
                        help="the folder that scripts/get_peer.sh prints")
    parser.add_argument("--models-dir", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--tests", nargs="+", choices=[*TESTS, "start"], default=[*TESTS, "start"])
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--repetitions", type=int, default=2, help="samples in one block")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--start-rounds", type=int, default=11)
    parser.add_argument("--run-ctx", type=int, default=2048, help="-c of the start and memory test")
    parser.add_argument("--kv-type", default="f16")
    parser.add_argument("--wait-idle", type=float, default=60.0,
                        help="seconds to wait before a block until others leave the CPUs alone")
    parser.add_argument("--seed", type=int, default=1, help="order of the arms")
    parser.add_argument("--commit", help="of the program; that of this tree if absent")
    args = parser.parse_args(argv)
    args.commit = args.commit or results.commit_of(ROOT)
    return args


def main(argv=None):
    args = parse_args(argv)
    machine = results.machine_data()
    build = results.read_or_none(args.peer_dir / "build_line.txt")
    peer_name = build.splitlines()[0].split(" (")[0] if build else "llama.cpp"
    rng = random.Random(args.seed)
    all_rows, gates = [], []
    for model in args.models:
        rows, model_gates = measure_model(args, model, machine, peer_name, rng)
        results.update_summary(args.out / machine["class"], args.commit, machine, rows)
        all_rows += rows
        gates += model_gates
    failed = results.report_failed(gates)
    missed = [row for row in all_rows if verdict(row, machine["class"]) == "missed"]
    return GATE_FAILED if failed else 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
