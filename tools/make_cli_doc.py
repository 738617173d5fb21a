#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/cli.md from the program's --help, so that the document cannot differ from the program.

make_cli_doc.py build/cpu/fathom [docs/cli.md]; with --check nothing is written and a difference fails.
--self-test runs it against a small stand-in program.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HEADER = """# The program

Made by `tools/make_cli_doc.py` from `--help`; a test compares the two.
"""


def help_of(program: str, *command: str) -> str:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100", "LC_ALL": "C.UTF-8"}
    result = subprocess.run([program, *command, "--help"], capture_output=True, text=True, env=environment, check=False)
    if result.returncode != 0:
        sys.exit(f"{program} {' '.join(command)} --help ends with {result.returncode}: {result.stderr.strip()}")
    # Where the program stands and trailing blanks are no part of the document.
    text = result.stdout.replace(program, "fathom")
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def subcommands(text: str) -> list[str]:
    """The first words of the indented lines below a heading with the word commands ("Subcommands:")."""
    section = re.search(r"^.*commands:\s*\n((?:[ \t]+.*\n?|\n)+)", text, re.I | re.M)
    if not section:
        return []
    lines = [line for line in section.group(1).splitlines() if line.strip()]
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    return [line.split()[0] for line in lines if len(line) - len(line.lstrip()) == indent]


def document(program: str) -> str:
    overview = help_of(program)
    names = subcommands(overview)
    if not names:
        sys.exit(f"{program} --help lists no commands")
    parts = [HEADER, f"```\n{overview}\n```\n"]
    parts += [f"## fathom {name}\n\n```\n{help_of(program, name)}\n```\n" for name in names]
    return "\n".join(parts)


def compare(new: str, path: Path) -> int:
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if old == new:
        print("cli doc: ok")
        return 0
    difference = difflib.unified_diff(old.splitlines(), new.splitlines(), str(path), "--help", lineterm="")
    print("\n".join(list(difference)[:60]))
    print(f"{path} is not what --help says; run: make cli-doc")
    return 1


STAND_IN = """#!/bin/sh
case "$1" in
  run) echo 'run MODEL: generates text' ;;
  bench) echo 'bench MODEL: measures' ;;
  *) printf 'Usage: fathom [COMMAND]\\n\\nCommands:\\n  run     generates\\n          text\\n  bench   measures\\n\\nMore: none\\n' ;;
esac
"""


def self_test() -> int:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "fathom"
        program.write_text(STAND_IN)
        program.chmod(0o755)
        made = document(str(program))
        path = Path(folder) / "cli.md"
        path.write_text(made)
        same = compare(made, path)
        path.write_text(made.replace("measures", "measured"))
        changed = compare(made, path)
    found = re.findall(r"^## fathom (\w+)$", made, re.M)
    good = found == ["run", "bench"] and "generates text" in made and same == 0 and changed == 1
    print("self-test " + ("ok" if good else f"failed: {found}, {same}, {changed}\n{made}"))
    return 0 if good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?", default="build/cpu/fathom")
    parser.add_argument("document", nargs="?", type=Path, default=Path("docs/cli.md"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    made = document(args.program)
    if args.check:
        return compare(made, args.document)
    args.document.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
