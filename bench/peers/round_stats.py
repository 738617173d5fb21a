# SPDX-License-Identifier: Apache-2.0
"""Statistics over interleaved rounds: medians of per-round ratios with bootstrap intervals.

A ratio is taken inside a round, where both programs met the same machine noise; the median over
rounds and its interval (resampling rounds, percentile method, fixed seed) are what a summary may
print.
"""
import random
import statistics

BOOTSTRAP_SAMPLES = 2000
CONFIDENCE = 0.95


def quantile(values, fraction):
    """Linear interpolation between order statistics."""
    ordered = sorted(values)
    position = fraction * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def bootstrap_interval(values, seed=1):
    """[lo, hi] of the median of `values`, one value a round."""
    if not values:
        raise ValueError("no rounds to take an interval over")
    rng = random.Random(seed)
    medians = [statistics.median(rng.choices(values, k=len(values)))
               for _ in range(BOOTSTRAP_SAMPLES)]
    tail = (1.0 - CONFIDENCE) / 2.0
    return [quantile(medians, tail), quantile(medians, 1.0 - tail)]


def best_peer_arm(rounds, peer_arms, better=max):
    """The arm with the best median over all rounds: the peer takes its better setting per test."""
    return better(peer_arms, key=lambda arm: statistics.median(r[arm] for r in rounds))


def ratio_summary(rounds, ours, peer):
    """rounds: one dict {arm: value} a round. Ratios are ours / peer, whatever the unit."""
    ratios = [r[ours] / r[peer] for r in rounds]
    return {"ours": statistics.median(r[ours] for r in rounds),
            "peer_value": statistics.median(r[peer] for r in rounds),
            "ratio": statistics.median(ratios), "ratio_ci": bootstrap_interval(ratios),
            "ratios": ratios}
