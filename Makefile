# make demo, make test: each sets everything up by itself on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MARK := $(VENV)/.installed

# What a CPU without AVX-512 computes: sums in another order, so other last bits.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo test test-avx2 check setup clean

demo: $(MARK)
	$(BIN)/moonfed compare moon fedavg --rounds 15 --seeds 0,1,2 --out runs/demo --resume

# The whole suite comes last: its closing line has the counts.
test: check test-avx2
	$(PYTEST)

test-avx2: $(MARK)
	$(AVX2) $(PYTEST) -m trains

check: $(MARK)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --warnings

setup: $(MARK)

$(MARK): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $(MARK)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache
