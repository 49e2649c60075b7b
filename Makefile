# Every target sets up what it needs by itself on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED_USER := $(VENV)/.installed-user
INSTALLED_DEV := $(VENV)/.installed-dev
PIP := PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
# What a CPU without AVX-512 computes: sums in another order, so other last bits.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2

.PHONY: demo test test-avx2 check coverage setup clean

demo: $(INSTALLED_USER)
	$(BIN)/moonfed compare moon fedavg --rounds 15 --seeds 0,1,2 --out runs/demo --resume

# The whole suite comes last: its closing lines have the coverage and the counts. Commands that tests start as processes
# of their own (some of the command line, all of a federation) do not count towards the coverage.
test: check test-avx2
	$(PYTEST) --cov=moonfed --cov-report= --cov-fail-under=80

test-avx2: $(INSTALLED_DEV)
	$(AVX2) $(PYTEST) -m trains

check: $(INSTALLED_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --warnings

# The lines that no test reaches, by file; make test prints the total alone.
coverage: $(INSTALLED_DEV)
	$(PYTEST) --cov=moonfed --cov-report=term-missing:skip-covered

setup: $(INSTALLED_DEV)

$(INSTALLED_USER): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $(INSTALLED_USER)

$(INSTALLED_DEV): $(INSTALLED_USER)
	$(PIP) -e ".[dev]"
	touch $(INSTALLED_DEV)

clean:
	rm -rf $(VENV) .coverage .pytest_cache .ruff_cache
