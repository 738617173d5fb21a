# SPDX-License-Identifier: Apache-2.0
"""What the checks of the tree share: their command line, their report, and small trees for their self-tests."""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_tree(files: dict[str, str]) -> Iterator[Path]:
    """A folder with these files (path below it -> text), gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        yield root


def run(name: str, about: str, check: Callable[[Path], list[str]], self_test: Callable[[], list[str]]) -> int:
    """Prints the problems of the tree, or with --self-test those of the check itself; 1 when there are any."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    problems = self_test() if args.self_test else check(args.root)
    for problem in problems:
        print(problem)
    print(f"{name}: " + (f"{len(problems)} problems" if problems else "ok"))
    return 1 if problems else 0
