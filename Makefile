# `make help` lists what there is. Everything is installed in .venv; a stamp in it per set of extras keeps set-up from
# being repeated until pyproject.toml changes.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo demo-gossip demo-pubsub chaos fuzz test lint bench bench-audit docs java browser clean

VENV := .venv
BIN := $(VENV)/bin

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.has-audit $(VENV)/.has-java ## Five members over TCP, a control without order, and the audit of both on Spark
	@$(BIN)/python -m demo

demo-gossip: $(VENV)/.has-audit $(VENV)/.has-java ## Forty processes that know one contact, joins and kills, and the audit on Spark
	@$(BIN)/python -m demo.gossip

demo-pubsub: $(VENV)/.has-audit $(VENV)/.has-java ## Sixteen processes, topics whose subscribers come and go, and the audit on Spark
	@$(BIN)/python -m demo.pubsub

SECONDS := 600
chaos: $(VENV)/.has-audit $(VENV)/.has-java ## Members killed, stopped, cut off, joining, leaving, evicted for SECONDS=600, and the audit on Spark
	@$(BIN)/python -m chaos --seconds $(SECONDS)

fuzz: $(VENV)/.has-dev ## Coverage-guided fuzzing of what members read from the network, SECONDS=60 for each of four targets
	@$(BIN)/python -m fuzz --seconds $(if $(filter command line environment,$(origin SECONDS)),$(SECONDS),60)

test: lint $(VENV)/.has-browser ## Lint, types, import contracts and all tests
	$(BIN)/pytest -n 2 --dist worksteal --durations=20

lint: $(VENV)/.has-dev $(VENV)/.has-java ## Lint, formatting, types and import contracts only
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

bench: $(VENV)/.has-dev $(VENV)/.has-java ## The benchmarks; figures are printed and kept in build/bench/
	@for bench in $(basename $(notdir $(wildcard benchmarks/bench_*.py))); do echo "== $$bench"; $(BIN)/python -m benchmarks.$$bench || exit 1; done

SIZES := 1000000,10000000
bench-audit: $(VENV)/.has-dev $(VENV)/.has-java ## The audit's benchmark alone, at SIZES=1000000,10000000 events
	@$(BIN)/python -m benchmarks.bench_audit --sizes $(SIZES)

docs: $(VENV)/.has-docs ## Build the documentation site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html"

java: $(VENV)/.has-audit ## Find or install a Java for Spark
	@$(BIN)/python scripts/java.py

browser: $(VENV)/.has-dev ## Find or install a browser for the tests of the report
	@$(BIN)/python scripts/browser.py

clean: ## Remove what the targets made, except .venv
	rm -rf build site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/.has-python:
	@python=$$(scripts/find_python $(PYTHON)) && echo "Making $(VENV) with $$python ..." && "$$python" -m venv --clear $(VENV)
	@touch $@

$(VENV)/.has-audit: $(VENV)/.has-python pyproject.toml
	@$(BIN)/python scripts/install.py audit,speed
	@touch $@

$(VENV)/.has-dev: $(VENV)/.has-audit pyproject.toml
	@$(BIN)/python scripts/install.py audit,speed,dev
	@touch $@

$(VENV)/.has-docs: $(VENV)/.has-python pyproject.toml
	@$(BIN)/python scripts/install.py docs
	@touch $@

$(VENV)/.has-java: $(VENV)/.has-audit
	@$(BIN)/python scripts/java.py
	@touch $@

$(VENV)/.has-browser: $(VENV)/.has-dev
	@$(BIN)/python scripts/browser.py
	@touch $@
