# Every target sets up what it needs: a virtual environment in .venv, Java where Spark runs, Chromium for the page's tests, PyFlink to compare with.
# Variables: PYTHON (interpreter for .venv), TESTS (what make test runs), ROUNDS and SEED (of make chaos), SEEDS and SEED
# (of make simulate), COUNT and SEED (of make test-flink); CHECKED=1 lets make test leave out the tests that make check has
# just run.

.PHONY: help demo test test-spark test-flink check simulate docs bench bench-all chaos shots environment java jdk quick-java chromium pyflink clean

RUN = .venv/bin/python
TESTS ?= tests
CHECKED ?=
CHAOS ?= chaos
ROUNDS ?= 200
SEEDS ?= 500
COUNT ?= 500
SEED ?=

# Tests start many Python processes: each would compile Checkdam anew where the environment forbids to keep bytecode.
export PYTHONDONTWRITEBYTECODE :=

help:
	@echo "make demo        count words, kill a slot and the driver, resume: about a minute"
	@echo "make test        all tests, those on Spark included"
	@echo "make check       format, lint, types, layers, fast tests, simulation: no Java"
	@echo "make test-spark  only the tests on Spark"
	@echo "make test-flink  random window jobs on Flink and on Checkdam, compared: COUNT=500, SEED=a number to repeat"
	@echo "make simulate    whole jobs in one thread, in orders that seeds choose: SEEDS=500, SEED=a number to repeat"
	@echo "make docs        write docs/configuration.md from the tables of settings"
	@echo "make bench       speed beside Spark and Flink, as ratios: a quarter of an hour; writes build/bench.json"
	@echo "make bench-all   the same, and everything else that is measured: an hour; writes build/bench-all.json"
	@echo "make chaos       kill, freeze and damage things at random moments: ROUNDS=200, SEED=a number"
	@echo "make shots       screenshots of every view of the page, at two widths, in light and dark: build/shots"
	@echo "make clean       remove .venv and everything else that was made here"

demo: environment java
	@.venv/bin/checkdam demo

test: environment java chromium quick-java
	@$(RUN) -m tools.all_tests $(if $(CHECKED),--checked) $(TESTS)

test-spark: environment java chromium quick-java
	@$(RUN) -m tools.all_tests --only-spark $(TESTS)

test-flink: environment jdk
	@$(RUN) -m tests.flink $(if $(SEED),--seed $(SEED),--count $(COUNT))

check: environment
	@SEEDS=$(SEEDS) $(RUN) -m tools.check

simulate: environment
	@$(RUN) -m simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

docs: environment
	@$(RUN) -m tools.configuration_docs

bench: environment jdk pyflink
	@$(RUN) -m benchmarks

bench-all: environment jdk chromium pyflink
	@$(RUN) -m benchmarks --all

chaos: environment java
	@$(RUN) -m $(CHAOS) --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

shots: environment chromium
	@rm -rf build/shots
	@$(RUN) -m pytest -q -n 0 tests/page/test_views.py --shots build/shots -k test_nothing_is_cut

environment:
	@PYTHON="$(PYTHON)" sh tools/environment.sh

java:
	@sh tools/java.sh

jdk:
	@sh tools/java.sh jdk

quick-java: environment java
	@$(RUN) -m tools.quick_java

chromium:
	@sh tools/chromium.sh

pyflink: environment
	@PYTHON="$(PYTHON)" sh tools/pyflink.sh >/dev/null || echo "make bench goes on without PyFlink" >&2

clean:
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
