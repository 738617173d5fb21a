# SPDX-License-Identifier: Apache-2.0
"""How much of our CPUs others used while a block ran: (busy CPU time - our children's) / all.

A benchmark of spinning threads loses far more speed than this share, so a noisy block must show.
"""
import os
import time


def busy_and_total_s(path="/proc/stat", cpus=None):
    """CPU seconds since boot over `cpus`, by default those this process may run on: (busy, all)."""
    names = {f"cpu{cpu}" for cpu in (os.sched_getaffinity(0) if cpus is None else cpus)}
    busy = total = 0
    with open(path) as file:
        for line in file:
            name, *words = line.split()
            if name in names:
                ticks = [int(word) for word in words[:8]]
                busy += sum(ticks) - ticks[3] - ticks[4]  # less idle and iowait
                total += sum(ticks)
    per_s = os.sysconf("SC_CLK_TCK")
    return busy / per_s, total / per_s


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
