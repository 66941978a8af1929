# Every target sets up what it needs: a virtual environment in .venv, Java where Spark runs, Chromium for the page's tests.
# Variables: PYTHON (interpreter for .venv), TESTS (what make test runs), ROUNDS and SEED (of make chaos), SEEDS and SEED
# (of make simulate).

.PHONY: help demo test test-spark check simulate docs bench chaos environment java chromium clean

RUN = .venv/bin/python
TESTS ?= tests
CHAOS ?= chaos
ROUNDS ?= 200
SEEDS ?= 500
SEED ?=

help:
	@echo "make demo        count words, kill a slot and the driver, resume: about a minute"
	@echo "make test        all tests, those on Spark included"
	@echo "make check       format, lint, types, layers, fast tests: no Java, under a minute"
	@echo "make test-spark  only the tests on Spark"
	@echo "make simulate    whole jobs in one thread, in orders that seeds choose: SEEDS=500, SEED=a number to repeat"
	@echo "make docs        write docs/configuration.md from the tables of settings"
	@echo "make bench       throughput, checkpoint and restore time, as ratios; writes build/bench.json"
	@echo "make chaos       kill, freeze and damage things at random moments: ROUNDS=200, SEED=a number"
	@echo "make clean       remove .venv and everything else that was made here"

demo: environment java
	@.venv/bin/checkdam demo

test: environment java chromium
	@$(RUN) -m pytest -m "not spark" -n 2 $(TESTS) || [ $$? -eq 5 ]  # 5: TESTS names none of these
	@$(RUN) -m pytest -m spark $(TESTS) || [ $$? -eq 5 ]

test-spark: environment java chromium
	@$(RUN) -m pytest -m spark $(TESTS)

check: environment
	@echo "format" && $(RUN) -m ruff format --quiet --check .
	@echo "lint" && $(RUN) -m ruff check --quiet .
	@echo "types" && $(RUN) -m mypy --strict --explicit-package-bases --no-error-summary src tests chaos benchmarks simulation
	@MYPYPATH=examples/fraud_detection:src $(RUN) -m mypy --strict --no-error-summary examples/*.py examples/fraud_detection/*.py
	@echo "layers" && .venv/bin/lint-imports --no-logo
	@echo "fast tests" && $(RUN) -m pytest -m "not spark and not slow" -n 2 tests
	@echo "simulation" && $(RUN) -m simulation --seeds $(SEEDS)

simulate: environment
	@$(RUN) -m simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

docs: environment
	@$(RUN) -m tools.configuration_docs

bench: environment java chromium
	@$(RUN) -m benchmarks

chaos: environment java
	@$(RUN) -m $(CHAOS) --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

environment:
	@PYTHON="$(PYTHON)" sh tools/environment.sh

java:
	@sh tools/java.sh

chromium:
	@sh tools/chromium.sh

clean:
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
