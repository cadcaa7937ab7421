# The project's doors. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= $(wildcard ../shared/data)
RESULTS := results
SEEDS := 21,42,63,1812,9998
SWEEP := $(BIN)/python run.py -m hydra/launcher=joblib progress=false seed=$(SEEDS)
GRID := activation.q=1.25,1.5,1.75 activation.r=1.25,1.5,1.75

.DEFAULT_GOAL := help
.PHONY: help setup demo test airline tables accuracy lint format clean

help:  ## list what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12
	@echo "DATA=FOLDER names the data sets' folder (default: ../shared/data where it is there, else the public hubs)."

setup: $(VENV)/installed  ## a virtual environment with the pinned packages

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info < (3, 14); sys.exit(0 if ok else "Python 3.11 to 3.13 is needed, this is " + sys.version.split()[0] + "; name another: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[experiments,development]'
	touch $@

demo: setup  ## four activations on scikit-learn's digits, five seeds each: a table and a figure, in about two minutes
	$(SWEEP) experiment=digits activation=softmax,sparsemax,entmax,sharmix_learned
	$(BIN)/python -m reporting.summary --experiment digits --outputs outputs

test: setup  ## all tests
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

airline: setup  ## all 115 runs behind Tables 1 and 3, their records, and the tables; finished runs are not repeated
	$(SWEEP) experiment=airline $(if $(DATA),paths.data=$(DATA)) activation=softmax,sparsemax,entmax,entmax_learned,alpha_relu
	$(SWEEP) experiment=airline $(if $(DATA),paths.data=$(DATA)) activation=sharmix_fixed,sharmix_learned $(GRID)
	$(BIN)/python -m reporting.records --experiment airline --outputs outputs --results $(RESULTS)
	$(MAKE) tables

tables: setup  ## Tables 1 and 3 from the committed records alone; ALLOW=--allow-missing-seeds or --allow-mixed-code relaxes them
	$(BIN)/python -m reporting.tables --results $(RESULTS) $(ALLOW)

accuracy: setup  ## worst errors against 50-digit arithmetic, and beside the entmax package
	$(BIN)/python -m tests.accuracy

lint: setup  ## ruff, and mypy on sharmix/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the virtual environment and what tools cached; outputs stay
	rm -rf $(VENV) *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
