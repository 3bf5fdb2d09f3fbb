# Every target sets up what it needs: a virtual environment in .venv, from the lock file, nothing global.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# A job is a dozen processes that import the same modules; where nobody may keep them compiled, each compiles them anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo quick test docs pictures soak chaos rewind terminate cluster kubernetes fuzz lint format bench bench-compare lock audit licences dist clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# uv, which the lock file has, installs the rest of it in half of the processor time. It does not know pip's settings, so
# where packages come from some other place by these, pip does it.
$(READY): requirements.lock pyproject.toml
	@echo "setting up $(VENV) with what requirements.lock names; that takes a minute, once"
	$(PYTHON) -m venv $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > $(VENV)/uv.lock
	$(PIP) --require-hashes -r $(VENV)/uv.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock \
		|| $(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(READY) ## make the virtual environment

demo: $(READY) ## run the main job on an embedded Kafka broker and watch it
	$(BIN)/rowkind dev demo examples/orders-payments/job.yaml

# tests/conftest.py says which tests stay together, and puts those first that take longest.
PYTEST := $(BIN)/pytest -n 2 --dist loadgroup --no-loadscope-reorder --durations 20 --durations-min 1

quick: $(READY) ## the tests that need nothing but Python, with very few random cases
	ROWKIND_TEST_SEEDS=0.05 $(PYTEST) tests/unit tests/laws tests/oracle tests/plan tests/flink tests/matrix

# Sessions of Spark start in half the time with it.
$(VENV)/.warm: $(READY)
	$(BIN)/python -m rowkind.service.processes.class_archive
	@touch $@

# The random tests look at the same cases each time, so that a third of them will do here: `make soak` is for many.
test: lint $(VENV)/.warm ## static checks and all tests
	ROWKIND_TEST_SEEDS=$${ROWKIND_TEST_SEEDS:-0.3} $(PYTEST)

TIMES ?= 10
soak: $(READY) ## the random tests, with TIMES=10 times as many cases
	ROWKIND_TEST_SEEDS=$(TIMES) $(PYTEST) tests/unit tests/laws tests/oracle tests/plan tests/flink tests/examples

lint: $(READY) ## ruff and mypy, as in CI
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Its theme would print a page about its successor.
docs: $(READY) ## the site of docs, in .rowkind/site; a link that leads nowhere fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open .rowkind/site/index.html"

pictures: $(READY) ## the pictures in the docs, taken anew; they need Chromium
	$(BIN)/python -m tests.page.screenshots

format: $(READY) ## let ruff format and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

FAULTS ?= 30
chaos: $(VENV)/.warm ## faults against running jobs, FAULTS=30 of them; ARGS="--seed 7 --only kill_java" and more, see --help
	$(BIN)/python -m tests.chaos --faults $(FAULTS) $(ARGS)

STARTS ?= 300
rewind: $(VENV)/.warm ## starts of a job from savepoints and older checkpoints, STARTS=300 of them; ARGS="--seed 7"
	$(BIN)/python -m tests.chaos.rewind --starts $(STARTS) $(ARGS)

SIGNALS ?= 100
terminate: $(VENV)/.warm ## SIGTERM or SIGINT at random moments of a job's life, SIGNALS=100 of them; ARGS="--seed 7"
	$(BIN)/python -m tests.chaos.terminate --times $(SIGNALS) $(ARGS)

LOSSES ?= 24
cluster: $(VENV)/.warm ## losses of a job on a Spark cluster, LOSSES=24 of them; ARGS="--seed 7 --only lose_machine"
	$(BIN)/python -m tests.cluster --losses $(LOSSES) $(ARGS)

kubernetes: $(READY) ## build the API server that tests of Kubernetes need, once; needs Go, and takes minutes
	GOFLAGS="-p=1 $(GOFLAGS)" $(BIN)/python -m tests.cluster.control_plane

SEEDS ?= 500
fuzz: $(READY) ## random jobs against DuckDB, and in every cut; SEEDS=2000 or SEEDS=5000-7000, ARGS="--help" tells of more
	$(BIN)/python -m tests.fuzz $(SEEDS) $(ARGS)
	$(BIN)/python -m tests.fuzz $(SEEDS) $(ARGS) --of cuts

bench: $(READY) ## the benchmarks: operators, state, and every query from Kafka to Kafka
	$(BIN)/python -m tests.bench

bench-compare: $(READY) ## Rowkind and Flink SQL in turn on the same topics; ARGS="--help" tells of sections and sizes
	$(BIN)/python -m tests.bench.compare $(ARGS)

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-header --no-annotate

lock: $(READY) ## resolve the dependencies anew: for development, and without the tools for the image
	$(LOCK) --extra dev --extra traces --output-file requirements.lock pyproject.toml
	$(LOCK) --extra traces --constraint requirements.lock --output-file deploy/requirements.lock pyproject.toml

# What only looks at the lock file need not be in it.
audit: $(READY) ## known vulnerabilities of what the image holds, and its bill of materials as .rowkind/sbom.json
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0 pip-audit==2.10.1
	mkdir -p .rowkind
	$(VENV)/audit/bin/cyclonedx-py requirements --output-file .rowkind/sbom.json deploy/requirements.lock
	$(VENV)/audit/bin/pip-audit --strict --disable-pip --require-hashes --requirement deploy/requirements.lock

licences: $(READY) ## the licences of what the image holds, into docs/licences.md
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-licenses==5.5.5
	$(VENV)/audit/bin/pip-licenses --python $(BIN)/python --from mixed --format markdown \
		--packages $$(sed -n 's/^\([a-z0-9-]*\)==.*/\1/p' deploy/requirements.lock) > .licences
	{ printf '# Licences\n\nOf the Python packages in the image, as each tells them (`make licences` writes this page). Those of\n'; \
		printf 'the libraries in Java are in the folder `licenses` of Spark.\n\n'; cat .licences; } > docs/licences.md
	rm .licences

dist: $(READY) ## the wheel and the source archive, into dist; whoever builds a commit has the same wheel
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/uv build --quiet --no-build-isolation --out-dir dist

clean: ## remove everything that was made here
	rm -rf $(VENV) .rowkind build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
