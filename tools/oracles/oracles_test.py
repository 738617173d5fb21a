#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the oracles: hand-worked values, the committed fixtures, and that each fixture would
notice.

Needs numpy and gguf; without them it exits 77, which ctest shows as skipped.
"""
import dataclasses
import json
import math
import pathlib
import sys
import tempfile
import unittest

try:
    import gguf  # noqa: F401
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}; install numpy and gguf==0.19.0 into .venv")
    sys.exit(77)

import compare_real_model
import kl
import logits_file
import numpy_model
from numpy_model import Config, Model
from tiny_models import FIXTURE_IDS, TINY_MODELS, write_gguf

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "tests" / "fixtures"
LIMIT = 1e-3  # the bound of every comparison with these fixtures
HEAD4 = Config("llama", 1, 4, 4, 1, 1, 4, 1e-5, rope_dim=4)


class FormulaTest(unittest.TestCase):
    def test_rms_norm_of_equal_elements_is_the_weight(self):
        out = numpy_model.rms_norm(np.full((1, 3), -5.0), np.array([1.0, 2.0, 3.0]), 0.0)
        np.testing.assert_allclose(out, [[-1.0, -2.0, -3.0]])

    def test_quarter_turn_of_each_pairing(self):
        x = np.array([[[1.0, 2.0, 3.0, 4.0]]])
        angles = np.array([[math.pi / 2, 0.0]])
        for pairing, expected in (("norm", [-2, 1, 3, 4]), ("neox", [-3, 2, 1, 4])):
            config = dataclasses.replace(HEAD4, rope_pairing=pairing)
            np.testing.assert_allclose(numpy_model.rotate(config, x, angles, 1.0)[0, 0], expected,
                                       atol=1e-12)

    def test_angles_by_hand(self):
        position = np.array([6.0])
        angle = lambda **change: numpy_model.rope_angles(
            dataclasses.replace(HEAD4, **change), position, np.array([1.0, 2.0]))
        np.testing.assert_allclose(angle()[0], [[6.0, 6.0 / 100.0 / 2.0]])
        np.testing.assert_allclose(angle(rope_scaling="linear", rope_factor=3.0)[0], [[2.0, 0.01]])

    def test_yarn_keeps_fast_pairs_and_interpolates_slow_ones(self):
        config = Config("llama", 1, 64, 64, 1, 1, 64, 1e-5, rope_dim=64, rope_scaling="yarn",
                        rope_factor=4.0, rope_orig_ctx=4096)
        angles, magnitude = numpy_model.rope_angles(config, np.array([1.0]), 1.0)
        plain = 10000.0 ** (-np.arange(32) / 32)
        ratio = angles[0] / plain
        # Pairs turning more than 32 times in 4096 tokens: j <= 10; fewer than once: j >= 23.
        np.testing.assert_allclose(ratio[:11], 1.0)
        np.testing.assert_allclose(ratio[23:], 0.25)
        self.assertTrue(np.all(np.diff(ratio[10:24]) < 0.0))
        self.assertAlmostEqual(magnitude, 1.0 + 0.1 * math.log(4.0))

    def test_attention_is_causal_and_shares_kv_heads(self):
        v = np.arange(8.0).reshape(2, 2, 2)  # [n_tokens, n_kv_heads, head_dim]
        q = np.full((2, 4, 2), 30.0)
        k = np.array([[[0.0, 0.0], [9.0, 9.0]], [[9.0, 9.0], [0.0, 0.0]]])
        out = numpy_model.causal_attention(q, k, v).reshape(2, 4, 2)
        # Token 0 sees itself alone. Token 1: heads 0, 1 (kv head 0) pick key 1, heads 2, 3 key 0.
        np.testing.assert_allclose(out[0], [v[0, 0], v[0, 0], v[0, 1], v[0, 1]])
        np.testing.assert_allclose(out[1], [v[1, 0], v[1, 0], v[0, 1], v[0, 1]])


class FixtureTest(unittest.TestCase):
    def test_committed_files_are_what_the_maker_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            for model in TINY_MODELS:
                with self.subTest(model.name):
                    path = pathlib.Path(folder) / f"{model.name}.gguf"
                    write_gguf(model, path)
                    self.assertEqual(path.read_bytes(), (FIXTURES / path.name).read_bytes())

    def test_committed_logits_are_what_numpy_computes(self):
        for model in TINY_MODELS:
            with self.subTest(model.name):
                fixture = json.loads((FIXTURES / f"{model.name}.logits.json").read_text())
                self.assertEqual(fixture["ids"], FIXTURE_IDS)
                logits = Model(FIXTURES / f"{model.name}.gguf").logits(FIXTURE_IDS)
                self.assertGreater(logits.std(), 1.0)
                np.testing.assert_allclose(fixture["logits"], logits, rtol=1e-6, atol=1e-6)

    # What an engine may get wrong, and the fixture that must notice.
    CONFIG_SLIPS = (
        ("llama_plain", {"rope_pairing": "neox"}),
        ("llama_plain", {"norm_eps": 1e-3}),
        ("llama_linear", {"rope_scaling": "none"}),
        ("llama_yarn", {"rope_scaling": "linear"}),
        ("llama_yarn", {"rope_scaling": "none"}),
        ("llama_yarn", {"rope_attn_factor": 1.0}),
        ("llama_yarn", {"rope_orig_ctx": 4096}),
        ("llama_yarn", {"yarn_beta_slow": 2.0}),
        ("qwen2_bias", {"rope_pairing": "norm"}),
        ("qwen2_bias", {"rope_freq_base": 10000.0}),
        ("qwen3_qk_norm", {"rope_pairing": "norm"}),
    )
    DROPPED_TENSORS = (
        ("llama_rope_freqs", "rope_freqs.weight"),
        ("llama_bias", "blk.1.attn_q.bias"),
        ("llama_bias", "blk.1.attn_v.bias"),
        ("llama_bias", "blk.1.attn_output.bias"),
        ("llama_bias", "output.weight"),
        ("qwen2_bias", "blk.0.attn_q.bias"),
        ("qwen2_bias", "blk.0.attn_v.bias"),
        ("qwen2_bias", "blk.1.attn_k.bias"),
    )

    def assert_noticed(self, name, change):
        model = Model(FIXTURES / f"{name}.gguf")
        right = model.logits(FIXTURE_IDS)
        change(model)
        self.assertGreater(np.abs(model.logits(FIXTURE_IDS) - right).max(), 5 * LIMIT)

    def test_fixtures_notice_a_wrong_hyper_parameter(self):
        for name, slip in self.CONFIG_SLIPS:
            with self.subTest(name, slip=slip):
                def change(model):
                    model.config = dataclasses.replace(model.config, **slip)
                self.assert_noticed(name, change)

    def test_fixture_notices_a_missing_qk_norm(self):
        def change(model):
            model.config = dataclasses.replace(model.config, arch="qwen2")
            model._tensors = {name: tensor for name, tensor in model._tensors.items()
                              if "_q_norm" not in name and "_k_norm" not in name}
        self.assert_noticed("qwen3_qk_norm", change)

    def test_fixtures_notice_a_dropped_tensor(self):
        for name, tensor in self.DROPPED_TENSORS:
            with self.subTest(name, tensor=tensor):
                self.assert_noticed(name, lambda model: model._tensors.pop(tensor))

    def test_unknown_tensor_is_refused(self):
        model = Model(FIXTURES / "llama_plain.gguf")
        model._tensors["blk.0.attn_sinks.weight"] = model._tensors["blk.0.attn_norm.weight"]
        with self.assertRaisesRegex(ValueError, "attn_sinks"):
            model.logits(FIXTURE_IDS)


class KlTest(unittest.TestCase):
    def test_by_hand(self):
        base = np.log(np.array([[0.5, 0.5], [0.9, 0.1]]))
        other = np.log(np.array([[0.25, 0.75], [0.9, 0.1]])) + 7.0  # a shift changes nothing
        found = kl.compare(base, other)
        self.assertAlmostEqual(found["mean_kl"], 0.5 * math.log(2.0) / 2 + 0.25 * math.log(2 / 3))
        self.assertEqual(found["top1_agreement"], 0.5)

    def test_windows_score_their_last_stride_predictions(self):
        windows = compare_real_model.windows_of(list(range(11)), 4, 2, 3)
        self.assertEqual(windows, [([0, 1, 2, 3], 1), ([2, 3, 4, 5], 1), ([4, 5, 6, 7], 1)])
        # A model that gives the right next id 3/4 at even places and 1/4 at odd ones, of 12 ids.
        def logits_of(ids):
            rows = np.zeros((len(ids), 12))
            rows[np.arange(len(ids)), np.array(ids) + 1] = [np.log(33 if i % 2 == 0 else 11 / 3)
                                                            for i in ids]
            return rows
        value, count = compare_real_model.perplexity(logits_of, windows)
        self.assertEqual(count, 6)  # predictions of 2, 3 | 4, 5 | 6, 7
        self.assertAlmostEqual(value, math.sqrt(4.0 * 4.0 / 3.0))

    def test_perplexity_by_hand(self):
        logits = np.log(np.array([[0.5, 0.5], [0.125, 0.875], [1e-9, 1.0]]))
        nll = kl.negative_log_likelihood(logits, [0, 1, 0])
        np.testing.assert_allclose(np.exp(nll), [2.0, 8.0])

    def test_the_three_forms_of_a_logits_file(self):
        logits = np.arange(6, dtype=np.float32).reshape(2, 3)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a.npy", "a.f32"):
                path = pathlib.Path(folder) / name
                logits_file.save_logits(path, logits)
                np.testing.assert_array_equal(logits_file.load_logits(path, 3), logits)
            with open(path, "wb") as file:
                file.write(logits_file.FATHOM_HEADER.pack(b"FTHLOGIT", 1, 8, 3, 0, 1, 99))
                file.write(logits.tobytes())
            np.testing.assert_array_equal(logits_file.load_logits(path), logits)
        self.assertEqual(logits_file.parse_ids("1, 2\n3,4\n"), [1, 2, 3, 4])


if __name__ == "__main__":
    unittest.main()
