#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of gpu_peers.py: the whole flow with programs and a GPU that print fixed rows."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

import gpu_peers
import results
import summarise

FATHOM = """\
#!{python}
import json, os, pathlib, sys
args = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(args) + "\\n")
if args[0] == "synth":
    pathlib.Path(args[1]).write_text("model")
    sys.exit()
def flag(name):
    return args[args.index(name) + 1].split(",")
rows = []
for depth in map(int, flag("-d")):
    for fill in flag("--fill"):
        for p in map(int, flag("-p")):
            for n in map(int, flag("-n")):
                for seqs in map(int, flag("-npl")):
                    if not p and not n:
                        continue
                    step_ns = 1e6 + 10 * depth * (0.5 if flag("-ctk") == ["q8_0"] else 1)
                    if p:
                        step_ns = 1e4
                    ns = step_ns * (p or n)
                    rows.append({{"n_prompt": p, "n_gen": n, "n_depth": depth, "n_seqs": seqs,
                                 "kv_fill": fill, "median_ns": ns,
                                 "samples_ts": [1e9 * (p or n) * seqs / ns] * 3,
                                 "samples_ns": [ns * (1.005 if fill == "synthetic" else 1)] * 3,
                                 "gbps": (4e9 + 41e3 * depth) / step_ns, "peak_gbps": {ceiling},
                                 "pct_of_peak": 80.0, "logits_hash": {hash}}})
print(json.dumps({{"gates": [], "machine": {{}}, "samples": [{{"arm": "ceiling", "gbps": {ceiling}}}],
                  "summary": {{"rows": rows, "orders": []}}}}))
"""
PEER = """\
#!{python}
import json, sys
tool, args = sys.argv[1], sys.argv[2:]
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
def flag(name):
    return [int(x) for x in args[args.index(name) + 1].split(",")]
if tool == "batched-bench":
    assert args[args.index("--output-format") + 1] == "jsonl"
    assert flag("-c")[0] % max(flag("-npl")) == 0
    print("talk")
    for n in flag("-npl"):
        print(json.dumps({{"pp": flag("-npp")[0], "tg": flag("-ntg")[0], "pl": n, "speed_tg": 100.0 * n}}))
else:
    print(json.dumps([{{"n_prompt": p, "n_gen": n, "n_depth": d, "samples_ts": [{faster} * 1e9 / (4e6 + 20 * d)] * 2}}
                      for d in flag("-d") for p in flag("-p") for n in flag("-n") if p or n]))
"""
SMI = """\
#!/bin/sh
echo "NVIDIA H200, 580.1, 143771 MiB, {used} MiB, 0 %, 1980 MHz, 3201 MHz, 40, 90.0 W"
"""


class FlowTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.log = self.folder / "log"
        self.write("fathom", FATHOM, ceiling=4600.0, hash="'h' + str(depth)")
        self.write("llama-peer", PEER, faster=1.0)
        self.write("nvidia-smi", SMI, used=0)
        (self.folder / "build_line.txt").write_text("llama.cpp of x 1, CUDA (nvcc 13): cmake\n")
        path = unittest.mock.patch.dict("os.environ", {"PATH": f"{self.folder}:/usr/bin:/bin"})
        path.start()
        self.addCleanup(path.stop)

    def write(self, name, text, **known):
        path = self.folder / name
        path.write_text(text.format(python=sys.executable, log=str(self.log), **known))
        path.chmod(0o755)

    def run_main(self, *more, peer=True):
        arguments = ["--fathom", str(self.folder / "fathom"), "--models-dir", str(self.folder),
                     "--out", str(self.folder / "out"), "--commit", "abc", *more]
        if peer:
            arguments += ["--peer", str(self.folder / "llama-peer")]
        with contextlib.redirect_stdout(io.StringIO()) as out, \
                contextlib.redirect_stderr(io.StringIO()) as err:
            status = gpu_peers.main(arguments)
        self.printed = out.getvalue() + err.getvalue()
        summary = json.loads((self.folder / "out/summary.json").read_text())
        return status, {row["id"]: row for row in summary["rows"]}, summary

    def test_every_row_of_the_default(self):
        status, rows, summary = self.run_main("--rounds", "2")
        self.assertEqual(status, 0, self.printed)
        self.assertEqual(set(rows), {
            "decode_d0", "decode_d1641", "decode_d4096", "decode_d32768", "kvq8_d32768",
            "prefill_512", "prefill_3314", "prefill_32768", "batch8_d2048", "batch32_d2048",
            "kv_marginal_d32768", "kvq8_over_f16_d32768"})
        self.assertAlmostEqual(rows["decode_d0"]["ratio"], 4.0)
        self.assertAlmostEqual(rows["decode_d0"]["pct_of_limit"], 80.0)
        self.assertAlmostEqual(rows["decode_d0"]["limit"], 1250.0)
        self.assertIsNone(rows["prefill_512"]["limit"])
        self.assertAlmostEqual(rows["prefill_512"]["ours"], 1e5)
        self.assertAlmostEqual(rows["batch8_d2048"]["ours"], 8e9 / (1e6 + 20480))
        self.assertAlmostEqual(rows["batch8_d2048"]["peer_value"], 800.0)
        self.assertEqual(rows["decode_d0"]["peer"], "llama.cpp of x 1, CUDA, flash attention on")
        self.assertGreater(rows["kvq8_over_f16_d32768"]["ours"], 1.0)
        self.assertEqual(summary["machine"]["class"], "h200")
        self.assertEqual(summary["commit"], "abc")

    def test_arms_of_a_round_follow_each_other_and_the_seed_orders_them(self):
        self.run_main("--groups", "decode", "--rounds", "6")
        calls = [json.loads(line) for line in self.log.read_text().splitlines()]
        arms = ["-npl" in call for call in calls if call[0] != "synth"]
        self.assertEqual(len(arms), 12)
        pairs = list(zip(arms[::2], arms[1::2]))
        self.assertTrue(all(a != b for a, b in pairs))
        self.assertEqual(len(set(pairs)), 2)

    def test_the_peer_has_flash_attention_the_same_cache_and_the_same_tests(self):
        self.run_main("--groups", "kvq8", "--rounds", "1")
        peer, = [call for call in map(json.loads, self.log.read_text().splitlines())
                 if call[0] == "bench" and "-ngl" in call]
        for flag, value in (("-fa", "on"), ("-ctk", "q8_0"), ("-ctv", "q8_0"), ("-d", "32768"),
                            ("-n", "64"), ("-ub", "512")):
            self.assertEqual(peer[peer.index(flag) + 1], value)

    def test_without_a_peer_there_is_no_ratio(self):
        status, rows, _ = self.run_main("--groups", "decode", "--rounds", "1", peer=False)
        self.assertEqual(status, 0, self.printed)
        self.assertIsNone(rows["decode_d0"]["ratio"])
        self.assertTrue((self.folder / "out/ours_qwen2.5-7b-q4_k_m.json").exists())

    def test_a_synthetic_cache_is_set_against_a_real_one(self):
        _, rows, _ = self.run_main("--groups", "fill", "--rounds", "3")
        self.assertAlmostEqual(rows["fill_d4096"]["ratio"], 1.005)
        self.assertAlmostEqual(rows["fill_d4096"]["peer_value"], 1e3 + 40.96)
        self.assertIn("met", self.printed)

    def test_a_missed_target_is_exit_1(self):
        self.write("llama-peer", PEER, faster=2.0)
        status, rows, _ = self.run_main("--groups", "decode", "--rounds", "1")
        self.assertEqual(status, 1, self.printed)
        self.assertAlmostEqual(rows["decode_d0"]["ratio"], 2.0)

    def test_a_low_ceiling_is_exit_4(self):
        self.write("fathom", FATHOM, ceiling=4321.0, hash="'h'")
        status, _, _ = self.run_main("--groups", "decode", "--rounds", "1")
        self.assertEqual(status, 4)
        self.assertIn("gate ceiling: found 4321.0, limit 4500.0", self.printed)

    def test_logits_that_differ_between_processes_are_exit_4(self):
        self.write("fathom", FATHOM, ceiling=4600.0, hash="str(os.getpid())")
        status, _, _ = self.run_main("--groups", "decode", "--rounds", "2")
        self.assertEqual(status, 4)
        self.assertIn("gate output_hash", self.printed)

    def test_a_used_gpu_is_exit_4(self):
        self.write("nvidia-smi", SMI, used=9000)
        status, _, _ = self.run_main("--groups", "decode", "--rounds", "1")
        self.assertEqual(status, 4)
        self.assertIn("gate gpu_idle: found 9000.0", self.printed)

    def test_a_group_that_fails_does_not_take_the_others_along(self):
        text = PEER.replace('if tool == "batched-bench":', 'if tool == "batched-bench":\n    sys.exit("broken")')
        self.write("llama-peer", text, faster=1.0)
        status, rows, _ = self.run_main("--groups", "batch", "decode", "--rounds", "2")
        self.assertEqual(status, 1)
        self.assertIn("decode_d0", rows)
        self.assertNotIn("batch8_d2048", rows)
        self.assertIn("group batch is given up", self.printed)
        self.assertIn("ended with 1: broken", self.printed)

    def test_out_of_time_each_group_has_run_once(self):
        _, rows, _ = self.run_main("--seconds", "0")
        self.assertIn("batch32_d2048", rows)
        raw = json.loads((self.folder / "out/peers_qwen2.5-7b-q4_k_m.json").read_text())
        self.assertEqual({len(entries) for entries in raw["rounds"].values()}, {1})
        self.assertEqual(len(raw["rounds"]["decode"][0]["clocks"]), 3)

    def test_summarise_makes_the_same_rows_from_the_raw_files(self):
        _, rows, _ = self.run_main("--rounds", "2")
        (self.folder / "out/summary.json").unlink()
        with unittest.mock.patch.object(sys, "argv", ["summarise.py", str(self.folder / "out")]):
            summarise.main()
        again = json.loads((self.folder / "out/summary.json").read_text())["rows"]
        self.assertEqual({row["id"]: row for row in again}, rows)


class RowsTest(unittest.TestCase):
    def test_the_first_repetition_warms_up(self):
        def block(*samples):
            return {"rows": {"t": {"samples_ts": list(samples)}}}
        self.assertEqual(gpu_peers.value_of(block(7.0, 10.0, 11.0, 12.0), "t"), 11.0)
        self.assertEqual(gpu_peers.value_of(block(7.0), "t"), 7.0)

    def test_marginal_rate_is_between_the_depths(self):
        def entry(near_tok_s, far_tok_s):
            def row(step_us, bytes_):
                return {"n_gen": 1, "median_ns": step_us * 1e3, "gbps": bytes_ / (step_us * 1e3),
                        "peak_gbps": 4000.0}
            near, far = row(1000, 4e9), row(1500, 6e9)
            near["samples_ts"], far["samples_ts"] = [near_tok_s], [far_tok_s]
            return {"blocks": [{"arm": "fathom",
                                "rows": {"decode_d4096": near, "decode_d32768": far}}]}
        row, = gpu_peers.marginal_rows("m", [entry(1000.0, 1e6 / 1500)], None, "raw")
        self.assertAlmostEqual(row["ours"], 2e9 / 500e3)
        self.assertAlmostEqual(row["pct_of_limit"], 100.0)
        self.assertEqual(gpu_peers.marginal_rows("m", [entry(1000.0, 1000.0)], None, "raw"), [])

    def test_a_target_without_its_figure_is_not_judged(self):
        row = {**dict.fromkeys(results.ROW_KEYS), "model": "qwen2.5-7b-q4_k_m", "id": "decode_d0"}
        self.assertEqual(gpu_peers.verdict(row), "none")
        self.assertEqual(gpu_peers.verdict({**row, "pct_of_limit": 81.0}), "met")
        self.assertEqual(gpu_peers.verdict({**row, "pct_of_limit": 81.0, "ratio": 2.9}), "missed")


if __name__ == "__main__":
    unittest.main()
