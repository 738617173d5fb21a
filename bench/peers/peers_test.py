#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of bench/peers: statistics by hand, the whole flow with programs that print fixed rows."""
import contextlib
import io
import json
import pathlib
import random
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

import cpu_share
import peers
import results
import round_stats

FAKE_PROGRAM = """\
#!{python}
import json, os, sys
SPEED = {speed!r}
args = sys.argv[1:]
def flag(name):
    return int(args[args.index(name) + 1])
with open({log!r}, "a") as log:
    log.write(json.dumps([os.path.basename(sys.argv[0]), *args]) + "\\n")
if "run" in args or "completion" in sys.argv[0]:
    sys.stdout.write("x")
elif "inspect" in args:
    print(json.dumps({{"summary": {{"tensor_bytes": 100 << 20, "cache": {{"bytes": 20 << 20}}}}}}))
else:
    key = "fathom" if "bench" in args else "fa_" + args[args.index("-fa") + 1]
    scale = 10 if flag("-p") else 2 if flag("-d") == 0 else 1
    rows = [{{"n_prompt": flag("-p"), "n_gen": flag("-n"), "n_depth": flag("-d"),
             "samples_ts": [scale * SPEED[key] * f for f in (0.9, 1.0, 1.2)],
             "pct_of_peak": {pct}}}]
    if key == "fathom":
        ok = {pct} < 103
        gates = [{{"id": "ceiling", "pass": ok, "why": "w"}}]
        print(json.dumps({{"gates": gates, "summary": {{"rows": rows}}}}))
        sys.exit(0 if ok else 4)
    print(json.dumps(rows))
"""


class StatisticsTest(unittest.TestCase):
    def test_quantile_interpolates(self):
        self.assertEqual(round_stats.quantile([4.0, 1.0, 2.0, 3.0], 0.5), 2.5)
        self.assertEqual(round_stats.quantile([1.0, 2.0], 1.0), 2.0)
        self.assertEqual(round_stats.quantile([7.0], 0.3), 7.0)

    def test_ratio_is_taken_inside_a_round(self):
        # The machine halves its speed in two rounds: medians alone would say 1.0, rounds say 2.0.
        rounds = [{"a": 20.0, "b": 10.0}, {"a": 10.0, "b": 5.0}, {"a": 10.0, "b": 5.0},
                  {"a": 20.0, "b": 10.0}]
        summary = round_stats.ratio_summary(rounds, "a", "b")
        self.assertEqual(summary["ratio"], 2.0)
        self.assertEqual(summary["ratio_ci"], [2.0, 2.0])
        self.assertEqual(summary["ours"], 15.0)

    def test_interval_holds_the_median_and_repeats(self):
        rng = random.Random(5)
        values = [rng.gauss(1.0, 0.1) for _ in range(15)]
        lo, hi = round_stats.bootstrap_interval(values)
        self.assertEqual([lo, hi], round_stats.bootstrap_interval(values))
        self.assertLess(lo, sorted(values)[7])
        self.assertGreater(hi, sorted(values)[7])
        self.assertGreater(hi - lo, 0.02)
        self.assertLess(hi - lo, 0.25)

    def test_interval_covers_the_truth_about_as_often_as_it_says(self):
        rng = random.Random(11)
        hits = 0
        for trial in range(40):
            values = [rng.gauss(3.0, 1.0) for _ in range(21)]
            lo, hi = round_stats.bootstrap_interval(values, seed=trial)
            hits += lo <= 3.0 <= hi
        self.assertGreaterEqual(hits, 34)

    def test_peer_takes_its_better_arm(self):
        rounds = [{"x": 1.0, "y": 5.0}, {"x": 9.0, "y": 5.0}, {"x": 2.0, "y": 5.0}]
        self.assertEqual(round_stats.best_peer_arm(rounds, ["x", "y"]), "y")
        self.assertEqual(round_stats.best_peer_arm(rounds, ["x", "y"], better=min), "x")


class ResultsTest(unittest.TestCase):
    def test_machine_class(self):
        avx2 = {"avx2", "fma", "bmi2", "f16c", "sse2"}
        avx512 = avx2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512vbmi"}
        self.assertEqual(results.machine_class(avx2), "cpu-avx2")
        self.assertEqual(results.machine_class(avx512), "cpu-avx512")
        for missing in ("avx512_vnni", "avx512vbmi"):
            self.assertEqual(results.machine_class(avx512 - {missing}), "cpu-avx2")
        for flags in ({"sse2"}, avx2 - {"bmi2"}):
            with self.assertRaises(SystemExit):
                results.machine_class(flags)

    def test_summary_keeps_other_rows_and_refuses_another_form(self):
        row = dict.fromkeys(results.ROW_KEYS)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            old = [{**row, "id": i, "model": "m", "ours": 1} for i in ("a", "b")]
            results.update_summary(folder, "c0", {}, old)
            results.update_summary(folder, "c1", {}, [{**row, "id": "b", "model": "m", "ours": 2}])
            summary = json.loads((folder / "summary.json").read_text())
            self.assertEqual([(r["id"], r["ours"]) for r in summary["rows"]], [("a", 1), ("b", 2)])
            self.assertEqual(summary["commit"], "c1")
            with self.assertRaises(ValueError):
                results.update_summary(folder, "c", {}, [{"id": "a"}])


class FlowTest(unittest.TestCase):
    """peers.main against a fake fathom and a fake llama.cpp whose speeds are known."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.log = self.folder / "log"
        (self.folder / "models").mkdir()
        (self.folder / "models" / "smollm2-135m.gguf").write_bytes(b"x" * 10)
        (self.folder / "peer" / "bin").mkdir(parents=True)
        (self.folder / "peer" / "build_line.txt").write_text("llama.cpp of somewhere (sha256)\n..")

    def write_programs(self, fathom_speed, pct=80.0):
        speed = {"fathom": fathom_speed, "fa_off": 10.0, "fa_on": 12.0}
        text = textwrap.dedent(FAKE_PROGRAM.format(
            python=f"{sys.executable} -SE", speed=speed, log=str(self.log), pct=pct))
        for name in ("fathom", "peer/bin/llama-bench", "peer/bin/llama-completion"):
            path = self.folder / name
            path.write_text(text)
            path.chmod(0o755)

        # The flow is judged here, not how busy the machine of the test is.
        self.enterContext(mock.patch.object(peers, "FOREIGN_LIMIT", 1.1))

    def run_main(self, *tests):
        argv = ["--fathom", self.folder / "fathom", "--peer-dir", self.folder / "peer",
                "--models-dir", self.folder / "models", "--out", self.folder / "out", "--models",
                "smollm2-135m-q4_1", "--wait-idle", 0, "--rounds", 3,
                "--start-rounds", 3, "--tests", *tests]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            status = peers.main([str(a) for a in argv])
        summary, = (self.folder / "out").glob("*/summary.json")
        rows = json.loads(summary.read_text())["rows"]
        raw = json.loads((summary.parent / rows[0]["raw"]).read_text())
        return status, {row["id"]: row for row in rows}, raw

    def test_speed_rows(self):
        self.write_programs(fathom_speed=36.0)
        status, rows, raw = self.run_main("decode_d0", "decode_d4096")
        self.assertEqual(status, 0)
        row = rows["decode_d0"]
        self.assertEqual(tuple(row), results.ROW_KEYS)
        self.assertEqual((row["ours"], row["peer_value"], row["ratio"]), (72.0, 24.0, 3.0))
        self.assertEqual(row["peer"], "llama.cpp of somewhere, flash attention on")
        self.assertAlmostEqual(row["limit"], 90.0)
        self.assertAlmostEqual(row["pct_of_limit"], 80.0)
        self.assertEqual(len(raw["rounds"]["decode_d4096"]), 3)
        self.assertEqual(raw["peer"]["build"].splitlines()[0], "llama.cpp of somewhere (sha256)")

    def test_tests_of_one_commit_join_in_one_raw_file(self):
        self.write_programs(fathom_speed=36.0)
        self.run_main("decode_d0")
        _, rows, raw = self.run_main("start")
        self.assertEqual(sorted(raw["rounds"]), ["decode_d0", "start"])
        self.assertEqual({gate["why"].split(":")[0] for gate in raw["gates"]},
                         {"decode_d0", "start"})
        self.assertIn("decode_d0", rows)
        with mock.patch.object(results, "commit_of", return_value="another"):
            _, _, raw = self.run_main("prefill_512")
        self.assertEqual(list(raw["rounds"]), ["prefill_512"])

    def test_the_commit_is_this_tree_s_unless_it_is_given(self):
        self.write_programs(fathom_speed=36.0)
        with mock.patch.object(results, "commit_of", return_value="tree"):
            self.assertEqual(self.run_main("decode_d0")[2]["commit"], "tree")
            self.assertEqual(self.run_main("decode_d0", "--commit", "pack")[2]["commit"], "pack")

    def test_rounds_interleave_all_arms_with_the_same_flags(self):
        self.write_programs(fathom_speed=36.0)
        self.run_main("decode_d4096")
        calls = [json.loads(line) for line in self.log.read_text().splitlines()]
        self.assertEqual(len(calls), 9)
        for begin in (0, 3, 6):
            arms = sorted((call[0], call[call.index("-fa") + 1] if "-fa" in call else "")
                          for call in calls[begin:begin + 3])
            self.assertEqual(arms, [("fathom", ""), ("llama-bench", "off"), ("llama-bench", "on")])
        shared = {tuple(call[call.index("-p"):call.index("-ctv") + 2]) for call in calls}
        self.assertEqual(len(shared), 1)

    def test_a_missed_target_is_exit_1(self):
        self.write_programs(fathom_speed=12.0)
        status, rows, _ = self.run_main("decode_d0")
        self.assertEqual((status, rows["decode_d0"]["ratio"]), (1, 1.0))

    def test_an_implausible_ceiling_is_exit_4(self):
        self.write_programs(fathom_speed=36.0, pct=110.0)
        status, _, raw = self.run_main("decode_d0")
        self.assertEqual(status, 4)
        self.assertFalse(raw["gates"][0]["pass"])

    def test_prefill_has_no_read_limit(self):
        self.write_programs(fathom_speed=100.0)
        _, rows, _ = self.run_main("prefill_512")
        self.assertIsNone(rows["prefill_512"]["limit"])

    def test_start_rows(self):
        self.write_programs(fathom_speed=36.0)
        _, rows, raw = self.run_main("start")
        self.assertEqual(len(raw["rounds"]["start"]), 3)
        self.assertGreater(rows["first_token"]["ours"], 0.0)
        self.assertAlmostEqual(rows["peak_memory"]["limit"], 1.1 * 120 + 32)
        self.assertLess(rows["peak_memory"]["pct_of_limit"], 100.0)

    def test_a_failing_program_is_named(self):
        self.write_programs(fathom_speed=36.0)
        (self.folder / "fathom").write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
        with self.assertRaisesRegex(SystemExit, "ended with 3: broken"):
            self.run_main("decode_d0")


class GateTest(unittest.TestCase):
    def gates(self, gate_id, passes):
        rounds = [{"blocks": [{"gates": [{"id": gate_id, "pass": p, "why": "w"}]}]} for p in passes]
        gate, = peers.gates_of("decode_d0", rounds)
        return gate["pass"]

    def test_a_noisy_ceiling_round_is_forgiven_but_not_most(self):
        self.assertTrue(self.gates("ceiling", [True, False, True]))
        self.assertFalse(self.gates("ceiling", [False, False, True]))

    def test_any_other_gate_fails_with_one_round(self):
        self.assertFalse(self.gates("output_hash", [True, False, True]))
        self.assertTrue(self.gates("output_hash", [True, True, True]))


    def test_a_busy_machine_is_not_trusted(self):
        self.assertFalse(peers.idle_gate("t", [0.0, 0.3, 0.4])["pass"])
        self.assertTrue(peers.idle_gate("t", [0.0, 0.05, 0.9])["pass"])


class CpuShareTest(unittest.TestCase):
    def test_children_of_ours_are_not_foreign(self):
        readings = iter([(10.0, 100.0), (13.0, 104.0)])  # 3 of 4 CPU seconds were busy
        own = iter([5.0, 7.0])  # 2 of them ours
        with mock.patch.object(cpu_share, "busy_and_total_s", lambda: next(readings)), \
                mock.patch.object(cpu_share, "children_s", lambda: next(own)):
            with cpu_share.ForeignShare() as share:
                pass
        self.assertAlmostEqual(share.value, 0.25)

    def test_stat_is_read_as_the_kernel_writes_it(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("cpu  999 0 0 1 0 0 0 0 0 0\ncpu0 500 0 0 0 0 0 0 0 0 0\n"
                       "cpu1 100 0 50 800 50 0 0 0 0 0\nintr 1 2 3\n")
            file.flush()
            busy, total = cpu_share.busy_and_total_s(file.name, cpus={1})
        self.assertAlmostEqual(busy / total, 0.15)


class TargetTest(unittest.TestCase):
    def test_avx2_asks_less_of_prefill_only(self):
        row = {"model": "smollm2-135m-q4_1", "id": "prefill_512", "ratio": 2.0,
               "pct_of_limit": None}
        self.assertEqual(peers.verdict(row, "cpu-avx512"), "missed")
        self.assertEqual(peers.verdict(row, "cpu-avx2"), "met")
        row["id"] = "decode_d4096"
        self.assertEqual(peers.verdict(row, "cpu-avx2"), "missed")

    def test_an_absent_figure_does_not_meet_a_target(self):
        row = {"model": "qwen2.5-0.5b-q8_0", "id": "decode_d0", "ratio": 9.0, "pct_of_limit": None}
        self.assertEqual(peers.verdict(row, "cpu-avx512"), "missed")


if __name__ == "__main__":
    unittest.main()
