# Everything on a fresh machine with Python 3.11+ and make: `make demo`, `make test`.
SHELL := /bin/sh
# Any Python from 3.11 on; PYTHON=... chooses one.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-fast mutants long races crash month chaos hermes kubernetes lint format bench versus clean requirements

demo: $(VENV)/.run-installed
	$(BIN)/quota-worker demo

# What the second server can answer differently: SQL, and what people call most. The rest is the same on both: units, the
# model, planted bugs, channels, packages, streams, texts for people, the embedded server, crashes and months (their SQL is in the
# other tests; `QUOTA_WORKER_TEST_PG=system make crash` and `make month` run them there). test_house prepares every query.
ON_EACH_SERVER := tests/sql tests/reconcile tests/migration tests/postgres tests/contract/test_outbox.py \
	tests/test_house.py::test_every_named_query_prepares \
	$(patsubst %,tests/acceptance/test_%.py,audit dry_run months outcomes reconcile_deadlock soft_warn sources status_worst \
	upkeep warn_odd)

# Three at once on two cores: many wait for a clock or a server.
PYTEST := $(BIN)/python -m pytest -q -n 3 --dist loadscope

# Lint, types and import contracts, then every test on PostgreSQL 18 (the
# wheel) and, where one is installed, those that meet the server on the system's.
test: lint
	$(PYTEST)
	@if $(BIN)/python tests/conftest.py has-system-postgres; then \
		echo "again, on the system's PostgreSQL"; \
		QUOTA_WORKER_TEST_PG=system QUOTA_WORKER_EXAMPLES=20 QUOTA_WORKER_BATCHES=100 $(PYTEST) $(ON_EACH_SERVER); \
	else echo "no PostgreSQL 15 to 18 is installed: tested on the wheel's 18 only"; fi

test-fast: $(VENV)/.dev-installed
	$(PYTEST) -x

# Every planted bug must turn a test red (`make test` plants a dozen of them).
mutants: $(VENV)/.dev-installed
	QUOTA_WORKER_MUTANTS=1 $(BIN)/python -m pytest -q tests/mutations

# The random-operation test at length: thousands of examples from a fresh seed, which it prints.
long: $(VENV)/.dev-installed
	QUOTA_WORKER_LONG=1 $(BIN)/python -m pytest -q -s tests/sql/test_state_machine.py tests/sql/test_roll_parts.py

# Thousands of releases and expiries against usages, with lost connections and deadlocks at commit (`make test`: a hundred).
# Fresh seeds, which it prints; QUOTA_WORKER_RACES says how many, QUOTA_WORKER_SEED repeats one.
races: $(VENV)/.dev-installed
	QUOTA_WORKER_RACES=$${QUOTA_WORKER_RACES:-3000} $(BIN)/python -m pytest -q -s tests/reconcile

# kill -9 at every await around a side effect, in 200 seeded runs (`make test`: a dozen); prints the seed.
crash: $(VENV)/.dev-installed
	QUOTA_WORKER_CRASH_RUNS=$${QUOTA_WORKER_CRASH_RUNS:-200} $(BIN)/python -m pytest -q -s tests/crash

# Whole months of three workers among random faults, against a model of what must be told (`make test`: some days).
# Fresh seeds, which it prints; QUOTA_WORKER_MONTHS says how many, QUOTA_WORKER_SEED repeats one.
month: $(VENV)/.dev-installed
	QUOTA_WORKER_MONTH=1 $(BIN)/python -m pytest -q -s tests/month

# A hard week, compressed: real processes, servers and receivers, and what befalls them, for six minutes and the time to
# recover. A fresh seed, which it prints; QUOTA_WORKER_SEED repeats one, QUOTA_WORKER_CHAOS_MINUTES makes it shorter or longer.
chaos: $(VENV)/.dev-installed
	PYTHONPATH=tests $(BIN)/python -m chaos

# A tick by a real Hermes Agent, with the files that `install` wrote. It is large, and in an environment of its own.
hermes: $(VENV)/.dev-installed $(VENV).hermes/.installed
	QUOTA_WORKER_HERMES=$(CURDIR)/$(VENV).hermes/bin/hermes \
	$(BIN)/python -m pytest -q -s -rs tests/schedules

# The manifests by the schemas of Kubernetes, likewise.
kubernetes: $(VENV)/.dev-installed $(VENV).kubernetes/.installed
	QUOTA_WORKER_KUBERNETES=$(CURDIR)/$(VENV).kubernetes/bin/kubernetes-validate \
	$(BIN)/python -m pytest -q -s -rs tests/schedules/test_manifests.py

$(VENV).hermes/.installed: PACKAGE := hermes-agent==0.19.0
$(VENV).kubernetes/.installed: PACKAGE := kubernetes-validate==1.37.0
$(VENV).hermes/.installed $(VENV).kubernetes/.installed:
	"$(PYTHON)" -m venv --clear $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install $(PACKAGE)
	@touch $@

lint: $(VENV)/.dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev-installed
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: $(VENV)/.dev-installed
	$(BIN)/python -m bench

# Beside Prometheus Alertmanager (Debian's package), the same alerts and the same kills: half an hour.
versus: $(VENV)/.dev-installed
	$(BIN)/python -m bench.versus $(VERSUS)

# A virtual environment keeps absolute paths: one that was copied along with
# its folder, or whose Python is gone, is made anew.
VENV_FITS := $(shell grep -qF '$(CURDIR)/$(VENV)' $(BIN)/activate 2>/dev/null && $(BIN)/python -c '' 2>/dev/null && echo yes)
ifneq ($(VENV_FITS),yes)
.PHONY: $(VENV)/.made
endif

$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "quota-worker needs Python 3.11 or newer with venv (PYTHON=... chooses one)" >&2; exit 2; }
	"$(PYTHON)" -m venv --clear $(VENV)
	@touch $@

$(VENV)/.run-installed: $(VENV)/.made requirements.txt pyproject.toml
	$(PIP) install --require-hashes --compile -r requirements.txt
	@$(MAKE) --no-print-directory install-project
	@touch $@

$(VENV)/.dev-installed: $(VENV)/.run-installed requirements-dev.txt
	$(PIP) install --require-hashes --compile -r requirements-dev.txt
	@touch $@

# The project itself, editable: hatchling comes hashed from the requirements,
# so that nothing unpinned is fetched to build it.
.PHONY: install-project
install-project:
	$(PIP) install --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q worker

# Pins with hashes and no addresses.
requirements:
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		--extra embedded --group build pyproject.toml -o requirements.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		--extra embedded --group dev -c requirements.txt pyproject.toml -o requirements-dev.txt

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
