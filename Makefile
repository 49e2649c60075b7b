# make demo, make test: each sets everything up by itself on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MARK := $(VENV)/.installed

.PHONY: demo test check setup clean

demo: $(MARK)
	$(BIN)/moonfed compare moon fedavg --rounds 15 --seeds 0,1,2 --out runs/demo --resume

test: $(MARK) check
	$(BIN)/python -m pytest -n 2 --dist worksteal

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
