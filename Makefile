# The two commands a new user needs are `make demo` and `make test`; each does all the set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test bench lock clean

$(VENV)/.run: requirements.lock pyproject.toml scripts/setup
	@scripts/setup $(PYTHON) $(VENV) requirements.lock && touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml scripts/setup
	@scripts/setup $(PYTHON) $(VENV) requirements-dev.lock && touch $@ $(VENV)/.run

# Only the loops: setup, which builds them too, would ask the network.
$(VENV)/.loops: $(wildcard native/*.[ch] native/*/*.h) native/build.py
	@$(BIN)/python native/build.py && touch $@

demo: $(VENV)/.run $(VENV)/.loops
	@$(BIN)/idgraph demo

test: $(VENV)/.dev $(VENV)/.loops
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/pytest -n 2 --dist loadfile

bench: $(VENV)/.run $(VENV)/.loops
	@$(BIN)/python -m benchmarks $(ARGS)

lock: $(VENV)/.dev ## Resolve the dependencies anew (needs uv).
	@uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml -o requirements.lock -q --upgrade
	@uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml --group dev -o requirements-dev.lock -q --upgrade
	@uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml --all-extras -c requirements-dev.lock -o deploy/requirements.lock -q --upgrade

clean:
	rm -rf $(VENV) idgraph/native/_*.so build *.egg-info .mypy_cache .pytest_cache .ruff_cache
