# make demo, make test, make docs: each sets .venv up on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint docs screenshots bench clean

demo: $(VENV)/.ready
	$(BIN)/baton replay demo --ui --out runs/demo

test: $(VENV)/.ready lint
	$(BIN)/python -m pytest

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.ready
	$(BIN)/python -m cli.reference docs/reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

screenshots: $(VENV)/.ready
	$(BIN)/python -m tests.pages.screenshots docs/images

bench: $(VENV)/.ready
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/plan.py

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Baton needs Python 3.11 or newer; run make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[dev,docs]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
