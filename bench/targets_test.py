#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of targets.py: the judging by hand, the flow with programs that print fixed figures."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

import targets

FAKE_PROGRAM = """\
#!{python}
import json, sys
args = sys.argv[1:]
def flag(name):
    return args[args.index(name) + 1]
if "--benchmark_list_tests" in args:
    print("read_stream/real_time")
    for isa in ("avx2", "avx512"):
        for name in ("Q4_0", "Q8_0"):
            print("decode/%s/%s/real_time\\nprefill/%s/%s/real_time" % (isa, name, isa, name))
elif any(a.startswith("--benchmark_filter") for a in args):
    isa, name = args[-1].rstrip(")/").split("/")[-2:]
    if {stop!r} in (name, isa + "/" + name):
        sys.exit("stopped")
    rate = {{"Q4_0": 18.0, "Q8_0": 16.0}}[name]
    print(json.dumps({{"benchmarks": [
        {{"name": "read_stream/iterations:10/real_time", "GB/s": 20.0}},
        {{"name": "decode/%s/%s/real_time" % (isa, name), "GB/s": rate}}]}}))
elif args[0] == "bench":
    n, rows = int(flag("-n")), []
    for depth in map(int, flag("-d").split(",")):
        ms = 5.0 + 0.001 * depth + ({cliff} if depth >= 2048 else 0.0)
        rows.append({{"n_depth": depth, "n_gen": n, "samples_ns": [n * ms * 1e6] * 3}})
    print(json.dumps({{"gates": [{{"id": "output_hash", "pass": {hash_ok}, "why": "w"}}],
                       "summary": {{"rows": rows}}}}))
    sys.exit(0 if {hash_ok} else 4)
else:
    rate = 100.0 if flag("-c") == "1024" else 100.0 * {large}
    print(json.dumps({{"summary": {{"run": {{"decode_tokens": 32, "decode_s": 32 / rate,
                                             "prompt_tokens": 501}}}}}}))
"""


class JudgeTest(unittest.TestCase):
    def test_a_line_is_found(self):
        a, b = targets.line_through([(0, 3.0), (10, 5.0), (20, 7.0)])
        self.assertAlmostEqual(a, 3.0)
        self.assertAlmostEqual(b, 0.2)
        with self.assertRaises(SystemExit):
            targets.line_through([(64, 1.0)])

    def test_points_are_medians_of_a_token_by_depth(self):
        rows = [{"n_depth": 256, "n_gen": 10, "samples_ns": [9e7, 5e7, 6e7]},
                {"n_depth": 64, "n_gen": 10, "samples_ns": [4e7]}]
        self.assertEqual(targets.depth_points(rows), [(64, 4.0), (256, 6.0)])

    def test_a_cliff_is_off_the_line_and_noise_is_not(self):
        straight = [(d, 5.0 + 0.001 * d) for d in targets.DEPTHS]
        self.assertAlmostEqual(targets.linearity(straight)["worst_pct"], 0.0)
        noisy = [(d, ms * f) for (d, ms), f in zip(straight, (1.02, 0.98, 1.01, 0.97, 1.02, 1.0))]
        row = targets.linearity_row(targets.linearity(noisy), "m", "raw")
        self.assertEqual(targets.judge(row)[2], "met")
        cliff = [(d, ms + (2.0 if d >= 2048 else 0.0)) for d, ms in straight]
        row = targets.linearity_row(targets.linearity(cliff), "m", "raw")
        self.assertEqual(targets.judge(row)[2], "missed")
        self.assertGreater(row["pct_of_limit"], 100.0)

    def test_a_format_is_judged_inside_its_rounds(self):
        # The machine halves its speed in one round: the product keeps 90 % of what could be read.
        rounds = [{"product": 18.0, "ceiling": 20.0}, {"product": 9.0, "ceiling": 10.0},
                  {"product": 18.0, "ceiling": 20.0}]
        row = targets.format_row("avx2", "Q4_K", rounds, "raw")
        self.assertEqual(tuple(row), targets.results.ROW_KEYS)
        self.assertEqual((row["id"], row["model"]), ("format_decode_q4_k", "avx2"))
        self.assertAlmostEqual(row["pct_of_limit"], 90.0)
        self.assertEqual(targets.judge(row)[2], "met")
        row["pct_of_limit"] = 84.9
        self.assertEqual(targets.judge(row)[2], "missed")

    def test_a_block_without_its_ceiling_is_refused(self):
        decode = {"name": "decode/avx2/Q4_0/real_time", "GB/s": 1.0}
        with self.assertRaisesRegex(SystemExit, "expected read_stream"):
            targets.format_rates({"benchmarks": [decode]})
        stream = {"name": "read_stream/real_time", "GB/s": 2.0}
        self.assertEqual(targets.format_rates({"benchmarks": [stream, decode]}),
                         (("avx2", "Q4_0"), 1.0, 2.0))

    def test_turns_are_taken_by_their_median_without_aggregates(self):
        def turns(name, *rates):
            return [{"name": name, "run_type": "iteration", "GB/s": rate} for rate in rates]
        mean = {"name": "read_stream/real_time_mean", "run_type": "aggregate", "GB/s": 99.0}
        document = {"benchmarks": [*turns("read_stream/real_time", 30.0, 20.0, 10.0), mean,
                                   *turns("decode/avx2/Q4_0/real_time", 9.0, 18.0, 90.0)]}
        self.assertEqual(targets.format_rates(document), (("avx2", "Q4_0"), 18.0, 20.0))

    def test_reserved_cache_is_judged_both_ways(self):
        for large, verdict in ((100.0, "met"), (98.0, "met"), (96.0, "missed"), (104.0, "missed")):
            row = targets.reserved_row([{"small": 100.0, "large": large}] * 3, "m", "raw")
            self.assertEqual(targets.judge(row)[2], verdict, large)

    def test_a_row_without_a_target_is_an_error(self):
        with self.assertRaises(ValueError):
            targets.judge(targets.summary_row("else", "m", "x", 1.0))


class FlowTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "smollm2-135m.gguf").write_bytes(b"x")

    def run_main(self, *arguments, cliff=0.0, large=1.0, hash_ok=True, stop=None):
        program = self.folder / "program"
        program.write_text(textwrap.dedent(FAKE_PROGRAM.format(
            python=f"{sys.executable} -SE", cliff=cliff, large=large, hash_ok=hash_ok, stop=stop)))
        program.chmod(0o755)
        argv = ["--fathom", program, "--matmul-bench", program, "--models-dir", self.folder,
                "--out", self.folder / "out", "--wait-idle", 0, "--rounds", 3, *arguments]
        # The flow is judged here, not how busy the machine of the test is.
        with mock.patch.object(targets.peers, "FOREIGN_LIMIT", 1.1), \
                contextlib.redirect_stdout(io.StringIO()) as said, \
                contextlib.redirect_stderr(io.StringIO()):
            status = targets.main([str(a) for a in argv])
        return status, self.summary_rows(), said.getvalue()

    def summary_rows(self):
        """{(id, model): row}; the raw file of each is there."""
        summary, = (self.folder / "out").glob("*/summary.json")
        rows = json.loads(summary.read_text())["rows"]
        for row in rows:
            self.assertTrue((summary.parent / row["raw"]).exists(), row["raw"])
        return {(row["id"], row["model"]): row for row in rows}

    def raw(self, name):
        path, = (self.folder / "out").glob(f"*/targets_{name}.json")
        return json.loads(path.read_text())

    def test_all_targets(self):
        status, rows, said = self.run_main()
        formats = [(f"format_decode_{name}", isa) for name in ("q4_0", "q8_0")
                   for isa in ("avx2", "avx512")]
        self.assertEqual(sorted(rows), [("depth_linearity", targets.MODEL), *formats,
                                        ("reserved_cache", targets.MODEL)])
        self.assertAlmostEqual(rows["format_decode_q4_0", "avx2"]["pct_of_limit"], 90.0)
        self.assertAlmostEqual(rows["format_decode_q8_0", "avx2"]["pct_of_limit"], 80.0)
        self.assertEqual(status, 1)  # Q8_0 misses
        self.assertEqual(said.count(": met"), 4)
        self.assertEqual(said.count(": missed"), 2)

    def test_met_targets_end_with_0(self):
        self.assertEqual(self.run_main("--formats", "Q4_0")[0], 0)

    def test_a_stopped_run_keeps_the_formats_that_it_measured(self):
        with self.assertRaisesRegex(SystemExit, "stopped"):
            self.run_main("--targets", "formats", "--isa", "avx2", stop="Q8_0")
        self.assertEqual(list(self.summary_rows()), [("format_decode_q4_0", "avx2")])
        raw = self.raw("formats")
        self.assertEqual(list(raw["rounds"]), ["avx2/Q4_0"])
        self.assertEqual([gate["id"] for gate in raw["gates"]], ["cpu_idle"])

    def test_one_instruction_set_is_measured_alone(self):
        _, rows, _ = self.run_main("--targets", "formats", "--isa", "avx512")
        self.assertEqual({model for _, model in rows}, {"avx512"})
        for other in (["--isa", "avx512"], ["--targets", "formats", "--isa", "neon"]):
            with self.assertRaises(SystemExit):
                self.run_main(*other)

    def test_formats_of_one_commit_join_in_one_raw_file(self):
        for isa in ("avx2", "avx512"):
            self.run_main("--targets", "formats", "--isa", isa, "--formats", "Q4_0")
        self.assertEqual(sorted(self.raw("formats")["rounds"]), ["avx2/Q4_0", "avx512/Q4_0"])
        with mock.patch.object(targets.results, "commit_of", return_value="another"):
            self.run_main("--targets", "formats", "--formats", "Q8_0")
        self.assertEqual(sorted(self.raw("formats")["rounds"]), ["avx2/Q8_0", "avx512/Q8_0"])

    def test_the_commit_can_be_given(self):
        self.run_main("--targets", "formats", "--commit", "pack")
        self.assertEqual(self.raw("formats")["commit"], "pack")

    def test_a_cliff_and_a_costly_reservation_end_with_1(self):
        self.assertEqual(self.run_main("--targets", "depth", cliff=3.0)[0], 1)
        self.assertEqual(self.run_main("--targets", "reserved", large=0.8)[0], 1)

    def test_a_failed_gate_ends_with_4(self):
        self.assertEqual(self.run_main("--targets", "depth", hash_ok=False)[0], 4)


if __name__ == "__main__":
    unittest.main()
