#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the arrows between folders and the bans of ARCHITECTURE.md in src/ and include/.

A folder includes only lower levels, never its own level and never upwards. What may stand where besides (CUDA
headers, getenv, printing, logging, JSON, macros) is one table each below. A source includes its own header first, so
that compiling it shows that the header stands alone. --self-test proves that each rule finds a violation.
"""

import re
import sys
from pathlib import Path

from source_text import includes, without_comments_and_strings
from tree_check import run, small_tree

LEVELS = {
    "base": 0,
    "tensor": 1,
    "device": 2, "gguf": 2, "text": 2, "distributed": 2,
    "kernels": 3,
    "backends": 4, "cache": 4,
    "model": 5,
    "engine": 6, "convert": 6, "measure": 6,
    "report": 7, "api": 7, "server": 7,
    "cli": 8,
}  # fmt: skip
# Public headers that every level uses; the others belong to api/ and are seen by cli/ and server/.
BASE_PUBLIC = {f"fathom/{name}.hpp" for name in ("api", "error", "log", "op_scope", "sampling", "types")}
# Lower levels that a folder may not see all the same.
NEVER = {
    "kernels": {"gguf", "text", "distributed"},
    "report": {"model", "engine", "cache", "gguf", "text", "kernels"},
}
TEST_EXTRA = {"tests"}  # first folder of tests/support/...
BENCH_EXTRA = {"tests", "measure", "report"}

CUDA_HEADER = re.compile(
    r"^(cuda|cublas|cudnn|cupti|cub/|thrust/|cute/|cutlass/|cooperative_groups|mma\.h|nvtx|nvml|nvrtc|nccl|sm_\d)"
)
CUDA_PLACES = re.compile(
    r"^src/(backends/cuda/.*|kernels/common/[^/]*\.cuh|kernels/[^/]+/inst/[^/]*\.cu|distributed/nccl_[^/]*"
    r"|.*(_cuda\.cu|_cuda_test\.cu|_sm\d+\.cu|_kernel\.cuh))$"
)
DEVICE_ONLY = re.compile(r"(_kernel\.cuh|^src/kernels/common/[^/]*\.cuh)$")
TEST = re.compile(r"_test\.(cpp|cu)$")
BENCH = re.compile(r"_bench\.(cpp|cu)$")

# (what, pattern of an include, the paths that may have it)
INCLUDE_BANS = [
    ("CUDA headers", CUDA_HEADER, CUDA_PLACES),
    ("CUPTI headers", re.compile(r"^cupti"), re.compile(r"^src/backends/cuda/")),
    ("MPI headers", re.compile(r"^mpi\.h$"), re.compile(r"^src/distributed/mpi_")),
    ("spdlog", re.compile(r"^spdlog/"), re.compile(r"^src/(cli|server)/")),
    ("CLI11", re.compile(r"^CLI/"), re.compile(r"^src/cli/")),
    ("nlohmann-json", re.compile(r"^nlohmann/"), re.compile(r"^src/base/json[^/]*$")),
    ("Boost", re.compile(r"^boost/"), re.compile(r"^src/server/[^/]*\.cpp$")),
    ("GoogleTest", re.compile(r"^(gtest|gmock|rapidcheck)"), TEST),
    ("Google Benchmark", re.compile(r"^benchmark/"), BENCH),
]
# (what, pattern in the code without comments and strings, the paths that may have it)
TEXT_BANS = [
    ("getenv", re.compile(r"\b(secure_)?getenv\s*\("), re.compile(r"^src/cli/")),
    (
        "printing",
        re.compile(r"\b(std::(cout|cerr|clog)\b|(?<!\w)v?f?printf\s*\(|f?puts\s*\(|putchar\s*\(|fmt::print(ln)?\b)"),
        re.compile(r"^src/cli/|_(test|bench)\.(cpp|cu)$|^src/.*\.(cu|cuh)$"),
    ),
    ("__CUDA_ARCH__", re.compile(r"\b__CUDA_ARCH__\b"), re.compile(r"^src/kernels/common/arch\.cuh$")),
    ("assert()", re.compile(r"(?<![\w])assert\s*\("), re.compile(r"^$")),
]
MACROS = {"FATHOM_HD", "FATHOM_CHECK", "FATHOM_DCHECK", "FATHOM_API"}


def folder_of(include: str, quoted: bool) -> str | None:
    """The folder (or 'public', 'tests') an include leads to; None for headers of others."""
    first = include.split("/")[0]
    if first == "fathom":
        return "public"
    if "/" in include and (first in LEVELS or first == "tests"):
        return first
    return None


def level_problem(path: str, include: str, quoted: bool) -> str | None:
    target = folder_of(include, quoted)
    public_header = path.startswith("include/")
    if public_header:
        if quoted and target != "public":
            return "a public header includes only public headers"
        if path.removeprefix("include/") in BASE_PUBLIC and quoted and include not in BASE_PUBLIC:
            return "a public header that every level uses includes one of api/"
        return None
    if target is None:
        if quoted and include != "fathom_build_info.hpp":  # the generated header
            return "includes are written from src/"
        return None
    own = path.split("/")[1]
    level = LEVELS[own]
    extra = BENCH_EXTRA if BENCH.search(path) else TEST_EXTRA if TEST.search(path) else set()
    if target in extra or target == own:
        return None
    if target == "tests":
        return "only tests and benches see tests/support"
    if target == "public":
        if include in BASE_PUBLIC or level > LEVELS["api"] or own in ("api", "server"):
            return None
        return f"{own} includes a public header of api/"
    if LEVELS[target] >= level:
        return f"{own} (level {level}) includes {target} (level {LEVELS[target]}): only lower levels"
    if target in NEVER.get(own, ()):
        return f"{own} never includes {target}"
    return None


def kernel_problem(path: str, include: str) -> str | None:
    """Inside kernels: op -> quant -> common, never op -> op; op_table.hpp is for whoever sees every op."""
    if not path.startswith("src/kernels/") or not include.startswith("kernels/"):
        return None
    own, target = path.split("/")[2:], include.split("/")[1:]
    if len(own) == 1 or TEST.search(path) or BENCH.search(path):
        return None
    own_folder, target_folder = own[0], target[0] if len(target) > 1 else ""
    if target_folder == own_folder:
        return None
    if target == ["op_table.hpp"]:
        return "only tests of an op see the table of all ops"
    allowed = {"common": {""}, "quant": {"", "common"}}.get(own_folder, {"", "common", "quant"})
    if target_folder not in allowed:
        return f"kernels/{own_folder} includes kernels/{target_folder}: op -> quant -> common, never op -> op"
    return None


def device_code_problem(path: str, include: str, quoted: bool) -> str | None:
    if DEVICE_ONLY.search(path) and quoted and not include.startswith("tensor/") and not include.endswith(".cuh"):
        return "device-only code includes no host header except tensor/"
    return None


def check_file(path: str, text: str) -> list[str]:
    problems = []

    def report(line: int, what: str) -> None:
        problems.append(f"{path}:{line}: {what}")

    for line, include, quoted in includes(text):
        for problem in (
            level_problem(path, include, quoted),
            kernel_problem(path, include),
            device_code_problem(path, include, quoted),
        ):
            if problem:
                report(line, f'{problem} ("{include}")')
        for what, pattern, places in INCLUDE_BANS:
            if pattern.search(include) and not places.search(path):
                report(line, f"{what} may not be included here (<{include}>)")
    for number, line in enumerate(without_comments_and_strings(text).splitlines(), 1):
        for what, pattern, places in TEXT_BANS:
            if pattern.search(line) and not places.search(path):
                report(number, f"{what} may not be used here")
        macro = re.match(r"\s*#\s*define\s+(\w+)", line)
        if macro and macro.group(1) not in MACROS:
            report(number, f"macro {macro.group(1)}: the macros are {', '.join(sorted(MACROS))}")
    return problems


def own_header_problem(path: str, text: str, has_own_header: bool) -> str | None:
    first = next((include for _, include, _ in includes(text)), None)
    own = path.removeprefix("src/").removesuffix(".cpp") + ".hpp"
    if has_own_header and first != own:
        return f"includes its own header first, so that it is compiled alone (\"{own}\")"
    if path.endswith(".hpp") and not re.search(r"^#pragma once$", text, re.MULTILINE):
        return "a header says #pragma once"
    return None


def check_tree(root: Path) -> list[str]:
    problems = []
    files = sorted(
        f for top in ("src", "include") for f in (root / top).rglob("*") if f.suffix in {".hpp", ".cpp", ".cu", ".cuh"}
    )
    if not files:
        return [f"{root}: no sources found"]
    beast = []
    for file in files:
        path = file.relative_to(root).as_posix()
        if path.startswith("src/") and path.split("/")[1] not in LEVELS:
            problems.append(f"{path}: folder has no level in tools/check_layers.py")
            continue
        text = file.read_text(encoding="utf-8")
        problems += check_file(path, text)
        has_own_header = file.suffix == ".cpp" and file.with_suffix(".hpp").exists()
        if problem := own_header_problem(path, text, has_own_header):
            problems.append(f"{path}: {problem}")
        beast += [path for _, include, _ in includes(text) if include.startswith("boost/beast")]
    if len(set(beast)) > 1:
        problems.append(f"Boost.Beast stands in {', '.join(sorted(set(beast)))}: one file only")
    return problems


# (path, text, part of the expected problem; empty: must be clean)
SAMPLES = [
    ("src/gguf/a.cpp", '#include "text/b.hpp"', "only lower levels"),
    ("src/base/a.cpp", '#include "tensor/b.hpp"', "only lower levels"),
    ("src/engine/a.cpp", '#include "measure/b.hpp"', "only lower levels"),
    ("src/kernels/attn/a.cpp", '#include "gguf/b.hpp"', "never includes gguf"),
    ("src/report/a.cpp", '#include "model/b.hpp"', "never includes model"),
    ("src/kernels/attn/a.cpp", '#include "kernels/sample/b.hpp"', "never op -> op"),
    ("src/kernels/common/a.cpp", '#include "kernels/quant/b.hpp"', "never op -> op"),
    ("src/kernels/attn/a.cpp", '#include "kernels/op_table.hpp"', "table of all ops"),
    ("src/kernels/attn/a_kernel.cuh", '#include "base/error.hpp"', "no host header"),
    ("src/engine/a.cpp", '#include <cuda_runtime.h>', "CUDA headers"),
    ("src/kernels/attn/attn_cuda.cu", '#include <cupti.h>', "CUPTI headers"),
    ("src/engine/a.cpp", '#include <spdlog/spdlog.h>', "spdlog"),
    ("src/gguf/a.cpp", '#include <nlohmann/json.hpp>', "nlohmann-json"),
    ("src/engine/a.cpp", 'auto x = std::getenv("HOME");', "getenv"),
    ("src/engine/a.cpp", "int f() { std::printf(\"x\"); }", "printing"),
    ("src/engine/a.cpp", "int f() { std::cout << 1; }", "printing"),
    ("src/engine/a.cpp", "#define TWICE(x) x x", "macro TWICE"),
    ("src/engine/a.cpp", "void f(int n) { assert(n); }", "assert()"),
    ("src/engine/a.cpp", '#include "tests/support/b.hpp"', "only tests"),
    ("src/gguf/a.cpp", '#include "fathom/fathom.hpp"', "public header of api/"),
    ("include/fathom/log.hpp", '#pragma once\n#include "fathom/fathom.hpp"', "every level uses"),
    ("src/gguf/a.cpp", '#include "b.hpp"', "written from src/"),
    ("include/fathom/a.hpp", '#pragma once\n#include "base/error.hpp"', "public header includes only"),
    ("src/kernels/attn/a.cu", "#if __CUDA_ARCH__ >= 900", "__CUDA_ARCH__"),
    ("src/model/a.cpp", '#include "kernels/op_table.hpp"\n#include "cache/b.hpp"', ""),
    ("src/kernels/attn/attn_test.cpp", '#include "kernels/op_table.hpp"\n#include "tests/support/b.hpp"', ""),
    ("src/kernels/attn/attn_bench.cpp", '#include "measure/rounds.hpp"', ""),
    ("src/engine/a.cpp", '// printf("x"), getenv("y")\nauto s = "std::cout"; int n = snprintf(b, 1, "");', ""),
    ("src/base/a.cpp", "static_assert(1'000 == 1000); // #define X\n", ""),
    ("src/backends/cuda/a.cu", "#include <cuda_runtime.h>", ""),
    ("src/cli/main.cpp", '#include "server/a.hpp"\n#include "fathom/fathom.hpp"\nint f() { return std::puts(getenv("X")); }', ""),
]  # fmt: skip


# (path, text, part of the expected problem; empty: must be clean) beside a header src/engine/own.hpp
OWN_HEADER_SAMPLES = [
    ("src/engine/own.cpp", '#include <vector>\n#include "engine/own.hpp"', "own header first"),
    ("src/engine/own.cpp", "int f();", "own header first"),
    ("src/engine/own.cpp", '// first\n#include "engine/own.hpp"\n#include <vector>', ""),
    ("src/engine/other.hpp", "int g();", "#pragma once"),
]


def self_test() -> list[str]:
    failures = []
    own_header = {"src/engine/own.hpp": "#pragma once\n"}
    cases = [(sample, {}) for sample in SAMPLES] + [(sample, own_header) for sample in OWN_HEADER_SAMPLES]
    for (path, text, expected), beside in cases:
        with small_tree({**beside, path: text}) as root:
            problems = check_tree(root)
        if expected and not any(expected in problem for problem in problems):
            failures.append(f"{path} with `{text}` gives {problems}, expected '{expected}'")
        if not expected and problems:
            failures.append(f"{path} with `{text}` gives {problems}, expected none")
    return failures


if __name__ == "__main__":
    sys.exit(run("layers", __doc__, check_tree, self_test))
