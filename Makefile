# Townlet. `make run` trains an agent, `make test` runs the checks and tests; both build .venv first.

VENV := .venv
BIN := $(VENV)/bin
# Three processes for two cores: many tests wait for a browser, a server or a clock.
JOBS ?= 3
# Name another interpreter with `make PYTHON=/path/to/python …`.
PYTHON ?=
CANDIDATES := $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3 python
RECENT := import sys; sys.exit(sys.version_info < (3, 11))
PIP := $(BIN)/python -m pip --disable-pip-version-check

# A stamp is newer than the files it was made from, so nothing is installed twice.
RUN_STAMP := $(VENV)/.installed-run
TEST_STAMP := $(VENV)/.installed-test
DOCS_STAMP := $(VENV)/.installed-docs
# The audit tools have a separate environment, so that they do not audit themselves.
AUDIT_VENV := .venv-audit
AUDIT_STAMP := $(AUDIT_VENV)/.installed
# Without stored bytecode, every test process would compile all packages again.
unexport PYTHONDONTWRITEBYTECODE
# Optional parts for install-hashed and verify-dependencies: make install-hashed EXTRAS="test"
EXTRAS ?=

.DEFAULT_GOAL := help
.PHONY: help run test quick-tests test-long check lint types kernels tables docs coverage bench install-hashed verify-dependencies sbom audit lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' Makefile

run: $(RUN_STAMP) ## train an agent in the town, watch it in a browser, and print a summary
	$(BIN)/townlet train town:dqn --open

# The kernels are compiled while pip installs what only the tests need, and the checks run beside the first tests.
test: $(RUN_STAMP) ## run the checks and the quick tests
	@$(MAKE) --no-print-directory -j2 quick-tests check

quick-tests: kernels tables
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-long: $(TEST_STAMP) ## run the tests that take minutes, and the quick property tests with more examples
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -m "hypothesis and not long" -n $(JOBS) --dist worksteal
	$(BIN)/python -m pytest -m "long and not alone" -n $(JOBS) --dist load --maxschedchunk 1 -rP
	$(BIN)/python -m pytest -m alone -rP

check: lint types ## run ruff, mypy, import rules, rejected words, and dead-code and security scanners

# The checks print only what they find.
lint: $(TEST_STAMP)
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/python tools/check_sources.py
	@$(BIN)/vulture
	$(call quietly,$(BIN)/bandit --quiet --recursive src --configfile pyproject.toml)
	$(call quietly,$(BIN)/lint-imports --no-logo)

types: $(TEST_STAMP)
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/mypy --no-error-summary --no-explicit-package-bases benchmarks

# Compiles the kernels; otherwise each test process would do so.
kernels: $(RUN_STAMP)
	$(call quietly,$(BIN)/townlet recipes --smoke town-l0:dqn)

# Compiles the bytecode of the tests and builds the tables of Hypothesis that the selected test needs.
tables: $(TEST_STAMP)
	$(call quietly,$(BIN)/python -m pytest --quiet -k test_arbitrary_input_is_parsed_or_refused)

docs: $(DOCS_STAMP) ## build the documentation as a static site, to be opened from disk or put on a web server
	$(call quietly,NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --config-file tools/docs/mkdocs.yml)
	@echo "Open $(CURDIR)/build/site/index.html"

coverage: $(TEST_STAMP) ## run the quick tests with line coverage; fails below the threshold in pyproject.toml
	rm -f .coverage .coverage.*
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --cov --cov-report=term

bench: $(RUN_STAMP) ## measure simulation speed on this machine
	$(BIN)/python benchmarks/sim.py

install-hashed: ## install into .venv only archives whose sha256 is recorded in tools/hashes.txt
	$(call make_venv)
	$(BIN)/python tools/supply_chain.py install $(EXTRAS)
	@touch $(RUN_STAMP) $(if $(filter test,$(EXTRAS)),$(TEST_STAMP)) $(if $(filter docs,$(EXTRAS)),$(DOCS_STAMP))

verify-dependencies: $(RUN_STAMP) ## check installed files against their wheels, and what pip would install against the hashes
	$(BIN)/python tools/supply_chain.py verify $(EXTRAS)

sbom: $(RUN_STAMP) $(AUDIT_STAMP) ## write dist/sbom.cdx.json: every installed package with its license, as CycloneDX
	@mkdir -p dist
	$(AUDIT_VENV)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o dist/sbom.cdx.json $(BIN)/python

audit: $(AUDIT_STAMP) ## look up known vulnerabilities of all pinned versions (needs network access)
	@$(AUDIT_VENV)/bin/python tools/supply_chain.py audit

lock: $(AUDIT_STAMP) ## update tools/hashes.txt after a change to constraints.txt
	$(AUDIT_VENV)/bin/python tools/supply_chain.py lock

clean: ## remove the environment and the caches and outputs of all tools
	rm -rf $(VENV) $(AUDIT_VENV) dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Python compiles what is imported; compiling all packages takes pip a minute.
$(RUN_STAMP): pyproject.toml constraints.txt src/townlet/_version.py
	$(call make_venv)
	$(PIP) install --quiet --no-compile --constraint constraints.txt --editable .
	@touch $@

$(TEST_STAMP): $(RUN_STAMP)
	$(PIP) install --quiet --no-compile --constraint constraints.txt 'townlet[test]'
	@touch $@

$(DOCS_STAMP): $(RUN_STAMP)
	$(PIP) install --quiet --no-compile --constraint constraints.txt 'townlet[docs]'
	@touch $@

$(AUDIT_STAMP): tools/audit.txt
	$(call make_venv)
	$(BIN)/python -m venv --clear $(AUDIT_VENV)
	$(AUDIT_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r tools/audit.txt
	@touch $@

# Runs a command and prints its output only if it fails.
quietly = @result=$$($(1) 2>&1) || { echo "$$result"; exit 1; }

# Keeps a working environment; otherwise creates one with the first interpreter that is recent enough. The pip that
# comes with Python 3.11 takes twice as long as a current one.
define make_venv
	@if ! $(BIN)/python -c '$(RECENT)' 2>/dev/null; then \
	  for p in $(CANDIDATES); do \
	    if "$$p" -c '$(RECENT)' 2>/dev/null; then found="$$p"; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "Townlet needs Python 3.11 or newer, and none was found as: $(strip $(CANDIDATES))." >&2; \
	    echo "Install one, or name yours: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 2; \
	  fi; \
	  echo "Creating $(VENV) with $$("$$found" --version)"; \
	  "$$found" -m venv --clear $(VENV) || { \
	    echo "Could not create $(VENV). On Debian and Ubuntu: apt install python3-venv" >&2; rm -rf $(VENV); exit 2; }; \
	  $(PIP) install --quiet --upgrade pip || true; \
	fi
endef
