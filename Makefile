# `make train` and `make test` work from nothing: they need Python 3.11 or newer, and set up the rest in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: train test coverage check interop bench docs format clean

train: $(READY)
	$(BIN)/ppo-dice train Hopper-v5 --seeds 4 --total-timesteps 250_000

test: $(READY)
	$(BIN)/pytest -n auto --maxprocesses 8 --dist worksteal

coverage: $(READY)
	$(BIN)/pytest -n auto --maxprocesses 8 --dist worksteal --cov --cov-report=term

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

interop: $(READY)
	$(BIN)/python benchmarks/peers.py
	benchmarks/.venv/bin/python -m pytest interop

bench: $(READY)
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/pixels.py

docs: $(READY)
	$(BIN)/sphinx-build -W docs docs/_build/html

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .cache docs/_build benchmarks/.venv

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'error: Python 3.11 or newer is needed; name it, e.g. make PYTHON=python3.12 train'; exit 1; }
	@$(PYTHON) -c 'import ensurepip' || \
	  { echo 'error: this Python cannot make environments; on Debian: apt-get install python3-venv'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)
