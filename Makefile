# The commands of users and CI. `make demo` and `make test` need only make and Python 3.11 or later (for the pinned numpy).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
COMPILED := $(VENV)/.compiled
OLDEST := .venv-oldest
NEWEST := .venv-newest
SPACE := $(subst ,, )
# The oldest release of transformers that setup.py admits, and some between it and the pinned one.
RELEASES := 5.12.1 5.17.0 5.20.2 5.23.0
LIBRARIES := transformers accelerate datasets tokenizers peft
NEWEST_TESTS := tests/unit tests/integration/test_*transformer*.py tests/integration/test_cached_search.py
NEWEST_TESTS += tests/integration/test_overridden_models.py tests/integration/test_pipelines_of_families.py
NEWEST_TESTS += tests/integration/decoding tests/integration/training/test_lora.py
NEWEST_TESTS += tests/integration/training/test_seq2seq_trainer.py tests/integration/test_releases.py
OF_EXTENSIONS := $(wildcard tests/extensions/*/unit tests/extensions/*/integration tests/extensions/*/slow)
# Three workers for two cores, since many tests wait for other processes. The tests of a file stay in one
# of them and share its fixtures. The short files of unit tests come last, so that all end at the same time.
IN_PARALLEL := --numprocesses 3 --dist loadfile --no-loadscope-reorder
PYTEST := $(BIN)/python -m pytest $(IN_PARALLEL)
TESTS := tests/integration $(filter %/integration,$(OF_EXTENSIONS)) tests/golden tests/unit $(filter %/unit,$(OF_EXTENSIONS))
# pip installs torch, from where its configuration says (a CPU build, for example). uv installs the rest in parallel.
# Neither compiles, which halves the time; Python compiles each module at its first import. Before the first tests, one
# process imports what three workers would each compile, while the other core checks the types.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt
INSTALL_NEWEST := $(BIN)/uv pip install --quiet --python $(NEWEST)/bin/python
unexport PYTHONDONTWRITEBYTECODE
# In parallel tests, waiting threads sleep instead of spinning, since other processes need the cores. A program that has
# the cores to itself takes up to twice as long so.
test test-unit test-slow test-benchmarks test-oldest test-newest test-releases test-processors: export OMP_WAIT_POLICY ?= passive
export TOKENIZERS_PARALLELISM ?= true

.PHONY: help demo test tests test-unit test-slow test-benchmarks test-oldest test-newest test-releases test-processors check style docs site benchmark gpu dist clean
help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-deps torch uv
	$(INSTALL) --editable ".[plots]"
	touch $@

$(READY_DEV): $(READY)
	$(INSTALL) --editable ".[dev]"
	touch $@

$(COMPILED): $(READY_DEV)
	$(BIN)/python -m pytest -qq --collect-only $(TESTS) > /dev/null || true # the tests report what fails
	touch $@

# uv, unlike pip, can resolve to the lowest releases that the requirements admit, and it installs faster.
$(OLDEST)/.ready: setup.py
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --upgrade uv setuptools
	$(OLDEST)/bin/uv pip install --python $(OLDEST)/bin/python --resolution lowest-direct --editable ".[test]"
	touch $@

demo: $(READY) ## Train on bundled English-German sentences, score, translate and plot (about five minutes)
	$(BIN)/vanilla-transformer demo --output_dir runs/demo --overwrite_output_dir

test: $(READY_DEV) ## Style and types beside unit, integration and golden tests (about 11 minutes on two cores)
	$(MAKE) --no-print-directory --jobs 2 tests check

tests: $(COMPILED)
	$(PYTEST) $(TESTS)

test-unit: $(READY_DEV) ## The unit tests alone: no subprocess, no socket (less than a minute on two cores)
	$(PYTEST) tests/unit $(filter %/unit,$(OF_EXTENSIONS))

test-slow: $(READY_DEV) ## The tests that take minutes, transformers' common model tests, all similar cases, new random examples
	$(BIN)/python -m pytest tests/slow $(filter %/slow,$(OF_EXTENSIONS)) tests/gpu
	$(PYTEST) -m "hypothesis or sweep" --hypothesis-profile random

test-benchmarks: $(READY_DEV) ## The tests of benchmarks and tools, which `make test` leaves out
	$(PYTEST) tests/benchmarks tests/tools

test-oldest: $(OLDEST)/.ready ## Unit and integration tests with the oldest releases that setup.py admits (downloads 3 GB)
	$(OLDEST)/bin/python -m pytest $(IN_PARALLEL) tests/unit tests/integration $(filter-out %/slow,$(OF_EXTENSIONS))

# The pinned environment with today's releases over it, also those that setup.py does not admit yet. Where no CPU build of
# torch can be had, it is the default one, which cannot be imported without its CUDA packages (a download of 2 GB).
test-newest: $(READY_DEV) ## Models, search, pipeline, trainers and tokenizer with today's releases of transformers and others
	rm -rf $(NEWEST)
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --no-deps torch
	$(INSTALL_NEWEST) --constraint constraints.txt --editable ".[test]"
	$(INSTALL_NEWEST) $(LIBRARIES:%=--upgrade-package %) $(LIBRARIES)
	$(INSTALL_NEWEST) --upgrade --torch-backend cpu torch || $(INSTALL_NEWEST) --upgrade torch
	$(BIN)/uv pip list --python $(NEWEST)/bin/python | grep -E "^($(subst $(SPACE),|,$(LIBRARIES))|torch) "
	$(NEWEST)/bin/python -m pytest $(IN_PARALLEL) $(NEWEST_TESTS)
	$(NEWEST)/bin/python -m pytest tests/slow/test_common_model_tests.py

# The pinned environment with another release of transformers, and what that requires, over it.
test-releases: $(RELEASES:%=test-release-%) ## What test-newest runs, with older releases of transformers (half an hour)
	$(BIN)/python -m pytest tests/slow/test_checkpoints_of_releases.py

test-release-%: $(READY_DEV)
	rm -rf .venv-$*
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --no-deps torch
	$(BIN)/uv pip install --quiet --python .venv-$*/bin/python --constraint constraints.txt --editable ".[test]"
	$(BIN)/uv pip install --quiet --python .venv-$*/bin/python transformers==$*
	.venv-$*/bin/python -m pytest $(IN_PARALLEL) $(NEWEST_TESTS)

test-processors: $(READY_DEV) ## The numeric tests as other processors and numbers of threads compute them (about an hour)
	$(BIN)/python tools/vary_processors.py

check: $(READY_DEV) ## Check style, types, prose and spelling without changing a file
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_prose.py
	$(BIN)/codespell

style: $(READY_DEV) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY_DEV) ## Build the site into site/: a missing page, link or name is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

site: $(READY_DEV) ## The same, and the model `models/en-de` translates on its home page (needs Node's npm)
	rm -rf build/en-de-js site
	$(BIN)/vanilla-transformer convert models/en-de build/en-de-js --target_format transformers.js
	TRANSLATOR=1 $(MAKE) docs
	examples/browser/build.sh build/en-de-js site/translator

benchmark: $(READY_DEV) ## Speed and memory beside other toolkits (`make benchmark SHORT=1`: fewer rounds, sizes and seconds)
	set -e; for each in decoding training service; do \
	    $(BIN)/python -m benchmarks.bench_$$each $(if $(SHORT),--short); \
	done

# An interpreter that is given is used as it is; otherwise the environment of the other targets.
ifeq ($(origin PYTHON),file)
GPU_PYTHON := $(BIN)/python
gpu: $(READY_DEV)
else
GPU_PYTHON := $(PYTHON)
endif
gpu: ## Test and measure on one GPU in 30 minutes (`make gpu PYTHON=python3`: no environment; PARTS=corpus)
	$(GPU_PYTHON) -m benchmarks.bench_gpu $(PARTS)

dist: $(READY) ## Build the wheel and the source distribution, and check both
	$(INSTALL) build twine check-wheel-contents
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

clean: ## Remove environments, caches and builds, but keep runs
	rm -rf $(VENV) $(OLDEST) $(NEWEST) $(RELEASES:%=.venv-%) build dist site *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
