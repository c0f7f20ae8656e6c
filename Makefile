# All set-up happens in .venv; nothing else on the machine is touched.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: demo test check lint packages fuzz clean help

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile \
	--constraint constraints.txt
WORKLOAD ?= unet
REPORT ?= build/demo
SAMPLE ?= sample_traces/h200_unet_w1.json.gz
ARGS ?=
# As many as cores. More fill the waits for programs, and disturb the tests that measure.
WORKERS ?= auto
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Without its bytecode each of the many processes that tests start compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

demo: $(VENV)/.reader ## show the report of an H200, then record a little training here (WORKLOAD=unet)
	@mkdir -p $(dir $(REPORT))
	$(BIN)/traceprobe $(SAMPLE) --force --output $(REPORT)-h200.html
	@echo "Report of an H200: $(abspath $(REPORT))-h200.html"
	@echo "Now a training of some seconds here:"
	@$(MAKE) --silent --no-print-directory $(VENV)/.runtime
	$(BIN)/traceprobe profile --workload $(WORKLOAD) --force --output $(REPORT)
	@echo "Report: $(abspath $(REPORT))/report.html"

test: $(VENV)/.dev ## run the fast tests (ARGS="-k name" selects, ARGS="-m slow" runs the others)
	$(PYTEST) -m "not slow" $(ARGS)

# Lint, packages and fuzzing use one core each.
check: $(VENV)/.dev ## do everything a change must pass: lint, packages, all tests, fuzz
	$(MAKE) --jobs=2 --output-sync=target lint packages fuzz ARGS="--seconds 30"
	$(PYTEST) --durations=40 --durations-min=5

lint: $(VENV)/.dev ## check style, types, the direction of imports and that none go in a circle
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict traceprobe
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_cycles.py

fuzz: $(VENV)/.dev ## analyse damaged traces (ARGS="--inputs 100000 --seconds 600")
	$(BIN)/python -m tests.fuzzing $(ARGS)

packages: $(VENV)/.dev ## build the wheel; try it and the editable install
	VENV=$(VENV) scripts/check_packages.sh

clean: ## remove .venv and everything that was built
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1  \t\2/p' $(MAKEFILE_LIST)

$(VENV)/.python: scripts/make_venv.sh
	@echo "Setting up $(VENV): once, about a minute"
	PYTHON="$(PYTHON)" scripts/make_venv.sh $(VENV)
	$(PIP) pip
	@touch $@

# Reads traces; PyTorch, which only recording needs, takes far longer to install.
$(VENV)/.reader: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) --build-constraint constraints.txt --editable .
	@touch $@

$(VENV)/.runtime: $(VENV)/.reader
	@echo "Installing PyTorch: once"
	$(PIP) --build-constraint constraints.txt --editable '.[torch]'
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(PIP) --group dev
# pip would compile the 18,000 modules on one core; half of them nobody imports. Templates that end
# in .py are no Python.
	@$(BIN)/python -W ignore -m compileall -qq -j 0 -x '/tests/|/transformers/models/' $(VENV)/lib || true
	@touch $@
