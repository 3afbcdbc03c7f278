# A fresh machine needs make and Python 3.10 or newer; `make help` lists what there is to make.

# The first Python that starts and is new enough; name another with PYTHON=.
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.10 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done)
# Installed first and by itself, so that the tests know their PyTorch; name another with TORCH=.
TORCH ?= torch==2.13.0

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq
NPM := npm --prefix assets --no-audit --no-fund --loglevel=error
OUTPUT ?= demo-output

.DEFAULT_GOAL := help
.PHONY: help demo test lint lint-python lint-viewer format venv programs notebooks pictures bench calibrate bundle clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.installed ## train, record and break a small GPT; results in demo-output/
	@$(BIN)/autogradviz demo -o $(OUTPUT)

test: lint programs $(VENV)/.developing ## lint, then every test: unit, integration, browser
	$(BIN)/python -m pytest

lint: lint-python lint-viewer ## ruff, mypy; for the viewer tsc and prettier

lint-python: $(VENV)/.developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Without npm, or without a registry, the viewer's source goes unchecked; never so in CI.
lint-viewer:
	@if $(NPM) install --no-package-lock; then $(NPM) run check; \
	elif [ "$$CI" = true ]; then echo "prettier cannot be had, and CI=true" >&2; exit 1; \
	else printf '\n*** THE VIEWER WAS NOT CHECKED: install Node.js with npm ***\n\n' >&2; fi

format: $(VENV)/.developing ## put all source in its usual form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(NPM) install --no-package-lock
	$(NPM) exec -- prettier --write assets/viewer assets/build.mjs

venv: $(VENV)/.developing ## make .venv with everything that developing needs

programs: ## see to the programs that the tests use: a browser, dot, npm
	@.ci/programs

notebooks: $(VENV)/.developing ## run the notebooks again and keep their outputs
	$(BIN)/python notebooks/refresh.py

pictures: $(VENV)/.developing ## draw the pictures of the documents again
	$(BIN)/python assets/pictures.py

bench: $(VENV)/.developing ## measure what recording costs, ours and others', and write it to assets/ and README.md
	-$(PIP) --editable ".[bench]"
	$(BIN)/python tests/bench/overhead.py
	$(BIN)/python tests/bench/viewer.py
	$(BIN)/python tests/bench/large_logs.py

calibrate: $(VENV)/.developing ## count what each confidence is worth, into assets/calibration.md
	$(BIN)/python tests/calibration/calibrate.py

bundle: ## build the viewer into the two files that users get
	$(NPM) install --no-package-lock
	$(NPM) run build

clean: ## remove what was made, .venv as well
	rm -rf $(VENV) $(OUTPUT) test-output dist assets/node_modules
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.made:
	@[ -n "$(PYTHON)" ] || { echo "Python 3.10 or newer is needed; PYTHON= names one." >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)."
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make it; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml
	@echo "Installing $(TORCH), once; this takes minutes."
	@$(PIP) "$(TORCH)" numpy  # without which PyTorch warns
	@echo "Installing autogradviz."
	@$(PIP) --editable .
	@touch $@

$(VENV)/.developing: $(VENV)/.installed
	@echo "Installing what the tests need; this takes a minute or two."
	@$(PIP) --editable ".[dev]"
	@touch $@
