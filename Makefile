# `make demo` and `make test` each work as the first command in a fresh clone; both reuse .venv afterwards.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.PHONY: demo docs test torture endings lint bench clean

.venv/base: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing ecbm into .venv (pinned in constraints.txt)"
	@$(PIP) --editable .
	@touch $@

.venv/test: .venv/base
	@$(PIP) --editable '.[test]'
	@touch $@

.venv/lint: .venv/base
	@$(PIP) --editable '.[test,lint]'
	@touch $@

.venv/bench: .venv/base
	@$(PIP) --editable '.[test,bench]'
	@touch $@

.venv/docs: .venv/base
	@$(PIP) --editable '.[docs]'
	@touch $@

# The site of guides, method, API and results, into site/. Warnings are errors (not with --quiet), links are checked.
docs: .venv/docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --config-file website/mkdocs.yml
	@echo "the site is in site/index.html; with search: python -m http.server --directory site"

demo: .venv/base
	@$(BIN)/ecbm demo

# Two workers of one thread each: two of two threads would wait for each other on two cores.
test: .venv/test
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

# Attacks the workspace in full (about half an hour); TORTURE=--quick takes a tenth, the test suite less still.
torture: .venv/test
	@OMP_NUM_THREADS=1 PYTHONPATH=tests:tests/keep $(BIN)/python tests/keep/torture.py $(TORTURE)

# Ends processes on a loaded machine, 200 times in each way (about an hour on two cores); the test suite does a few.
endings: .venv/test
	@PYTHONPATH=tests $(BIN)/python tests/endings.py $(ENDINGS)

lint: .venv/lint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@if command -v npx >/dev/null; then npx --yes -p typescript@5.9.3 tsc -p jsconfig.json; \
	else echo "no npx: the types of the workbench's page were not checked (nobody needs it to use the page)"; fi

bench: .venv/bench
	@$(BIN)/python benchmarks/reading.py
	@$(BIN)/python benchmarks/training.py
	@$(BIN)/python benchmarks/curvature.py
	@$(BIN)/python benchmarks/frozen.py
	@$(BIN)/python benchmarks/fidelity.py

clean:
	rm -rf .venv build dist site
