# SPDX-License-Identifier: Apache-2.0
"""C++ sources as text for the checks of this folder: without comments and strings, lines kept."""

import re

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""", re.S
)


def _blank(match: re.Match) -> str:
    text = match.group(0)
    if text[0] in "/":
        return re.sub(r"[^\n]", " ", text)
    return text[0] + re.sub(r"[^\n]", " ", text[1:-1]) + text[-1]


def without_comments_and_strings(text: str) -> str:
    """The text with comments and the insides of literals blanked; line numbers and digit separators stay."""
    text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "_", text)  # 1'000 opens no character literal
    return _TOKEN.sub(_blank, text)


def includes(text: str) -> list[tuple[int, str, bool]]:
    """(line, path, quoted) of each #include that is not inside a comment."""
    without_comments = re.sub(
        r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S
    )
    found = []
    for number, line in enumerate(without_comments.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match:
            found.append((number, match.group(2), match.group(1) == '"'))
    return found
