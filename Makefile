# Everything a person or CI runs. `make demo` and `make test` work on a host with python3 (>= 3.11, venv) and make alone.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: demo test lint bench backtest test-engines fuzz soak docs dashboards screenshots build clean

demo: $(VENV)/.run
	$(BIN)/vramscope demo

test: $(VENV)/.dev lint
	$(PYTEST) -q

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m docs.build --check
	$(BIN)/python -m dashboards.build --check

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.browser

backtest: $(VENV)/.dev
	$(BIN)/python -m benchmarks.pools test

test-engines: $(VENV)/.dev
	$(PYTEST) -q -m engines tests/engines

fuzz: $(VENV)/.dev
	$(PYTEST) -q -m fuzz

soak: $(VENV)/.dev
	$(PYTEST) -q -s -m soak tests/soak tests/dashboards

docs: $(VENV)/.dev
	$(BIN)/python -m docs.build

dashboards: $(VENV)/.dev
	$(BIN)/python -m dashboards.build

screenshots: $(VENV)/.dev
	$(BIN)/python -m docs.screenshots

build: $(VENV)/.dev
	$(BIN)/python -m build --wheel --outdir dist

clean:
	rm -rf $(VENV) .cache dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: $(PYTHON) is too old; expected Python 3.11 or newer: make PYTHON=python3.12"; exit 1; }
	@rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV) || { echo "make: no venv; on Debian install python3-venv"; rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip

$(VENV)/.run: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml dashboards/requirements.txt | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement dashboards/requirements.txt
	@touch $@ $(VENV)/.run
