# SPDX-License-Identifier: Apache-2.0
# The names that scripts and people rely on. Each installs what is missing (scripts/setup.sh) and says what.
.PHONY: build run test bench check-all format cli-doc cuda clean
FLAVOURS ?= cpu

build:  ## the program, at build/cpu/fathom
	@scripts/setup.sh build
	@cmake --preset cpu >/dev/null
	@cmake --build --preset cpu --target fathom_cli

run:  ## obtain a small model, generate text, show where the time goes
	@$(MAKE) --no-print-directory build
	@scripts/run.sh

test:  ## FLAVOURS='cpu asan tsan cuda' for all that CI runs
	@scripts/test.sh $(FLAVOURS)

bench:  ## all performance targets; takes minutes, wants an idle machine
	@scripts/setup.sh build python
	@$(MAKE) --no-print-directory build
	@cmake --build --preset cpu --target matmul_bench
	@bench/run.sh

check-all:  ## the long checks; results go to bench/results/checks
	@scripts/check_all.sh

cuda:  ## the program and its CUDA backend library, in build/cuda
	@scripts/setup.sh build
	@cmake --preset cuda >/dev/null
	@cmake --build --preset cuda --target fathom_cli fathom_backend_cuda

format:
	@git ls-files '*.cpp' '*.hpp' '*.cu' '*.cuh' | xargs clang-format -i

cli-doc: build  ## docs/cli.md from --help
	@tools/make_cli_doc.py build/cpu/fathom docs/cli.md

clean:
	@rm -rf build
