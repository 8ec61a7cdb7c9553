# `make run` and `make test` do all their own set-up: a virtual environment in .venv, then the job.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# What is tested is more than what is run: Stable-Baselines3 and its zoo bring PyTorch along.
TESTED := $(VENV)/.installed-with-sb3
DOCUMENTED := $(VENV)/.installed-with-docs
TORCH  := torch==2.13.0
# Without its dependencies, which are installed before: it would replace Gymnasium by an older one
# (it wants gymnasium<1.4), and works with the newest.
GYMNAX := gymnax>=1.0.1,<2

.DEFAULT_GOAL := help
.PHONY: help run watch check test lint pytest bench docs notebooks clean

help:  ## List what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml src/valuetrack/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "valuetrack needs Python 3.11 or later; set PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# PyTorch first and by its version, so that nothing else chooses one.
$(TESTED): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs,onnx,zoo]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check flax seaborn six
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps '$(GYMNAX)'
	@touch $@

$(DOCUMENTED): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

run: $(STAMP)  ## Train on the indoor escape, print the tables beside the paper's, write the report
	$(BIN)/valuetrack reproduce indoor-escape --quick --out runs/indoor-escape-quick

# The paper's settings, which learn before one's eyes, with intervals for the value now and then.
watch: $(STAMP)  ## Train on the indoor escape for a minute with a live page of its values
	rm -rf runs/watch
	$(BIN)/valuetrack train --watch --out runs/watch --env valuetrack/IndoorEscape-v0 --algo lktd \
		--seeds 2 --steps 200000 --track-intervals-every 2000 --set hidden=[32,32] \
		--set activation=relu --set init=normal --set init_sd=0.1 --set discount=0.9 \
		--set steps_per_update=10 --set learning_starts=1000 --set batch_size=100 \
		--set replay_capacity=10000 --set exploration_initial=1.0 --set exploration_final=0.01 \
		--set exploration_steps=50000 --set form=sarsa --set gradient=semi --set latent=restart \
		--set step_size=1e-5 --set pseudo_population=10000 --set observation_sd=0.1 \
		--set prior_sd=0.5 --set prior_narrow_sd=0.05 --set prior_wide_weight=0.5 \
		--set likelihood_weight=2.0 --set inner_iterations=5 --set alpha=0.9

check: $(STAMP)  ## Compare every sampler with its exact law on a linear-Gaussian model
	$(BIN)/valuetrack check --out runs/check

test: lint pytest  ## Lint, type-check and test

lint: $(TESTED)  ## ruff and mypy alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

pytest: $(TESTED)  ## The tests alone
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

bench: $(STAMP)  ## Measure speed and memory, beside other libraries; on a quiet machine
	@for question in peers images seeds updates growth throughput startup intervals optimisations; do \
		echo "== benchmarks/$$question.py"; \
		$(BIN)/python benchmarks/$$question.py --out results/benchmarks || exit 1; \
	done

# The variable silences an announcement of MkDocs' next version, which is not for readers.
docs: $(DOCUMENTED)  ## Build the documentation into site/; any warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "site/index.html; with search: $(BIN)/python -m http.server --directory site"

notebooks: $(DOCUMENTED)  ## Run the notebooks of the documentation and write their outputs
	$(BIN)/python website/run_notebooks.py

clean:  ## Remove the virtual environment and all caches
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache
