# A fresh machine needs make and Python 3.10 or newer; `make help` lists the targets.

# The first Python that starts and is new enough; choose another with PYTHON=.
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.10 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done)
# Installed first and by itself, so that the version is known; choose another with TORCH=.
TORCH ?= torch==2.13.0

# Another folder, such as VENV=.venv-2.15, keeps an environment with other versions.
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what it imports; compiling all of PyTorch takes half a minute.
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq --no-compile
NPM := npm --prefix assets --no-audit --no-fund --loglevel=error
OUTPUT ?= demo-output
# The port of `make docs-serve`.
PORT ?= 8000

# Test processes: one per processor, at most 8, because each holds PyTorch. WORKERS=0 runs the
# tests in the process of pytest itself.
WORKERS ?= logical
PYTEST := $(BIN)/python -m pytest --numprocesses=$(WORKERS) --maxprocesses=8 --dist=worksteal

# What needs the native engine builds it first; no recording starts a build in the background.
export AUTOGRADVIZ_NATIVE_BUILD := 0

# Tests start many interpreters; without compiled files each of them compiles this package.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo check test test-all test-hermetic test-native test-native-findings test-integrations lint lint-python lint-viewer test-viewer viewer-tools format
.PHONY: FORCE venv programs compiled-programs notebooks docs docs-serve docs-examples pictures bench zoo gallery planted-bugs history calibrate bundle clean
.PHONY: accelerator test-device sanitize docs-versions engines wheels release-check test-version test-cuda

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.installed native ## train, record and break a small GPT; results in demo-output/
	@$(BIN)/autogradviz demo -o $(OUTPUT)

check: lint test-viewer ## lint, types and unit tests: two minutes
	$(PYTEST) -m "not slow and not ci" tests/unit

test: programs native accelerator lint test-viewer ## the same, integration tests and a browser: six minutes
	$(PYTEST) -m "not slow and not ci"

test-all: programs native accelerator lint test-viewer ## every test, those marked slow as well: half an hour
	$(PYTEST)

# What differs between machines and runs: instructions of the processor, hash seed, order of the
# tests, time zone, locale, width of the terminal, caches. SEED=2 and WORKERS=1 make other runs.
SEED ?= 1
# The number of bugs that `make planted-bugs` plants.
COUNT ?= 60
test-hermetic: programs native accelerator lint test-viewer ## every test in another environment and order: as in CI
	$(BIN)/python tests/fill_compile_caches.py
	ATEN_CPU_CAPABILITY=default PYTHONHASHSEED=$(SEED) TZ=Pacific/Kiritimati LC_ALL=C COLUMNS=61 \
		$(PYTEST) --random-order --random-order-seed=$(SEED) -m "$(TESTS)"

# The tests that `make test-hermetic` selects.
TESTS ?= slow or not slow

test-native: programs native $(VENV)/.developing ## integration tests with the native engine: five minutes
	AUTOGRADVIZ_TEST_ENGINE=native $(PYTEST) -m "not slow and not browser" tests/integration

test-native-findings: native $(VENV)/.developing ## findings of all bugs with the native engine: one minute
	AUTOGRADVIZ_TEST_ENGINE=native $(PYTEST) tests/integration/test_bug_cases.py \
		tests/integration/test_bug_variants.py tests/integration/test_gradient_findings.py \
		tests/integration/test_compiled_findings.py tests/integration/test_optimizer_findings.py

# The device on which `make test-device` creates tensors: the stand-in of the tests, or cuda.
DEVICE ?= sim
ON_DEVICE := $(addprefix tests/integration/test_,results_unchanged.py bug_cases.py bug_variants.py \
	optimizer_findings.py faults_at_hook_points.py)
test-device: native accelerator $(VENV)/.developing ## results, findings and faults with tensors on a device: four minutes
	AUTOGRADVIZ_TEST_DEVICE=$(DEVICE) $(PYTEST) -m "not slow" $(ON_DEVICE)
	AUTOGRADVIZ_TEST_DEVICE=$(DEVICE) AUTOGRADVIZ_TEST_ENGINE=native $(PYTEST) -m "not slow and not ci" \
		$(ON_DEVICE)

test-integrations: $(VENV)/.made ## Lightning, transformers, accelerate, W&B, MLflow, TensorBoard, Dask, Ray: six minutes
	@[ -x .venv-integrations/bin/python ] || $(BIN)/python -m venv .venv-integrations
	.venv-integrations/bin/python -m pip --disable-pip-version-check install -qq "$(TORCH)" numpy
	.venv-integrations/bin/python -m pip --disable-pip-version-check install -qq --editable ".[integrations]"
	AUTOGRADVIZ_TEST_INTEGRATIONS=1 .venv-integrations/bin/python -m pytest tests/other_packages

# PART="tests/unit" runs a part; the other versions are chosen as for every target, with VENV=.
PART ?= tests/unit tests/integration
test-version: native $(VENV)/.developing ## run tests with this Python and PyTorch, and note the counts for docs/versions.md
	$(BIN)/python tests/versions/run_tests.py $(PART)

docs-versions: ## write the table of docs/versions.md
	$(PYTHON) docs/generate_versions.py

test-cuda: native $(VENV)/.developing ## what a person with a GPU runs: ten minutes; says what it skipped
	$(BIN)/python tests/cuda/run.py

lint: $(VENV)/.developing ## ruff, mypy; for the viewer tsc and prettier
	@$(MAKE) --no-print-directory -j2 lint-python lint-viewer

lint-python: $(VENV)/.developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lint-viewer: viewer-tools
	@if [ -d assets/node_modules ]; then $(NPM) run check; fi

test-viewer: viewer-tools $(VENV)/.developing ## the unit tests of the viewer
	@if [ -d assets/node_modules ]; then $(NPM) run --if-present test; fi

# Without npm, or without a registry, the viewer's source is not checked; in CI this is an error.
viewer-tools:
	@[ assets/node_modules/.package-lock.json -nt assets/package.json ] \
	|| $(NPM) install --no-package-lock \
	|| if [ "$$CI" = true ]; then echo "npm cannot install the viewer's tools, and CI=true" >&2; exit 1; \
	else printf '\n*** THE VIEWER WAS NOT CHECKED: install Node.js with npm ***\n\n' >&2; fi

format: $(VENV)/.developing viewer-tools ## format all source
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(NPM) exec -- prettier --write assets/viewer assets/build.mjs

native: $(VENV)/.installed ## build the native engine, if there is a C++ compiler
	@$(BIN)/autogradviz native build \
	|| echo "Recordings use the Python engine, which costs more. A C++ compiler (g++) and \`make native\` change that."

accelerator: $(VENV)/.installed ## build the device that tests use as an accelerator: half a minute, once
	@$(BIN)/python -m tests.accelerator.build

venv: $(VENV)/.developing ## make .venv with everything that development needs

programs: ## install the programs that the tests use: a browser, dot, npm
	@.ci/programs

notebooks: $(VENV)/.developing ## run the notebooks and store their outputs
	$(BIN)/python notebooks/refresh.py

docs: $(VENV)/.documenting ## build the documentation site into docs-output/html, offline
	$(BIN)/python docs/generate_findings.py
	$(BIN)/python -m sphinx --builder html --fresh-env --write-all --fail-on-warning \
		--keep-going --jobs auto --quiet docs docs-output/html
	$(BIN)/python docs/check_site.py docs-output/html
	@echo "The site is in docs-output/html; \`make docs-serve\` shows it."

docs-serve: docs ## build the documentation site and serve it on http://127.0.0.1:8000
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory docs-output/html $(PORT)

docs-examples: $(VENV)/.documenting ## run the examples of the guides and store their outputs
	$(BIN)/python docs/run_examples.py --update

pictures: $(VENV)/.developing $(VENV)/.documenting programs ## draw the pictures of the documentation, or with FINDING=name of one finding
	$(if $(FINDING),,$(BIN)/python assets/draw_readme_pictures.py)
	$(BIN)/python assets/draw_guide_and_finding_pictures.py $(FINDING)
	$(BIN)/python docs/generate_findings.py $(FINDING)

bench: native programs $(VENV)/.developing ## measure the cost of recording, ours and others', into assets/ and README.md
	-$(PIP) --editable ".[bench]"
	$(BIN)/python tests/bench/overhead.py
	$(BIN)/python tests/bench/viewer.py
	$(BIN)/python tests/bench/large_logs.py
	$(BIN)/python tests/bench/flight_recorder_memory.py
	$(BIN)/python tests/bench/predicted_time.py
	$(BIN)/python tests/bench/device_time.py

# MODELS="llama bert" selects models; their names are in tests/zoo/models.py.
MODELS ?=
zoo: .venv-zoo/.made ## record models of transformers, diffusers, timm and others, into assets/: half an hour
	.venv-zoo/bin/python -m tests.zoo $(MODELS)
	for part in plan fit memory device; do \
		.venv-zoo/bin/python -m tests.zoo --parts $$part --jobs 1 --limit 900 $(MODELS) || exit 1; done

gallery: .venv-zoo/.made ## write a report of these models, and of public programs if MIRROR=, into gallery-output/
	.venv-zoo/bin/python -m tests.zoo.gallery --mirror "$(MIRROR)" $(MODELS)

.venv-zoo/.made: pyproject.toml | $(VENV)/.made
	@[ -x .venv-zoo/bin/python ] || $(BIN)/python -m venv .venv-zoo
	.venv-zoo/bin/python -m pip --disable-pip-version-check install -qq "$(TORCH)" numpy
	.venv-zoo/bin/python -m pip --disable-pip-version-check install -qq --editable ".[zoo]"
	.venv-zoo/bin/python -m autogradviz native build
	@touch $@

# The memory that PyTorch and Python never free is no concern of the engine.
sanitize: $(VENV)/.developing ## record programs with an engine that is built with sanitizers: five minutes
	$(BIN)/python -m tests.sanitize.run_programs build $(CURDIR)/build-output/sanitized
	AUTOGRADVIZ_CACHE=$(CURDIR)/build-output/sanitized ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0 \
		LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so)" \
		$(BIN)/python -m tests.sanitize.run_programs run 1
	$(BIN)/python -m tests.sanitize.run_programs build-for-threads $(CURDIR)/build-output/thread-sanitized
	AUTOGRADVIZ_CACHE=$(CURDIR)/build-output/thread-sanitized TSAN_OPTIONS=ignore_noninstrumented_modules=1:report_signal_unsafe=0 \
		LD_PRELOAD="$$(g++ -print-file-name=libtsan.so) $$(g++ -print-file-name=libstdc++.so)" \
		$(BIN)/python -m tests.sanitize.run_programs run-threads 1

planted-bugs: native $(VENV)/.developing ## plant bugs in correct programs and ask for the line; SEED=2 COUNT=60
	$(BIN)/python -m tests.planted_bugs --seed $(SEED) --count $(COUNT)

# MIRROR=folder contains copies of public repositories; CASES="name name" selects some.
MIRROR ?= $(AUTOGRADVIZ_HISTORY_MIRROR)
history: native $(VENV)/.developing ## ask for the line of bugs in the histories of public repositories; MIRROR=
	$(PIP) "einops>=0.8"
	$(BIN)/python -m tests.history --mirror "$(MIRROR)" $(CASES)

calibrate: $(VENV)/.developing ## measure how often each confidence level is right, into assets/calibration.md
	$(BIN)/python tests/calibration/calibrate.py

compiled-programs: native $(VENV)/.developing ## compare all compiled programs on all backends, into assets/
	$(BIN)/python tests/integration/compare_compiled_programs.py

bundle: viewer-tools $(VENV)/.developing ## build the viewer into the files that users get
	$(NPM) run build
	$(PIP) "zopfli>=0.2.3"
	$(BIN)/python assets/compress_viewer.py

# PYTHONS="python3.10 python3.12" names the interpreters whose headers are used.
PYTHONS ?= python3.10 python3.11 python3.12 python3.13 python3.14
engines: $(VENV)/.releasing ## build the native engines that wheels carry, from headers: a minute of CPU time each
	$(BIN)/python release/build_engines.py $(addprefix --python ,$(PYTHONS))

wheels: engines ## build the wheels and the source distribution, and check them, into dist/
	$(BIN)/python release/build_wheels.py

# CHECK_TESTS=check runs fewer tests, CHECK_TESTS= none; WHEELS=dist checks what was built before.
CHECK_TESTS ?= test
release-check: $(VENV)/.releasing ## do all that a release needs but publishing it: half an hour
	$(BIN)/python release/check_release.py --tests "$(CHECK_TESTS)" --torch "$(TORCH)" $(addprefix --wheels ,$(WHEELS))

clean: ## remove everything that was built, .venv included
	rm -rf $(VENV) .venv-integrations .venv-zoo $(OUTPUT) gallery-output test-output docs-output docs/tutorials dist build-output assets/node_modules
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.made:
	@[ -n "$(PYTHON)" ] || { echo "Python 3.10 or newer is needed; PYTHON= names one." >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)."
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make it; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

# Rewritten only if another PyTorch is chosen, which then replaces the installed one.
$(VENV)/.torch: FORCE | $(VENV)/.made
	@echo "$(TORCH)" | cmp --silent - $@ || echo "$(TORCH)" > $@

FORCE:

$(VENV)/.installed: $(VENV)/.made $(VENV)/.torch pyproject.toml
	@echo "Installing $(TORCH), once; this takes minutes."
	@$(PIP) "$(TORCH)" numpy  # without which PyTorch warns
	@echo "Installing autogradviz."
	@$(PIP) --editable .
	@touch $@

$(VENV)/.developing: $(VENV)/.installed
	@echo "Installing the tools for development and tests; this takes a minute or two."
	@$(PIP) --editable ".[dev]"
	@touch $@

$(VENV)/.documenting: $(VENV)/.installed
	@echo "Installing the tools for the documentation; this takes a minute."
	@$(PIP) --editable ".[docs]"
	@touch $@

$(VENV)/.releasing: $(VENV)/.made release/requirements.txt
	@echo "Installing the tools for releases; this takes a minute."
	@$(PIP) --requirement release/requirements.txt
	@touch $@
