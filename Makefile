# `make serve` and `make test` need Python 3.11, make and a package registry; they install the rest into .venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
MODEL := models/weights/onnx/all-MiniLM-L6-v2+multilingual-e5-small/vectors/export.json

.PHONY: serve test bench soak laws docs lint lock clean

serve: $(MODEL)
	$(BIN)/brain serve

# Compiled first, since the tests start hundreds of processes. In the order of the files: else those with few
# tests, which are the long ones, come last and one worker waits for the other.
test: $(MODEL)
	$(BIN)/python -m compileall -q models stores service tests
	$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder

bench: $(MODEL)
	$(BIN)/python tests/bench/run.py

# SIGKILL under mixed work, round after round; half an hour. `make soak ROUNDS=20` is a taste of it.
ROUNDS ?= 200
soak: $(VENV)/installed
	$(BIN)/python -m tests.faults.soak --rounds $(ROUNDS)

# Counterexamples to the laws, looked for at random among twenty times as many cases as the suite tries.
LAWS := search_laws ranking late lexical trust words spelling token_codes records history_rules
laws: $(MODEL)
	$(BIN)/python -m pytest -n 2 --hypothesis-profile explore $(LAWS:%=tests/test_%.py)

# The generated parts of docs/, from the registry, the settings, the errors and the command line.
docs: $(VENV)/installed
	$(BIN)/python -m tests.docs.pages

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# torch first and by itself: pip then takes a CPU build where one is at hand, instead of gigabytes of CUDA
# that sentence-transformers would ask for.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

# The embedding model as ONNX, checked against the reference: half the latency, and no torch in the server.
$(MODEL): $(VENV)/installed models/exporting.py models/e5_weights.py models/multilingual.py
	$(BIN)/brain models export
	touch $@

# Pin what is installed now.
lock: $(VENV)/installed
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > constraints.txt

clean:
	rm -rf $(VENV) models/weights/onnx
