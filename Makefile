# Each target sets up what it needs; a second call re-uses the set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Small matrices: a second thread costs more than it brings, and far more on a busy machine.
export OMP_NUM_THREADS ?= 1
export ATLASD_DATA ?= $(wildcard ../shared/data)

.PHONY: demo test lint slow coverage bench docs audit clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,docs]"
	touch $@

demo: $(VENV)/.installed
	$(BIN)/atlasd demo

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -m "not slow" -n 2 -q

coverage: $(VENV)/.installed
	$(BIN)/python -m pytest -m "not slow" -n 2 -q --cov --cov-report=term:skip-covered --cov-report=html

slow: $(VENV)/.docs
	$(BIN)/python -m pytest -m slow -q

bench: $(VENV)/.installed
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python docs/check.py

audit: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/pip-audit --skip-editable

clean:
	rm -rf $(VENV) runs build dist site
