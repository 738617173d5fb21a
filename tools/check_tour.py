#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the tour of a token in ARCHITECTURE.md: each file and symbol that it names exists.

A hop is an item of a numbered list under a heading that starts with "Tour". In it, code spans with a slash or a
file suffix are paths below src/; the identifiers after a path must occur in that file as words ("a::b" as its last
part). --self-test proves that a missing file, a missing symbol and a hop without a symbol are found.
"""

import re
import sys
from pathlib import Path

from source_text import without_comments_and_strings
from tree_check import run, small_tree

PATH = re.compile(r"^[\w.]+(/[\w.]+)*(/|\.(cpp|hpp|cu|cuh))$")
SYMBOL = re.compile(r"^[A-Za-z_]\w*(::[A-Za-z_]\w*)*$")
N_HOPS = 10


def hops(document: str) -> list[tuple[int, str]]:
    """(line, text) of the numbered items below the heading of the tour; continuation lines joined."""
    found: list[tuple[int, str]] = []
    inside = False
    for number, line in enumerate(document.splitlines(), 1):
        if line.startswith("## "):
            inside = line.startswith("## Tour")
        elif inside and re.match(r"\d+\. ", line):
            found.append((number, line))
        elif inside and found and line.startswith("   "):
            found[-1] = (found[-1][0], found[-1][1] + " " + line.strip())
    return found


def check_hop(src: Path, line: int, text: str) -> list[str]:
    problems = []
    where = f"ARCHITECTURE.md:{line}"
    path = None
    n_symbols = 0
    for span in re.findall(r"`([^`]+)`", text):
        if PATH.match(span):
            path = src / span
            if not path.exists():
                problems.append(f"{where}: src/{span} does not exist")
                path = None
        elif SYMBOL.match(span) and path is not None and path.is_file():
            n_symbols += 1
            word = span.split("::")[-1]
            code = without_comments_and_strings(path.read_text(encoding="utf-8"))
            if not re.search(rf"\b{word}\b", code):
                problems.append(f"{where}: {path.relative_to(src)} has no {span}")
    if n_symbols == 0 and not problems:
        problems.append(f"{where}: a hop names a file and a symbol in it")
    return problems


def check(root: Path) -> list[str]:
    found = hops((root / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    problems = [problem for line, text in found for problem in check_hop(root / "src", line, text)]
    if len(found) < N_HOPS:
        problems.append(f"ARCHITECTURE.md: the tour has {len(found)} hops, expected at least {N_HOPS}")
    return problems


def self_test() -> list[str]:
    good = [f"{n}. `cli/main.cpp` `main` starts.\n" for n in range(1, N_HOPS + 1)]
    cases = {
        "": good,
        "src/cli/absent.cpp does not exist": ["1. `cli/absent.cpp` `main`\n", *good],
        "has no Engine::open": ["1. `cli/main.cpp` `Engine::open`\n", *good],
        "has no commented": ["1. `cli/main.cpp`\n   `commented`\n", *good],
        "names a file and a symbol": ["1. nothing here\n", *good],
        "expected at least": good[1:],
    }
    failures = []
    for expected, items in cases.items():
        files = {
            "src/cli/main.cpp": "int main() {}  // commented\n",
            "ARCHITECTURE.md": "# A\n\n1. no hop\n\n## Tour of a token\n\n" + "".join(items),
        }
        with small_tree(files) as root:
            problems = check(root)
        if bool(problems) != bool(expected) or not all(expected in problem for problem in problems):
            failures.append(f"expected '{expected}', found {problems}")
    return failures


if __name__ == "__main__":
    sys.exit(run("tour", __doc__, check, self_test))
