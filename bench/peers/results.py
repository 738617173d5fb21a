# SPDX-License-Identifier: Apache-2.0
"""Where results go and what they carry: machine data, commit, raw files and summary.json.

The form of summary.json is fixed (design of the product): {commit, date, machine, rows: [{id,
model, unit, ours, peer, peer_value, ratio, ratio_ci, limit, pct_of_limit, raw}]}, one row per
model and measure.
"""
import datetime
import fcntl
import json
import os
import pathlib
import platform
import subprocess
import sys

# The sets that the kernels ask for (src/base/cpu_features.cpp), by the kernel's names.
AVX2 = {"avx2", "fma", "bmi2", "f16c"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512vbmi"}

ROW_KEYS = ("id", "model", "unit", "ours", "peer", "peer_value", "ratio", "ratio_ci", "limit",
            "pct_of_limit", "raw")


def cpu_info(path="/proc/cpuinfo"):
    """Model name and ISA flags of the first core."""
    info = {}
    for line in pathlib.Path(path).read_text().splitlines():
        if not line.strip() and info:
            break
        key, _, value = line.partition(":")
        info[key.strip()] = value.strip()
    return info.get("model name", platform.processor()), set(info.get("flags", "").split())


def machine_class(flags):
    """The results folder of this CPU: that of the best set that the kernels can use."""
    if AVX512 <= flags:
        return "cpu-avx512"
    if AVX2 <= flags:
        return "cpu-avx2"
    raise SystemExit("found a CPU without AVX2; results are kept for cpu-avx2 and cpu-avx512")


def machine_data():
    name, flags = cpu_info()
    isa = sorted(f for f in flags if f.startswith(("avx", "fma", "f16c", "amx")))
    memory = {line.split(":")[0]: line.split(":")[1].strip()
              for line in pathlib.Path("/proc/meminfo").read_text().splitlines()}
    return {"class": machine_class(flags), "cpu": name, "cores": os.cpu_count(), "isa": isa,
            "memory": memory["MemTotal"], "kernel": platform.release(),
            "transparent_hugepage": read_or_none("/sys/kernel/mm/transparent_hugepage/enabled"),
            "governor": read_or_none("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")}


def read_or_none(path):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return None


def commit_of(folder):
    """The commit, marked when files differ from it; a copy without git names it in COMMIT."""
    def git(*arguments):
        return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True,
                              text=True, check=True).stdout.strip()
    try:
        # Results themselves change while they are made; only the rest makes a tree dirty.
        changed = git("status", "--porcelain", "--", ".", ":!bench/results")
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return read_or_none(pathlib.Path(folder) / "COMMIT") or "unknown"


def today():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value, indent=1) + "\n")
    temporary.replace(path)


def report_failed(gates):
    """The gates that did not pass, each named on stderr."""
    failed = [gate for gate in gates if not gate["pass"]]
    for gate in failed:
        print(f"gate {gate['id']}: found {gate['value']}, limit {gate['limit']}: {gate['why']}",
              file=sys.stderr)
    return failed


def update_summary(folder, commit, machine, rows):
    """Replaces the rows of the same id and model, keeps those of other scripts."""
    for row in rows:
        if tuple(row) != ROW_KEYS:
            raise ValueError(f"a summary row has the keys {ROW_KEYS}, found {tuple(row)}")
    path = folder / "summary.json"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:  # models may be measured side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        _replace_rows(path, commit, machine, rows)
    return path


def _replace_rows(path, commit, machine, rows):
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    new = {(row["id"], row["model"]) for row in rows}
    kept = [row for row in old if (row["id"], row["model"]) not in new]
    write_json(path, {"commit": commit, "date": today(), "machine": machine,
                      "rows": sorted(kept + rows, key=lambda row: (row["model"], row["id"]))})
