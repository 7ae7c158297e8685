# Every target sets up what it needs in .venv, once; nothing is installed twice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SPEC ?= configs/lstm.yaml

.DEFAULT_GOAL := help
.PHONY: help install probe test test-lowest browser lint format test-gpu bench bench-cost bench-oom record pictures clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

install: $(STAMP) ## set up everything in .venv

probe: $(STAMP) ## probe a spec to a tuned config (SPEC=configs/lstm.yaml)
	$(BIN)/oomtune probe $(SPEC)

test: $(STAMP) browser ## run all tests
	$(BIN)/python -m pytest

test-lowest: ## run the unit and contract tests and a probe with the lowest versions of all direct dependencies
	$(PYTHON) -m venv .venv-lowest
	mkdir -p build
	$(PYTHON) -m tests.support.lowest_versions > build/lowest-versions.txt
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint build/lowest-versions.txt --editable '.[dev]'
	.venv-lowest/bin/python -m pytest tests/unit tests/contract
	.venv-lowest/bin/oomtune probe configs/lstm.yaml --fresh -o build/lowest.tuned.yaml

browser: ## find Chromium for the report's tests, or install Debian's
	@sh tests/browser/install.sh

lint: $(STAMP) ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## fix the code's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-gpu: $(STAMP) ## run the acceptance suite on a real GPU
	$(BIN)/python -m pytest -m gpu tests/gpu

bench: $(STAMP) ## compare with other searches and with doing it by hand; half an hour
	$(BIN)/python -m tests.benchmarks.beside_others

bench-cost: $(STAMP) ## measure what a trial costs on top of its model, and the command line on top of Python
	$(BIN)/python -m tests.benchmarks.trial_cost

bench-oom: $(STAMP) ## measure what an out-of-memory trial costs, compared with one that fits
	$(BIN)/python -m tests.benchmarks.oom_cost

record: $(STAMP) ## record the memory curves of the models in tests/benchmarks/zoo.py that are not recorded yet
	$(BIN)/python -m tests.benchmarks.record

pictures: $(STAMP) ## draw the pictures of the README and the guide from real runs
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,pictures]'
	$(BIN)/python -m tests.benchmarks.picture configs/lstm.yaml .github/probe.svg
	$(BIN)/python -m tests.benchmarks.curve_picture .github/search.svg
	mkdir -p build && $(BIN)/oomtune probe configs/lstm.yaml --frontier --quiet -o build/lstm.tuned.yaml
	$(BIN)/python -m tests.browser.picture build/lstm.tuned.yaml .github/report.png

clean: ## remove what the targets made
	rm -rf $(VENV) .venv-lowest build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
