# SPDX-License-Identifier: Apache-2.0
"""How much of the machine others used while a block ran: (busy CPU time - our children's) / all.

A benchmark of spinning threads loses far more speed than this share, so a noisy block must show.
"""
import os
import time


def busy_and_total_s(path="/proc/stat"):
    """CPU seconds since boot over all cores: (not idle, all)."""
    with open(path) as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]  # idle and iowait
    per_s = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - idle) / per_s, sum(ticks) / per_s


def children_s():
    times = os.times()
    return times.children_user + times.children_system


class ForeignShare:
    """`with ForeignShare() as share: run a child`; then share.value, 0 to 1."""

    def __enter__(self):
        self._busy, self._total = busy_and_total_s()
        self._own = children_s()
        return self

    def __exit__(self, *_):
        busy, total = busy_and_total_s()
        foreign = (busy - self._busy) - (children_s() - self._own)
        self.value = max(0.0, foreign) / max(total - self._total, 1e-9)


def wait_until_idle(limit_share, patience_s, sample_s=0.5):
    """Waits until others use less than limit_share of the machine, at most patience_s."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        with ForeignShare() as share:
            time.sleep(sample_s)
        if share.value < limit_share:
            return
