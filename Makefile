# Every target sets up what it needs: a virtual environment in .venv, from the lock file. Nothing global is installed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# A job has a dozen processes that import the same modules. Without cached bytecode each process would compile them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo quick test docs pictures soak chaos rewind terminate cluster kubernetes fuzz lint format bench bench-compare lock audit licences wheel clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

NEW_ENOUGH = $(shell $(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" 2> /dev/null && echo yes)

# If an attempt fails, $(READY) is missing, and the next attempt starts from scratch.
#
# uv, which is in the lock file, installs the rest in half of the processor time. It does not read pip's settings, so if
# uv fails because these name another package index, pip installs the packages.
$(READY): requirements.lock pyproject.toml $(wildcard operators/*/*.c) service/kafka/columns.c
	$(if $(NEW_ENOUGH),,$(error $(PYTHON) is not Python 3.11 or newer: install one, and name it, as in PYTHON=python3.12 make setup))
	@if test -e $@; then rm $@; else rm -rf $(VENV); fi
	@echo "installing requirements.lock into $(VENV); this takes a minute, once"
	$(PYTHON) -m venv $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > $(VENV)/uv.lock
	$(PIP) --require-hashes -r $(VENV)/uv.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock \
		|| $(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(READY) ## create the virtual environment

demo: $(READY) ## run an example job on an embedded Kafka broker; on a terminal, until Ctrl-C
	$(BIN)/rowkind demo

# tests/conftest.py groups tests by worker, and runs the longest tests first.
PYTEST := $(BIN)/pytest --dist loadgroup --no-loadscope-reorder --durations 20 --durations-min 1

quick: $(READY) ## run the tests that need only Python, with few random cases
	ROWKIND_TEST_SEEDS=0.05 $(PYTEST) -n logical tests/unit tests/laws tests/oracle tests/plan tests/flink tests/matrix

# With this archive, Spark starts in half the time.
$(VENV)/.warm: $(READY)
	$(BIN)/python -m rowkind.service.processes.class_archive
	@touch $@

# Random tests use the same cases each time, so a third of the cases is enough here. `make soak` runs many. Tests that
# start jobs wait at times, so tests/conftest.py starts more workers than there are cores.
test: lint $(VENV)/.warm ## run static checks and all tests
	ROWKIND_TEST_SEEDS=$${ROWKIND_TEST_SEEDS:-0.3} $(PYTEST) -n auto

TIMES ?= 10
soak: $(READY) ## run the random tests, with TIMES=10 times as many cases
	ROWKIND_TEST_SEEDS=$(TIMES) $(PYTEST) -n logical tests/unit tests/laws tests/oracle tests/plan tests/flink tests/examples

lint: $(READY) ## run ruff and mypy, as in CI
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Without this setting, the theme prints an advertisement for its successor. With --quiet, mkdocs does not count warnings,
# so that a broken link would not fail the build.
docs: $(READY) ## build the documentation site in .rowkind/site; broken links fail
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "open .rowkind/site/index.html"

pictures: $(READY) ## take the pictures in the docs again; needs Chromium
	$(BIN)/python -m tests.page.screenshots

format: $(READY) ## format the code, and apply automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

FAULTS ?= 30
chaos: $(VENV)/.warm ## inject FAULTS=30 faults into running jobs; ARGS="--seed 7 --only kill_java", ARGS="--help" lists more
	$(BIN)/python -m tests.chaos --faults $(FAULTS) $(ARGS)

STARTS ?= 300
rewind: $(VENV)/.warm ## start a job STARTS=300 times from savepoints and older checkpoints; ARGS="--seed 7"
	$(BIN)/python -m tests.chaos.rewind --starts $(STARTS) $(ARGS)

SIGNALS ?= 100
terminate: $(VENV)/.warm ## send a job SIGTERM or SIGINT at random times, SIGNALS=100 times; ARGS="--seed 7"
	$(BIN)/python -m tests.chaos.terminate --times $(SIGNALS) $(ARGS)

LOSSES ?= 24
cluster: $(VENV)/.warm ## inject LOSSES=24 losses into a job on a Spark cluster; ARGS="--seed 7 --only lose_machine"
	$(BIN)/python -m tests.cluster --losses $(LOSSES) $(ARGS)

kubernetes: $(READY) ## build the API server for the Kubernetes tests, once; needs Go, and takes minutes
	GOFLAGS="-p=1 $(GOFLAGS)" $(BIN)/python -m tests.cluster.control_plane

SEEDS ?= 500
fuzz: $(READY) ## compare random jobs with DuckDB, and with other batch boundaries; SEEDS=2000 or SEEDS=5000-7000, ARGS="--help"
	$(BIN)/python -m tests.fuzz $(SEEDS) $(ARGS)
	$(BIN)/python -m tests.fuzz $(SEEDS) $(ARGS) --of cuts

bench: $(READY) ## run the benchmarks: operators, state, and queries from Kafka to Kafka
	$(BIN)/python -m tests.bench

bench-compare: $(READY) ## compare Rowkind with Flink SQL on the same topics; ARGS="--help" lists sections and sizes
	$(BIN)/python -m tests.bench.compare $(ARGS)

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-header --no-annotate

lock: $(READY) ## update the lock files, for development and for the image
	$(LOCK) --extra dev --extra traces --output-file requirements.lock pyproject.toml
	$(LOCK) --extra traces --constraint requirements.lock --output-file deploy/requirements.lock pyproject.toml

# Tools that only read the lock file are not in it.
audit: $(READY) ## check the image's packages for known vulnerabilities; writes the bill of materials .rowkind/sbom.json
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0 pip-audit==2.10.1
	mkdir -p .rowkind
	$(VENV)/audit/bin/cyclonedx-py requirements --output-file .rowkind/sbom.json deploy/requirements.lock
	$(VENV)/audit/bin/pip-audit --strict --disable-pip --require-hashes --requirement deploy/requirements.lock

licences: $(READY) ## write the licences of the image's packages to docs/reference/licences.md
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-licenses==5.5.5
	$(VENV)/audit/bin/pip-licenses --python $(BIN)/python --from mixed --format markdown \
		--packages $$(sed -n 's/^\([a-z0-9-]*\)==.*/\1/p' deploy/requirements.lock) > .licences
	{ printf '# Licences\n\nThe licences of the Python packages in the image, as each package declares them. `make licences` writes this\n'; \
		printf 'page. The folder `licenses` of Spark has the licences of the Java libraries.\n\n'; cat .licences; } > docs/reference/licences.md
	rm .licences

wheel: $(READY) ## build what a release publishes in dist: wheel and source archive; builds are reproducible
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/uv build --quiet --no-build-isolation --out-dir dist

clean: ## remove all generated files
	rm -rf $(VENV) .rowkind build dist *.egg-info operators/*.so service/kafka/*.so .mypy_cache .ruff_cache .pytest_cache spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
