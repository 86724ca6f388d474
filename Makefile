# Everything that a user or CI does. `make demo` and `make test` need nothing but Python 3.11+ (the pinned numpy does) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
# Bytecode of the few modules that are used is compiled as they are imported: that halves the time to install.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
unexport PYTHONDONTWRITEBYTECODE
# Two busy threads that wait for each other must not spin on a machine that others use as well.
export OMP_WAIT_POLICY ?= passive
export TOKENIZERS_PARALLELISM ?= true

.PHONY: help demo test test-slow check style benchmark resume-table dist clean
help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch --editable ".[plots]"
	touch $@

$(READY_DEV): $(READY)
	$(INSTALL) --editable ".[dev]"
	touch $@

demo: $(READY) ## Train on the embedded English-German corpus, score, translate and draw (less than five minutes)
	$(BIN)/python scripts/demo.py --output_dir runs/demo --overwrite_output_dir

test: $(READY_DEV) ## Style, types and the fast tests
	$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest -m "not slow"
	$(BIN)/python tools/check_bytecode.py

test-slow: $(READY_DEV) ## The tests that take minutes, the library's own common tests among them
	$(BIN)/python -m pytest -m slow

check: $(READY_DEV) ## Style and types, changing nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

style: $(READY_DEV) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(READY_DEV) ## Every comparison with other toolkits (`make benchmark SHORT=1`: fewer rounds, sizes and seconds)
	env -u OMP_WAIT_POLICY $(BIN)/python -m benchmarks.bench_all $(if $(SHORT),--short)

resume-table: $(READY) ## Kill runs at exact places and compare what goes on with what was never stopped
	$(BIN)/python -m benchmarks.bench_resume

dist: $(READY) ## Build the wheel and the source distribution
	$(INSTALL) build
	$(BIN)/python -m build

clean: ## Remove the environment, caches and builds; runs stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
