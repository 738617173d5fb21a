#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how long files and functions are, and the ten largest of each. A report: nothing fails by it.

A function is a brace block whose head ends in a parameter list and what may follow one; bodies of namespaces,
types, lambdas and control statements are not counted on their own. --self-test checks that on a sample.
"""

import argparse
import re
import sys
from pathlib import Path

from source_text import without_comments_and_strings

SUFFIXES = {".hpp", ".cpp", ".cu", ".cuh", ".py", ".sh"}
SECOND_LOOK_FILE, SECOND_LOOK_FUNCTION, SECOND_LOOK_KERNEL = 600, 80, 120
NOT_FUNCTIONS = re.compile(
    r"^(if|else|for|while|do|switch|catch|try|return|namespace|enum|struct|class|union|extern|case|default)\b"
)


def function_name(head: str) -> str:
    """The name of the function that a brace after this text opens; empty when it opens something else."""
    head = re.sub(r"^\s*(#[^\n]*\n\s*)*", "", head)
    head = re.sub(r"^(public|private|protected):\s*", "", head)
    head = re.sub(r"^template\s*<.*?>\s*(?=[\w\[])(requires\b.*?\n)?", "", head, flags=re.S)
    before, paren, _ = head.partition("(")
    if not paren or NOT_FUNCTIONS.match(head):
        return ""
    name = re.search(r"(operator\s*[^\s\w]+|[~\w:]+)\s*$", before)
    if not name or (re.search(r"[=\[]", before) and "operator" not in before):
        return ""
    return name.group(1)


def functions(text: str) -> list[tuple[str, int, int, bool]]:
    """(name, first line, number of lines, is a kernel) of each function definition; nested blocks belong to it."""
    code = without_comments_and_strings(text)
    found = []
    depth = 0
    start = 0  # where the text before the next brace begins
    opened = None  # (name, line, depth, is a kernel) of the function being read
    for at, char in enumerate(code):
        if char == "{":
            head = code[start:at]
            name = function_name(head) if opened is None else ""
            if name:
                line = code.count("\n", 0, start + len(head) - len(head.lstrip())) + 1
                opened = (name, line, depth, "__global__" in head)
            depth += 1
        elif char == "}":
            depth -= 1
            if opened and depth == opened[2]:
                found.append((opened[0], opened[1], code.count("\n", 0, at) + 2 - opened[1], opened[3]))
                opened = None
        if char in ";{}":
            start = at + 1
    return found


def percentile(values: list[int], share: float) -> int:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0


def distribution(name: str, values: list[int]) -> str:
    shares = ", ".join(f"p{int(s * 100)} {percentile(values, s)}" for s in (0.5, 0.75, 0.9, 0.99))
    return f"{name}: {len(values)}, {sum(values)} lines, {shares}, largest {max(values, default=0)}"


def report(root: Path) -> None:
    folders = ("src", "include", "tests", "tools", "scripts", "examples", "bench")
    files = [f for folder in folders for f in (root / folder).rglob("*") if f.suffix in SUFFIXES]
    sizes, bodies, kernels = [], [], []
    for file in files:
        text = file.read_text(encoding="utf-8")
        path = file.relative_to(root).as_posix()
        sizes.append((text.count("\n"), path))
        if file.suffix in {".hpp", ".cpp", ".cu", ".cuh"}:
            for name, line, lines, is_kernel in functions(text):
                (kernels if is_kernel else bodies).append((lines, f"{path}:{line} {name}"))
    for title, rows, limit in (
        ("files", sizes, SECOND_LOOK_FILE),
        ("functions", bodies, SECOND_LOOK_FUNCTION),
        ("kernels", kernels, SECOND_LOOK_KERNEL),
    ):
        print(distribution(title, [size for size, _ in rows]))
        for size, name in sorted(rows, reverse=True)[:10]:
            print(f"  {size:5} {name}" + ("   (worth a second look)" if size >= limit else ""))


SAMPLE = """\
namespace a {
struct S {
  S(int n) : n_(n) {}
  int f(int (*g)(int)) const noexcept {
    if (g(1)) { return 2; }
    return 3;
  }
  int n_;
};
template <class T>
auto h(const std::vector<T>& v, int x = (1 + 2)) -> decltype(v[0]) {
  auto inner = [&](int y) { return y; };
  for (;;) {
  }
  return inner(x);  // } {
}
constexpr int kTable[] = {1, 2};
__global__ void k(float* out) {
  out[0] = 1;
}
}
"""


def self_test() -> bool:
    found = functions(SAMPLE)
    expected = [("S", 3, 1, False), ("f", 4, 4, False), ("h", 10, 7, False), ("k", 18, 3, True)]
    if found != expected:
        print(f"found {found}\nexpected {expected}")
    return found == expected


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return 0 if self_test() else 1
    report(args.root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
