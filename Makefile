.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CONTRACT := tests/contract/test_state_store.py
BENCH := $(VENV)/.installed-bench
FUZZ := $(VENV)/.installed-fuzz
HTTP := $(VENV)/.installed-http
MODULE := PYTHONPATH=shared:cli:spark:.$${PYTHONPATH:+:$$PYTHONPATH} $(BIN)/python -m
SITE := $(VENV)/.installed-site
ENGINES := $(VENV)/engines
PIP := python -m pip install --quiet --disable-pip-version-check
PINNED := $(PIP) --require-hashes --no-deps --requirement
EVERYWHERE := --universal --fork-strategy fewest --python-version 3.11
LOCK = build/lock/bin/uv pip compile --quiet --upgrade --generate-hashes --no-annotate --custom-compile-command "make lock"
export SAM_CLI_TELEMETRY := 0
# Hypothesis would import plugins of packages that no test of it uses: trio, which Selenium needs.
export HYPOTHESIS_NO_PLUGINS := 1
export ARCH ?= arm64
PYTEST = $(BIN)/python -m pytest --numprocesses=auto --dist=loadfile --max-worker-restart=0
# Without bytecode on the disk every process of a test compiles the library again, for seconds.
unexport PYTHONDONTWRITEBYTECODE
HERE = $(subst aarch64,arm64,$(shell uname -m))

help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[1m%-13s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Create .venv and install what everything here needs
$(INSTALLED): pyproject.toml requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Dormouse needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(PINNED) requirements.txt
	$(BIN)/$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(INSTALLED) ## Drop a year of flights, watch them sorted, split, compacted; look some up
	@$(BIN)/dormouse local run -- $(BIN)/python -m tools.demo build/flights.html

demo-spark: $(INSTALLED) ## Five million flights by way of Spark: bulk imported, compacted, exported, read as a DataFrame (Java 17)
	@$(BIN)/dormouse local run -- $(BIN)/python -m spark.demo

test: $(INSTALLED) ## Run the tests that each change must pass, in some minutes (ARGS=tests/unit/fold for some)
	$(PYTEST) $(ARGS)

test-all: $(INSTALLED) $(ENGINES)/.installed ## Run all tests, also stacks, Spark, engines, the console, all crash points
	DORMOUSE_TESTS_WHOLE=1 $(PYTEST) $(ARGS)

test-slice: $(INSTALLED) $(ENGINES)/.installed ## Run one of ten slices of all tests, by the number of the commit (SLICE=0 to 9 for a certain one)
	DORMOUSE_TESTS_WHOLE=1 $(PYTEST) --slice=$(or $(SLICE),turn) $(ARGS)

$(ENGINES)/.installed: $(INSTALLED) requirements-engines.txt
	$(BIN)/python -m venv $(ENGINES)
	$(ENGINES)/bin/$(PINNED) requirements-engines.txt
	@touch $@

test-wheel: $(INSTALLED) ## Build the wheel, install it into empty environments, and use it there (downloads packages)
	$(BIN)/python -m pytest tests/wheel $(ARGS)

test-engines: $(INSTALLED) $(ENGINES)/.installed ## Let every engine read published tables, also Spark, Trino and ClickHouse; 1.5 GB
	@$(BIN)/python -m tests.engines.install
	$(BIN)/python -m pytest tests/engines/every_engine.py tests/engines/large_documented.py
	@$(MODULE) tests.engines.table $(ARGS)

pictures: $(INSTALLED) ## Take the pictures of the console that docs/console.md shows (needs Chromium and its driver)
	DORMOUSE_PICTURES=docs/images $(BIN)/python -m pytest tests/console/test_console.py

crash-points: $(INSTALLED) ## Cut every operation off at each of its calls, and see that it is made up for (ARGS=--only compact)
	@$(MODULE) tests.simulation.crash_table $(ARGS)

fuzz: $(FUZZ) ## Give bad input to all that takes any, for MINUTES=20 (NAMES=… for some targets)
	@$(MODULE) tests.fuzz $(or $(MINUTES),20) $(NAMES)

$(FUZZ): $(INSTALLED) requirements-fuzz.txt
	@$(BIN)/$(PINNED) requirements-fuzz.txt || echo "no atheris for this Python: without it"
	@touch $@

test-http: $(HTTP) ## Call the HTTP API as its description says, and as it does not, for MINUTES=10 (SEED=1)
	@$(MODULE) tests.http_calls $(or $(MINUTES),10) --seed $(or $(SEED),1)

$(HTTP): $(INSTALLED) requirements-http.txt
	$(BIN)/$(PINNED) requirements-http.txt
	@touch $@

test-endpoint: $(INSTALLED) ## Hold the state stores to their contract on AWS_ENDPOINT_URL_DYNAMODB (and _S3), else on the local stack
	@set -e; suite="$(BIN)/python -m pytest $(CONTRACT) $(ARGS)"; \
	if [ -n "$$AWS_ENDPOINT_URL$$AWS_ENDPOINT_URL_DYNAMODB" ]; then $$suite; \
	else $(BIN)/dormouse local run -- $$suite; fi

chaos: $(INSTALLED) ## Break the local stack for MINUTES=4, by SEED=1, and hold all rows against what was dropped; kill processes of a folder
	@$(MODULE) tests.chaos --minutes $(or $(MINUTES),4) --seed $(or $(SEED),1) $(ARGS)
	@$(MODULE) tests.chaos.folder --seed $(or $(SEED),1)

load: $(INSTALLED) ## Drop 2,000 files at once on the local stack, then ask 64 queries at once; some minutes
	@$(MODULE) tests.chaos.load $(ARGS)

sim: $(INSTALLED) ## Simulate instances in which everything fails (SEED=1 SEEDS=1000 STEPS=700 PROCESSES=2; in a folder: ARGS=--folder; hours: SEEDS=100000)
	@PYTHONHASHSEED=0 $(MODULE) tests.simulation --seed $(or $(SEED),1) \
	--seeds $(or $(SEEDS),1000) --steps $(or $(STEPS),700) --processes $(or $(PROCESSES),2) $(ARGS)

bench-state: $(BENCH) ## Measure the state store: commits, writers, loads; half an hour to an hour and a half (ARGS=--quick: three minutes)
	@$(MODULE) bench.state $(ARGS)

bench-rows: $(BENCH) ## Measure compaction, ingest, look-ups and memory beside peers, also on a slow S3 (ARGS=--quick: minutes)
	@$(MODULE) bench.rows $(ARGS)

bench-embedded: $(BENCH) ## Measure an instance in a folder beside DuckDB, SQLite, LanceDB and delta-rs (ARGS=--quick: minutes)
	@$(MODULE) bench.embedded $(ARGS)

bench-upserts: $(BENCH) ## Measure upserts and deletions beside delta-rs, PyIceberg and DuckLake (ARGS=--quick: two minutes)
	@$(MODULE) bench.upserts $(ARGS)

bench-iceberg: $(INSTALLED) $(ENGINES)/.installed ## Measure publications for readers of Iceberg, and how engines plan (ARGS=--quick: half a minute)
	@$(MODULE) bench.iceberg $(ARGS)

bench-sql: $(BENCH) ## Measure SQL beside DuckDB, DataFusion and Polars on the exported rows (ARGS=--quick: two minutes)
	@$(MODULE) bench.sql $(ARGS)

bench-service: $(BENCH) ## Measure the HTTP API: look-ups, 64 clients, 2 GB of results, cold starts, money (ARGS=--quick: two minutes)
	@$(MODULE) bench.service $(ARGS)

bench-bit-flips: $(INSTALLED) ## Flip 2,000 bits of a shard, and see that no stage believes one; ten minutes (ARGS=--flips 200)
	@$(MODULE) tests.bit_flips $(ARGS)

bench-cost: $(BENCH) ## Measure what a million rows cost on AWS, by the memory of the functions (ARGS=--quick: minutes)
	@$(MODULE) bench.cost $(ARGS)

bench-spark: $(BENCH) ## Measure bulk imports and heavy compactions on Spark beside plain Spark (ARGS=--quick: minutes)
	@$(MODULE) bench.spark $(ARGS)

$(BENCH): $(INSTALLED) requirements-bench.txt
	$(BIN)/$(PINNED) requirements-bench.txt
	@touch $@

docs: $(INSTALLED) ## Make the documents that follow from the code: properties, messages
	$(BIN)/python -m tools.generated.docs docs

site: $(SITE) ## Build the documentation as a site into build/site; broken links fail
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "to read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site"

$(SITE): $(INSTALLED) requirements-site.txt
	$(BIN)/$(PINNED) requirements-site.txt
	@touch $@

expanded: $(INSTALLED) ## Write what the template asks of AWS, which a test holds it to: see what a change of it changes
	@$(MODULE) tests.template.expanded

lint: $(INSTALLED) ## Check format, style, types, layers, the template and dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy shared/dormouse cli/dormouse_cli spark/dormouse_spark bench
	$(BIN)/sam validate --lint
	$(BIN)/python tools/phrases.py
	@$(BIN)/python tools/audit.py

audit: $(INSTALLED) ## Hold the pinned dependencies against known vulnerabilities, if the index can be asked
	@$(BIN)/python tools/audit.py

format: $(INSTALLED) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## Resolve all dependencies again; pin them, with the hashes of all their files
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/$(PINNED) requirements-lock.txt
	$(LOCK) $(EVERYWHERE) --extra dev,local,report,spark pyproject.toml --output-file requirements.txt
	$(LOCK) $(EVERYWHERE) --extra bench --constraint requirements.txt pyproject.toml --output-file requirements-bench.txt
	echo atheris | $(LOCK) --python-version 3.11 - --output-file requirements-fuzz.txt
	echo schemathesis | $(LOCK) $(EVERYWHERE) --constraint requirements.txt - --output-file requirements-http.txt
	printf 'mkdocs-material\nmkdocstrings[python]\n' | $(LOCK) $(EVERYWHERE) --constraint requirements.txt - --output-file requirements-site.txt
	printf 'boto3\nduckdb==1.5.5\nduckdb-extension-avro==1.5.5\nduckdb-extension-httpfs==1.5.5\nduckdb-extension-iceberg==1.5.5\nfastavro\npolars\npyarrow\npyiceberg\npyroaring\n' | $(LOCK) $(EVERYWHERE) - --output-file requirements-engines.txt
	printf 'chdb\njdk4py\npyarrow\ntrino\n' | $(LOCK) $(EVERYWHERE) - --output-file requirements-large-engines.txt
	echo pip-audit | $(LOCK) $(EVERYWHERE) - --output-file requirements-audit.txt
	echo uv | $(LOCK) $(EVERYWHERE) - --output-file requirements-lock.txt
	for layer in core engine statements; do sed -n 's/==.*//p' shared/layer-$$layer.txt | \
	$(LOCK) --no-deps --constraint requirements.txt - --output-file shared/layer-$$layer.txt || exit 1; done

build: $(INSTALLED) ## Build layers and functions for sam deploy (ARCH=arm64 or x86_64)
	$(BIN)/sam build --parameter-overrides Architecture=$(ARCH)
	$(BIN)/python tools/layer_sizes.py .aws-sam/build

layer: $(INSTALLED) ## Build the layers for both architectures; say what each function weighs
	@rm -rf build/layers
	@set -e; for arch in arm64 x86_64; do for layer in CoreLayer EngineLayer StatementsLayer SparkLayer; do \
	$(MAKE) --silent -C shared build-$$layer ARCH=$$arch PYTHON=$(abspath $(BIN))/python \
		ARTIFACTS_DIR=$(abspath build/layers/$$arch/$$layer); done; done
	@$(BIN)/python tools/layer_sizes.py build/layers/arm64 build/layers/x86_64

invoke: $(INSTALLED) ## Build, then run one function on one event in a container, against the local stack: make invoke FN=ingest EVENT=good
	@docker info >/dev/null 2>&1 || { echo "sam local invoke needs Docker, which does not run here; without a container: dormouse local invoke $(FN) events/$(FN)/$(EVENT).json"; exit 1; }
	@$(MAKE) --no-print-directory build ARCH=$(HERE)
	@$(BIN)/python tools/sam_invoke.py $(FN) events/$(FN)/$(EVENT).json --architecture $(HERE)

events: $(INSTALLED) ## Make what the events of events/ name, on the local stack (dormouse local up --no-triggers)
	@$(MODULE) tools.sample_events

clean: ## Remove what was built and installed
	rm -rf $(VENV) build .aws-sam .local .mypy_cache .pytest_cache .ruff_cache .hypothesis

faults: $(INSTALLED) ## Plant faults one at a time, and see that tests notice each (ARGS="--only statestore", ARGS="--since main")
	@$(MODULE) tests.faults $(ARGS)

.PHONY: help setup demo demo-spark test test-all test-slice test-wheel test-engines test-http test-wheel expanded crash-points fuzz sim chaos load docs site test-endpoint bench-state bench-rows bench-embedded bench-upserts bench-iceberg bench-sql bench-service bench-bit-flips bench-cost bench-spark faults layer lint audit format lock build invoke events clean
