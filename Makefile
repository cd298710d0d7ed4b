# headrace: every target sets up what it needs and is quick when nothing changed.
#
#   make setup            .venv with everything installed from pyproject.toml
#   make check            lint, types, layering, pure tests and their coverage: some two minutes, no JVM
#   make test             everything that CI runs
#   make demo [ROWS=n]    the reference pipeline: flights and weather joined in order, worked as a queue
#   make bench [BENCH=…]  side by side with Apache Kafka; writes bench/RESULTS.md
#   make soak [SOAK=…]    the long tests with new seeds, over two hours: fuzz, kills, faults, simulation, scale, spark; or some of them
#   make conformance-kafka   the same suites of behaviour, clients and Spark against a real Apache Kafka
#   make conformance-secured   the suites of behaviour through TLS and a login, with ACLs that just suffice
#   make spark-versions     the Spark suites with every supported version of pyspark
#   make pythons         the pure tests and a secured broker with every supported version of Python that is here
#   make kafka-tests [TESTS=…]   Kafka's own integration tests; writes docs/conformance.md
#   make lowest           the pure tests with the lowest versions that pyproject.toml allows
#   make site             the documentation as a site, in out/site
#   make clean            remove what the targets made, but not .venv

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Python keeps what it has compiled, as pip does for an installed package: otherwise every process
# of a test, of Spark and of the command line would compile headrace anew.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup check lint test soak demo bench conformance-kafka conformance-secured kafka-tests spark-versions pythons lowest site java jars kcat prometheus browser clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SPARK_CLASSES := $(VENV)/spark.jsa
# A test that hangs in a C library, where pytest-timeout cannot reach it, ends the run with its stack.
PYTEST := $(BIN)/python -m pytest -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true
# A test with threads or clients may meet a machine that stands still: as in Kafka's own build it is
# tried once more, a few in a run, and the summary has the traceback of the first try.
SECOND_TRY := --reruns 1 --max-suite-reruns 3 --rerun-show-tracebacks
# A file is for one worker. A crashed worker ends the run: with another in its place pytest-xdist 3.8
# may wait forever (its issue 1378).
BY_FILE := --dist loadfile --max-worker-restart 0
# Quick files of tests/conformance that `make test` runs through TLS and a login, too.
SECURED := $(addprefix tests/conformance/test_,listener.py acknowledgements.py offsets.py transactions.py)
ROWS ?=
BENCH ?=
SOAK ?=
SOAK_OPTIONS ?=
TESTS ?=
SPARK_VERSIONS ?= 4.0.5 4.1.4 4.2.1 4.3.0
# Versions of Python beside the oldest, which has all other tests.
PYTHONS ?= 3.12 3.13 3.14
OLDEST_SPARK := $(firstword $(SPARK_VERSIONS))
# Tests for each version of pyspark; for the installed one there are the other tests.
OTHER_SPARK := tests/spark/test_pyspark_versions.py

help:
	@sed -n '3,16s/^# *//p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/make-venv
	@scripts/make-venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark,demo,dev]'
	@scripts/compile-pyspark $(BIN)/python
	@touch $@

# Java's class data sharing: Spark's JVMs start with half the CPU time.
$(SPARK_CLASSES): $(STAMP) | java
	@$(BIN)/python -m tests.spark.class_archive

java:
	@scripts/need java

jars:
	@scripts/need jdk
	@tests/peer/kafka jars > /dev/null

kcat:
	@scripts/need kcat || echo "its tests are skipped" >&2

prometheus:
	@scripts/need prometheus || echo "its tests are skipped" >&2

browser:
	@scripts/need browser || echo "its tests are skipped" >&2

lint: $(STAMP)
	$(BIN)/ruff check src tests bench examples scripts
	$(BIN)/ruff format --check src tests bench examples scripts
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports --no-logo

check: lint
	$(PYTEST) -q -n 2 -m "pure and not measured" tests
	$(PYTEST) -q -n 2 -m "pure and measured" tests/machines tests/protocol --cov --cov-report=term:skip-covered

test: lint jars $(SPARK_CLASSES) kcat prometheus browser
	$(PYTEST) -n 5 $(BY_FILE) --no-loadscope-reorder $(SECOND_TRY) -m "not alone" --ignore $(OTHER_SPARK) tests
	$(PYTEST) -n 2 $(BY_FILE) $(SECOND_TRY) --listener sasl_ssl $(SECURED)
	$(PYTEST) $(SECOND_TRY) -m alone tests
	scripts/spark-versions --short $(OLDEST_SPARK)
	scripts/pythons --newest $(PYTHONS)

soak: $(STAMP) jars
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]' || echo "fuzzing is not guided: no Atheris for this platform"
	@$(BIN)/python -m tests.soak $(SOAK) $(SOAK_OPTIONS)

demo: $(STAMP) java
	$(BIN)/python -m examples.departures $(if $(ROWS),--rows $(ROWS))

bench: $(STAMP) jars
	$(BIN)/python -m bench.run $(BENCH)

conformance-kafka: $(STAMP) jars $(SPARK_CLASSES) kcat prometheus
	$(PYTEST) -n 2 $(BY_FILE) $(SECOND_TRY) tests/conformance tests/clients \
	  tests/cli/test_perf.py tests/worker/test_functions.py tests/worker/test_draining.py tests/worker/test_retries.py \
	  tests/protocol/test_bad_input.py tests/protocol/test_produce.py tests/spark tests/examples tests/web/test_secured.py tests/faults/test_close_on_stop.py \
	  'tests/faults/test_share_kill.py::test_a_queue_of_records_at_a_broker_that_dies_and_stands_still[kafka]' \
	  --target kafka

conformance-secured: $(STAMP)
	$(PYTEST) -n 2 $(BY_FILE) $(SECOND_TRY) -m "not java" --listener sasl_ssl tests/conformance

kafka-tests: $(STAMP) jars
	$(BIN)/python -m tests.kafka_tests $(TESTS)

spark-versions: $(STAMP) java
	@scripts/spark-versions $(SPARK_VERSIONS)

pythons:
	@scripts/pythons $(PYTHONS)

lowest:
	@mkdir -p out
	@scripts/make-venv out/lowest
	scripts/lowest-versions > out/lowest.txt
	out/lowest/bin/python -m pip install --quiet --disable-pip-version-check -c out/lowest.txt -e '.[spark,demo,dev]'
	out/lowest/bin/python -m pytest -q -n 2 $(BY_FILE) -p no:cacheprovider -m pure tests

site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "the site is in out/site; to read it: $(BIN)/python -m http.server -b 127.0.0.1 -d out/site"

clean:
	rm -rf out build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage spark-warehouse
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
