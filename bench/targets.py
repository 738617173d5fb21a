#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The performance targets that need no peer:

format_decode_<type>  a format's decode product against the read stream beside it (matmul_bench)
depth_linearity       ms a token over the depth: how far any depth lies from the line through all
reserved_cache        tok/s at the same used depth with a large against a small cache (-c)

Writes raw files and the rows of summary.json to bench/results/<machine>/, prints each target,
what was measured and the verdict; exits 1 when a target is missed, 4 when a gate says that the
figures cannot be trusted. Formats are written one by one, and those of one commit join in the raw
file: a run may be stopped and go on with others. Plain Python 3.11, no third-party package, no
network.
"""
import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench" / "peers"))
import peers  # noqa: E402
import results  # noqa: E402
from cpu_share import ForeignShare, wait_until_idle  # noqa: E402
from round_stats import ratio_summary  # noqa: E402

FORMAT_PCT = 85.0      # of the read ceiling, at least
LINEARITY_PCT = 10.0   # from the fit, at most: a cliff between neighbours is larger
RESERVED_RATIO = 0.03  # from 1, at most: medians of interleaved rounds agree so well
MODEL = "smollm2-135m-q4_1"
DEPTHS = (64, 256, 1024, 2048, 4096, 8000)
CACHES = {"small": 1024, "large": 8192}
PROMPT = "The sea is deep. " * 100  # about 500 tokens, far within the small cache
DECODE_NAME = re.compile(r"decode/(\w+)/(\w+)/real_time")


def summary_row(row_id, model, unit, ours, **known):
    row = dict.fromkeys(results.ROW_KEYS)
    return {**row, "id": row_id, "model": model, "unit": unit, "ours": ours, **known}


# What was measured -> rows. No file, process or clock below this line up to the next.

def format_rates(document):
    """Google Benchmark's JSON of one block, product and read stream in random turns: ((isa, type),
    median GB/s of the product, median GB/s read)."""
    ceilings, products = [], {}
    for entry in document["benchmarks"]:
        if entry.get("run_type", "iteration") != "iteration":
            continue
        if entry.get("error_occurred"):
            raise SystemExit(f"matmul_bench: {entry['name']}: {entry.get('error_message')}")
        found = DECODE_NAME.fullmatch(entry["name"])
        if entry["name"].startswith("read_stream"):
            ceilings.append(entry["GB/s"])
        elif found:
            products.setdefault(found.groups(), []).append(entry["GB/s"])
    if not ceilings or len(products) != 1:
        raise SystemExit("matmul_bench: expected read_stream and one decode row, found "
                         f"{[entry['name'] for entry in document['benchmarks']]}")
    (key, rates), = products.items()
    return key, statistics.median(rates), statistics.median(ceilings)


def format_row(isa, type_name, rounds, raw):
    """rounds: [{"product": GB/s, "ceiling": GB/s}]; the share is taken inside each round."""
    shares = [100.0 * r["product"] / r["ceiling"] for r in rounds]
    return summary_row(f"format_decode_{type_name.lower()}", isa, "GB/s",
                       statistics.median(r["product"] for r in rounds),
                       limit=statistics.median(r["ceiling"] for r in rounds),
                       pct_of_limit=statistics.median(shares), raw=raw)


def line_through(points):
    """(a, b) of y = a + b x by least squares."""
    mean_x = statistics.fmean(x for x, _ in points)
    mean_y = statistics.fmean(y for _, y in points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if spread == 0:
        raise SystemExit("a line needs two depths or more")
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return mean_y - slope * mean_x, slope


def depth_points(rows):
    """Rows of `fathom bench` -> [(depth, median ms a token)], by depth."""
    return sorted((row["n_depth"],
                   statistics.median(row["samples_ns"]) * 1e-6 / row["n_gen"]) for row in rows)


def linearity(points):
    """The fit, each depth's distance from it in %, and the largest of them."""
    a, b = line_through(points)
    off = [{"depth": x, "ms": y, "fit_ms": a + b * x, "off_pct": 100.0 * (y / (a + b * x) - 1.0)}
           for x, y in points]
    return {"a_ms": a, "b_ms": b, "points": off, "worst_pct": max(abs(p["off_pct"]) for p in off)}


def linearity_row(fit, model, raw):
    return summary_row("depth_linearity", model, "% off the line", fit["worst_pct"],
                       limit=LINEARITY_PCT, pct_of_limit=100.0 * fit["worst_pct"] / LINEARITY_PCT,
                       raw=raw)


def reserved_row(rounds, model, raw):
    """rounds: [{"small": tok/s, "large": tok/s}]."""
    summary = ratio_summary(rounds, "large", "small")
    return summary_row("reserved_cache", model, "tok/s", summary["ours"],
                       peer=f"fathom with -c {CACHES['small']}", peer_value=summary["peer_value"],
                       ratio=summary["ratio"], ratio_ci=summary["ratio_ci"], raw=raw)


def judge(row):
    """(target, measured, 'met' or 'missed')."""
    if row["id"].startswith("format_decode_"):
        ok, target = row["pct_of_limit"] >= FORMAT_PCT, f">= {FORMAT_PCT:g} % of the read ceiling"
        measured = f"{row['pct_of_limit']:.1f} %, {row['ours']:.1f} of {row['limit']:.1f} GB/s"
    elif row["id"] == "depth_linearity":
        ok, target = row["ours"] <= LINEARITY_PCT, f"<= {LINEARITY_PCT:g} % off the line"
        measured = f"{row['ours']:.1f} %"
    elif row["id"] == "reserved_cache":
        ok = abs(row["ratio"] - 1.0) <= RESERVED_RATIO
        target = f"ratio within {RESERVED_RATIO:g} of 1"
        measured = f"{row['ratio']:.3f} [{row['ratio_ci'][0]:.3f}, {row['ratio_ci'][1]:.3f}]"
    else:
        raise ValueError(f"no target for {row['id']}")
    return target, measured, "met" if ok else "missed"


# Taking the measures.

def format_names(args):
    if not args.matmul_bench.exists():
        raise SystemExit(f"found no {args.matmul_bench}; make bench builds it")
    listed = subprocess.run([args.matmul_bench, "--benchmark_list_tests"], capture_output=True,
                            text=True, check=True).stdout.split()
    found = [match.groups() for match in map(DECODE_NAME.fullmatch, listed) if match]
    chosen = [(isa, name) for isa, name in found
              if args.isa in (None, isa) and (not args.formats or name in args.formats)]
    if not chosen:
        raise SystemExit(f"matmul_bench lists no decode row of {args.formats or 'any format'}"
                         f"{f' on {args.isa}' if args.isa else ''}")
    return chosen


# Each measure gives (rows, gates, record) of what it has so far, as often as main() shall write it.

def measure_formats(args, earlier, _rng):
    """Format by format. Rounds of others that the raw file holds already are kept."""
    rows, record = [], earlier.get("rounds", {})
    for isa, name in format_names(args):
        rounds = []
        for _ in range(args.rounds):
            command = [str(args.matmul_bench), "--benchmark_format=json",
                       f"--benchmark_min_time={args.min_time}",
                       f"--benchmark_repetitions={args.turns}",
                       "--benchmark_enable_random_interleaving=true",
                       f"--benchmark_filter=^(read_stream|decode/{isa}/{name})/"]
            wait_until_idle(peers.FOREIGN_LIMIT, args.wait_idle)
            with ForeignShare() as foreign:
                document, _ = peers.run_json(command)
            _, product, ceiling = format_rates(document)
            rounds.append({"product": product, "ceiling": ceiling,
                           "foreign_cpu_share": foreign.value})
        record[f"{isa}/{name}"] = rounds
        rows.append(format_row(isa, name, rounds, "targets_formats.json"))
        print_row(rows[-1])
        shares = [r["foreign_cpu_share"] for rounds in record.values() for r in rounds]
        yield rows, [peers.idle_gate("formats", shares)], {"rounds": record}


def measure_linearity(args, _earlier, _rng):
    command = [str(args.fathom), "bench", str(args.model_path), "-p", "0", "-n", str(args.n_gen),
               "-d", ",".join(map(str, args.depths)), "-t", str(args.threads), "-r",
               str(args.rounds), "--json", "-q"]
    wait_until_idle(peers.FOREIGN_LIMIT, args.wait_idle)
    with ForeignShare() as foreign:
        document, _ = peers.run_json(command, accepted=(0, peers.GATE_FAILED))
    fit = linearity(depth_points(document["summary"]["rows"]))
    row = linearity_row(fit, args.model, "targets_depth.json")
    for point in fit["points"]:
        print(f"  depth {point['depth']:5}: {point['ms']:8.3f} ms, {point['off_pct']:+.1f} % off "
              f"{fit['a_ms']:.3f} ms + {1e3 * fit['b_ms']:.3f} us a token")
    print_row(row)
    gates = peers.gates_of("depth_linearity", [{"blocks": [{"gates": document["gates"]}]}])
    gates.append(peers.idle_gate("depth_linearity", [foreign.value]))
    yield [row], gates, {"command": command, "fit": fit, "document": document}


def decode_rate(document):
    run = document["summary"]["run"]
    return run["decode_tokens"] / run["decode_s"]


def measure_reserved(args, _earlier, rng):
    rounds, shares, depth = [], [], None
    for _ in range(args.rounds):
        entry, arms = {}, list(CACHES)
        rng.shuffle(arms)
        for arm in arms:
            command = [str(args.fathom), "run", str(args.model_path), "-p", PROMPT, "-n",
                       str(args.n_gen), "-c", str(CACHES[arm]), "-t", str(args.threads), "--temp",
                       "0", "--ignore-eos", "--json", "-q"]
            wait_until_idle(peers.FOREIGN_LIMIT, args.wait_idle)
            with ForeignShare() as foreign:
                document, _ = peers.run_json(command)
            entry[arm], depth = decode_rate(document), document["summary"]["run"]["prompt_tokens"]
            shares.append(foreign.value)
        rounds.append(entry)
    row = reserved_row(rounds, args.model, "targets_reserved.json")
    print_row(row)
    yield ([row], [peers.idle_gate("reserved_cache", shares)],
           {"caches": CACHES, "used_depth": depth, "n_gen": args.n_gen, "rounds": rounds})


MEASURES = {"formats": measure_formats, "depth": measure_linearity, "reserved": measure_reserved}


def measure(name, args, machine, rng):
    """Takes one measure and writes its files after each part; its rows and gates."""
    folder = args.out / machine["class"]
    raw_path = folder / f"targets_{name}.json"
    head = {"machine": machine, "commit": args.commit, "threads": args.threads}
    earlier, rows, gates = earlier_record(raw_path, head), [], []
    for rows, gates, record in MEASURES[name](args, earlier, rng):
        results.write_json(raw_path, {**head, "date": results.today(), "gates": gates, **record})
        results.update_summary(folder, args.commit, machine, rows)
    return rows, gates


def earlier_record(path, head):
    """What a raw file holds already, when it is of the same program, machine and setting."""
    old = json.loads(path.read_text()) if path.exists() else {}
    return old if all(old.get(key) == value for key, value in head.items()) else {}


def print_row(row):
    target, measured, verdict = judge(row)
    print(f"{row['model']:20} {row['id']:22} target {target}  measured {measured}: {verdict}",
          flush=True)


def parse_args(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fathom", type=pathlib.Path, default=ROOT / "build/cpu/fathom")
    parser.add_argument("--matmul-bench", type=pathlib.Path,
                        default=ROOT / "build/cpu/matmul_bench")
    parser.add_argument("--models-dir", type=pathlib.Path, required=True)
    parser.add_argument("--model", choices=peers.MODELS, default=MODEL)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results")
    parser.add_argument("--targets", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--formats", nargs="+", help="of matmul_bench, such as Q4_K; all if absent")
    parser.add_argument("--isa", choices=("avx2", "avx512"),
                        help="of the formats; all that the machine has if absent")
    parser.add_argument("--depths", nargs="+", type=int, default=list(DEPTHS))
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--n-gen", type=int, default=32, help="tokens of a decode block")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--min-time", type=float, default=0.05,
                        help="seconds of a turn of a format's product or the read stream")
    parser.add_argument("--turns", type=int, default=15, help="of each in a block, in random order")
    parser.add_argument("--wait-idle", type=float, default=120.0,
                        help="seconds to wait before a block until others leave the CPUs alone")
    parser.add_argument("--seed", type=int, default=1, help="order of the arms")
    parser.add_argument("--commit", help="of the programs; that of this tree if absent")
    args = parser.parse_args(argv)
    if args.isa and args.targets != ["formats"]:
        parser.error("--isa is for the formats alone: add --targets formats")
    args.commit = args.commit or results.commit_of(ROOT)
    return args


def main(argv=None):
    args = parse_args(argv)
    machine, rng = results.machine_data(), random.Random(args.seed)
    if set(args.targets) - {"formats"}:
        args.model_path = peers.model_path_of(args, args.model)
    all_rows, gates = [], []
    for name in args.targets:
        rows, new_gates = measure(name, args, machine, rng)
        all_rows += rows
        gates += new_gates
    failed = results.report_failed(gates)
    missed = [row for row in all_rows if judge(row)[2] == "missed"]
    return peers.GATE_FAILED if failed else 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
