# Each target sets up its own virtual environment the first time and is quick the second.
# Needs Python 3.11 or 3.12 and make; nothing else.

PYTHON ?= $(shell command -v python3.12 >/dev/null 2>&1 && python3.12 --version >/dev/null 2>&1 && echo python3.12 || \
	{ command -v python3.11 >/dev/null 2>&1 && python3.11 --version >/dev/null 2>&1 && echo python3.11 || echo python3; })
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Small networks run faster with one thread per kernel; compiled programs are kept.
export XLA_FLAGS ?= --xla_cpu_multi_thread_eigen=false
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.3

.PHONY: help demo test test-all lint types contracts docs bench clean
.DEFAULT_GOAL := help

help: ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.base:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null || \
		{ echo "gcr-rl needs Python 3.11 or 3.12; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -1). Set PYTHON=/path/to/python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "gcr-rl needs Python's venv module; install it (Debian: python3-venv) or set PYTHON=" >&2; exit 2; }
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.base pyproject.toml constraints.txt
	@echo "installing the library ..."
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "installing what the tests need ..."
	@$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@echo "installing the peers of benchmarks and tests ..."
	@$(PIP) --editable '.[bench,ray,tensorboard]'
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	@echo "installing what the documentation needs ..."
	@$(PIP) --editable '.[docs]'
	@touch $@

demo: $(VENV)/.core ## Train two methods on RotMirrorGrid and compare them
	@$(BIN)/python -m gcr_rl.demo

# Most of the time of these tests is compilation: without expensive passes they take less, and
# what one process has compiled another need not. One thread each: there are as many processes as cores.
test test-all: export XLA_FLAGS := $(XLA_FLAGS) --xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true
test test-all: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
test: $(VENV)/.dev ## Run the tests (minutes)
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

test-all: $(VENV)/.dev ## Also the slow and the foreign tests; what is missing is skipped and named
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m 'slow or foreign'

lint: $(VENV)/.dev ## Style
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev ## Types
	@$(BIN)/mypy

contracts: $(VENV)/.dev ## The rooms import one way
	@$(BIN)/lint-imports

docs: $(VENV)/.docs ## Build the documentation into site/
	@$(BIN)/mkdocs build --strict --quiet && echo "documentation: site/index.html"

bench: $(VENV)/.bench ## Run the speed benchmarks with their peers, results in benchmarks/results/
	@for file in $(filter-out benchmarks/suite_%.py benchmarks/minatar_%.py,$(wildcard benchmarks/*.py)); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .cache site .pytest_cache .mypy_cache .ruff_cache
