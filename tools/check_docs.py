#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the documents name, and the first and the unfinished lines of sources.

In README.md, ARCHITECTURE.md, CONTRIBUTING.md and docs/: code spans that look like files, symbols (with `::` or
`()`), tests (`Suite.Name`), make targets or subcommands must exist. In every source: an SPDX line on top, below it a comment that says what
the file is for (not in a CMakeLists.txt: it is for its folder), and no to-do without an issue number. --self-test
proves that each of these is found.
"""

import re
import sys
from pathlib import Path

from tree_check import run, small_tree

SOURCE_FOLDERS = ("src", "include", "tests", "tools", "scripts", "cmake", "examples", "bench", ".ci")
SOURCE_SUFFIXES = {".hpp", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake", ".in"}
SOURCE_NAMES = {"CMakeLists.txt", "Makefile", "run"}
FILE = re.compile(r"^\.?[\w.-]+(/[\w.-]+)*/?$")
FILE_SUFFIX = re.compile(r"\.(hpp|cpp|cu|cuh|py|sh|cmake|md|json|txt)$|/$")
SYMBOL = re.compile(r"^([A-Za-z_]\w*)(::~?[A-Za-z_]\w*)*(\(\))?$")
TEST_NAME = re.compile(r"^([A-Z]\w+)\.([A-Z]\w+)$")
TEST = re.compile(r"\bTEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)")
PURPOSE = re.compile(r'(//|#) ?[\w`]|r?"""\S')
DIRECTIVE = re.compile(r"#(include|pragma|if|ifdef|ifndef|define)\b")
TO_DO = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b(?!\(#\d+\))")


def sources(root: Path) -> list[Path]:
    found = [f for folder in SOURCE_FOLDERS for f in sorted((root / folder).rglob("*")) if f.is_file()]
    found += [root / "CMakeLists.txt", root / "Makefile"]
    return [
        f
        for f in found
        if f.exists() and "__pycache__" not in f.parts and (f.suffix in SOURCE_SUFFIXES or f.name in SOURCE_NAMES)
    ]


def documents(root: Path) -> list[Path]:
    named = [root / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    return [f for f in named if f.exists()] + sorted((root / "docs").rglob("*.md"))


def spans(text: str) -> list[tuple[int, str]]:
    """(line, text) of code spans, and of the commands in fenced blocks."""
    found, fenced = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced:
            found.append((number, line.split("#")[0].removeprefix("$ ").strip()))
        else:
            found += [(number, span) for span in re.findall(r"`([^`]+)`", line)]
    return found


def has_purpose(lines: list[str]) -> bool:
    """Whether the first line below the interpreter's and the licence's is a comment or a docstring."""
    below = [line for line in lines[:3] if not line.startswith("#!") and "SPDX" not in line]
    return bool(below) and PURPOSE.match(below[0]) is not None and not DIRECTIVE.match(below[0])


class Tree:
    """What a document may name."""

    def __init__(self, root: Path):
        self.root = root
        files = sources(root)
        self.names = {f.name for f in files} | {f.name for f in documents(root)} | {f.name for f in root.glob("*")}
        text = "\n".join(f.read_text(encoding="utf-8") for f in files)
        self.words = set(re.findall(r"\w+", text))
        self.tests = set(TEST.findall(text))
        makefile = root / "Makefile"
        self.targets = set(re.findall(r"^([\w-]+):", makefile.read_text(), re.M)) if makefile.exists() else set()
        self.folders = {f.name for folder in (root, root / "src") if folder.is_dir() for f in folder.iterdir()}

    def problem(self, span: str) -> str | None:
        words = span.split()
        if not words:
            return None
        if words[0] == "make" and len(words) > 1 and re.match(r"^[a-z-]+$", words[1]):
            return None if words[1] in self.targets else f"Makefile has no target {words[1]}"
        if re.match(r"^(build/\w+/)?fathom$", words[0]) and len(words) > 1 and re.match(r"^[a-z]+$", words[1]):
            exists = (self.root / f"src/cli/cmd_{words[1]}.cpp").exists()
            return None if exists else f"fathom has no subcommand {words[1]}"
        word = words[0]
        if (test := TEST_NAME.match(word)) and not FILE_SUFFIX.search(word):
            return None if test.groups() in self.tests else f"there is no test {word}"
        if word.startswith("build/") or not FILE.match(word):
            symbol = SYMBOL.match(span) if "::" in span or "()" in span else None
            if symbol and not span.startswith("std::"):
                last = re.findall(r"\w+", span)[-1]
                return None if last in self.words else f"no source has the symbol {span}"
            return None
        if "/" in word and word.split("/")[0] in self.folders:
            exists = (self.root / word).exists() or (self.root / "src" / word).exists()
            return None if exists else f"{word} does not exist"
        if "/" not in word and FILE_SUFFIX.search(word):
            return None if word in self.names else f"no file is named {word}"
        return None


def check(root: Path) -> list[str]:
    problems = []
    tree = Tree(root)
    for document in documents(root):
        for line, span in spans(document.read_text(encoding="utf-8")):
            if problem := tree.problem(span):
                problems.append(f"{document.relative_to(root)}:{line}: {problem}")
    for file in sources(root):
        path = file.relative_to(root)
        lines = file.read_text(encoding="utf-8").splitlines()
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:2]):
            problems.append(f"{path}:1: no SPDX line")
        if file.name != "CMakeLists.txt" and not has_purpose(lines):
            problems.append(f"{path}:2: no comment below the SPDX line that says what the file is for")
        for number, line in enumerate(lines, 1):
            if TO_DO.search(line):
                problems.append(f"{path}:{number}: a to-do names its issue, as in TO" + "DO(#12)")
    return problems


def self_test() -> list[str]:
    licence = "// SPDX-License-Identifier: Apache-2.0\n"
    spdx = licence + "// What it is for.\n"
    cases = [
        ("README.md", "`src/base/absent.hpp`", "does not exist"),
        ("README.md", "`base/absent/`", "does not exist"),
        ("README.md", "`absent.hpp`", "no file is named"),
        ("README.md", "```\nmake absent\n```", "no target absent"),
        ("README.md", "`fathom absent`", "no subcommand absent"),
        ("docs/a.md", "`Engine::absent`", "no source has the symbol"),
        ("docs/a.md", "`absent()`", "no source has the symbol"),
        ("docs/a.md", "`Some.Absent`", "there is no test"),
        ("src/base/b.hpp", spdx + "// TO" + "DO: later", "names its issue"),
        ("src/base/b.hpp", "// no licence", "no SPDX line"),
        ("src/base/b.hpp", licence + "#pragma once\n", "what the file is for"),
        ("src/base/b.cpp", licence + "\n// too late\n", "what the file is for"),
        ("src/base/b.hpp", licence, "what the file is for"),
        ("tools/b.py", "#!/usr/bin/python3\n# SPDX-License-Identifier: Apache-2.0\nimport re", "what the file is for"),
        ("tools/b.py", '#!/usr/bin/python3\n# SPDX-License-Identifier: Apache-2.0\n"""What for."""', ""),
        ("src/base/CMakeLists.txt", "# SPDX-License-Identifier: Apache-2.0\nfathom_unit(base)", ""),
        ("src/base/b.hpp", spdx + "// TO" + "DO(#3): later", ""),
        ("README.md", "`src/base/a.hpp` `base/` `a.hpp` `make test` `fathom run M` `A::open` `std::x()` `a | b` `A.Opens`", ""),
    ]
    failures = []
    for path, text, expected in cases:
        files = {
            "src/base/a.hpp": spdx + "struct A { void open(); };\n",
            "src/base/a_test.cpp": spdx + "TEST_F(A,\n       Opens) {}\n",
            "src/cli/cmd_run.cpp": spdx,
            "Makefile": "# SPDX-License-Identifier: Apache-2.0\n# Targets.\ntest:\n",
            path: text,
        }
        with small_tree(files) as root:
            problems = check(root)
        if len(problems) != (1 if expected else 0) or any(expected not in problem for problem in problems):
            failures.append(f"{path} with {text!r} gives {problems}, expected '{expected}'")
    return failures


if __name__ == "__main__":
    sys.exit(run("docs", __doc__, check, self_test))
