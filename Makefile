# The two commands a new user needs are `make demo` and `make test`; each does all the set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/pytest -n 3 --dist loadfile
MINUTES ?= 30

# The tests start hundreds of interpreters, and each would compile what it imports of the checkout again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test test-long test-cluster lint style types bench lock vendor clean

$(VENV)/.run: requirements.lock requirements-build.lock pyproject.toml scripts/setup
	@scripts/setup $(PYTHON) $(VENV) requirements.lock && touch $@

$(VENV)/.dev: requirements-dev.lock requirements-build.lock pyproject.toml scripts/setup
	@scripts/setup $(PYTHON) $(VENV) requirements-dev.lock && touch $@ $(VENV)/.run

# Set-up builds them too.
$(VENV)/.native: $(wildcard native/*.[ch] native/*/*.h) setup.py
	@$(BIN)/python setup.py -q build_ext --inplace && touch $@

demo: $(VENV)/.run $(VENV)/.native
	@$(BIN)/idgraph demo

# In memory, all packages: no Spark, no server, no subprocess, and not the slowest files.
check: style
	$(call with_types,$(PYTEST) -q -m "not (long or cluster or slow or spark or process)")

test: style
	$(call with_types,$(PYTEST))

# The types are checked beside the tests, which often wait; what is wrong with them is said at the end.
define with_types
@$(MAKE) -s types >$(VENV)/types.log 2>&1 & types=$$!; trap 'kill $$types' INT TERM; \
	$(1); tested=$$?; wait $$types; typed=$$?; [ $$typed = 0 ] || cat $(VENV)/types.log; exit $$((tested | typed))
endef

# What `make test` leaves out, and every property with all of its examples; native code under sanitizers, other versions of Python;
# whole processes, killed and beside each other.
test-long: lint
	@TEST_EXAMPLES=all $(PYTEST) -m "long or property"
	@scripts/sanitize $(BIN)/python
	@scripts/other-pythons $(BIN)/python
	@$(BIN)/python -m tests.crashes --only "" --jobs 2
	@$(BIN)/python -m tests.convergence --minutes $(MINUTES)

# The chart on a control plane of Kubernetes. Needs root, etcd (apt-get install etcd-server), and Go for the first time.
test-cluster: style
	@$(BIN)/pytest -m cluster -rs --durations 0 tests/cluster

lint: style types

style: $(VENV)/.dev $(VENV)/.native
	@$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: $(VENV)/.dev $(VENV)/.native
	@$(BIN)/mypy

bench: $(VENV)/.run $(VENV)/.native
	@$(BIN)/python -m benchmarks $(ARGS)

COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q --upgrade

lock: $(VENV)/.dev ## Resolve the dependencies again (needs uv).
	@$(COMPILE) --group build -o requirements-build.lock
	@$(COMPILE) pyproject.toml -o requirements.lock
	@$(COMPILE) pyproject.toml --group dev -o requirements-dev.lock
	@$(COMPILE) pyproject.toml --all-extras -c requirements-dev.lock -o deploy/requirements.lock

vendor: ## Bundle the scripts of the pages again (needs Node).
	@cd metadata_service/ui/vendor && npm ci --no-audit --no-fund && node build.mjs

clean:
	rm -rf $(VENV) idgraph/native/_*.so build *.egg-info .mypy_cache .pytest_cache .ruff_cache
