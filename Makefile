# One word per chore. Everything runs in .venv, which is made from requirements.lock and made anew only when that changes.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=

# Tests run in up to four processes; WORKERS=0 runs them in this one (for a debugger).
WORKERS ?= auto

.DEFAULT_GOAL := help
.PHONY: help setup serve test test-vllm report-vllm report-llama test-xgrammar compiled test-compiled wheels check fix docs bench bench-pure lock

help:             ## what the words are
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## ?/  make \1\t/' | expand -t 24

setup: $(STAMP)   ## make .venv as the lock file says

# The lock pins every file by its hash; the package itself comes last, built with the pinned hatchling, not a fetched one.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=..."; false; }
	@echo "installing into $(VENV): a minute or two, the first time"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q --require-hashes --no-deps -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e .
	touch $@

serve: $(STAMP)   ## the server on the embedded engine and its small default model (ARGS="--port 8001")
	$(BIN)/unbraid serve $(ARGS)

test: $(STAMP)    ## the test-suite (ARGS="-k gate" or '-k "gate or docs"', HYPOTHESIS_PROFILE=more, WORKERS=0)
	$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist worksteal $(ARGS)

# The same package with its hot modules compiled (a C compiler is needed, and about a minute) in an environment of its own, which sees
# the other's for all else.
COMPILED := .venv-compiled
PURELIB  := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
CORE     := $(addprefix tests/test_,formats.py fork.py memo.py keep_special_tokens.py start_state.py projections.py text_mode.py schema.py serialize.py \
            diagnostics.py nothing_lost.py orphan_call.py repetition.py call_ids.py search.py)

compiled: $(STAMP) ## the package compiled by mypyc, in .venv-compiled
	@echo "compiling into $(COMPILED): a minute or two"
	test -x $(COMPILED)/bin/python || $(BIN)/python -m venv --without-pip $(COMPILED)
	rm -rf $(COMPILED)/wheels
	UNBRAID_COMPILE=1 $(BIN)/python -m hatchling build -t wheel -d $(COMPILED)/wheels
	$(BIN)/python -m pip --python $(COMPILED)/bin/python install --disable-pip-version-check -q --no-deps --force-reinstall $(COMPILED)/wheels/*.whl
	$(BIN)/python $(PURELIB) > $$($(COMPILED)/bin/python $(PURELIB))/the-other.pth
	$(COMPILED)/bin/unbraid --version

test-compiled: compiled ## the core's tests on the compiled package
	$(COMPILED)/bin/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist worksteal $(CORE) $(ARGS)

# What a release uploads: where the compiled wheel fits, pip takes it; everywhere else the pure one.
wheels: $(STAMP)  ## sdist, pure wheel and compiled wheel, in dist
	rm -rf dist
	$(BIN)/python -m hatchling build -t sdist -t wheel -d dist
	UNBRAID_COMPILE=1 $(BIN)/python -m hatchling build -t wheel -d dist
	ls -l dist

# vLLM for CPU lives in an environment of its own (2.5 GB); without it the tests that need it are skipped.
VLLM_VENV  := .venv-vllm
VLLM_MODEL := $(VLLM_VENV)/tiny-model
VLLM_STAMP := $(VLLM_VENV)/.installed

test-vllm: $(STAMP) $(VLLM_STAMP)  ## a real vLLM on CPU behind the gateway; makes its environment (2.5 GB, minutes)
	UNBRAID_VLLM_PYTHON=$(VLLM_VENV)/bin/python UNBRAID_VLLM_MODEL=$(VLLM_MODEL) \
	    $(BIN)/python -m pytest -n 0 tests/test_engine_vllm_real.py $(ARGS)

REPORTS := build/reports

report-vllm: $(STAMP) $(VLLM_STAMP)  ## unbraid check on a real vLLM with its own parsers, for docs/reports (ARGS="qwen3 glm47")
	mkdir -p $(REPORTS)
	UNBRAID_VLLM_PYTHON=$(abspath $(VLLM_VENV)/bin/python) $(BIN)/python tests/report_vllm.py $(REPORTS)/vllm $(ARGS)

report-llama: $(STAMP)  ## the same on llama.cpp's own server
	mkdir -p $(REPORTS)
	$(BIN)/python tests/report_llama.py $(REPORTS)/llama-cpp

$(VLLM_STAMP): tests/real_vllm/install.py tests/real_vllm/model.py
	test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python tests/real_vllm/install.py $(VLLM_MODEL)
	touch $@

# torch, xgrammar and transformers likewise; the environment sees .venv for all else.
XGRAMMAR_VENV  := .venv-xgrammar
XGRAMMAR_STAMP := $(XGRAMMAR_VENV)/.installed
XGRAMMAR_TESTS := $(addprefix tests/test_,matchers.py builtin_tags.py transformers.py closed_loop.py)

test-xgrammar: $(STAMP) $(XGRAMMAR_STAMP)  ## grammars on xgrammar too, and the logits processor (2 GB; ARGS="-k qwen3")
	$(XGRAMMAR_VENV)/bin/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist worksteal $(XGRAMMAR_TESTS) $(ARGS)

$(XGRAMMAR_STAMP): $(STAMP)
	test -x $(XGRAMMAR_VENV)/bin/python || $(BIN)/python -m venv --without-pip $(XGRAMMAR_VENV)
	{ $(BIN)/python $(PURELIB); echo "$(CURDIR)/src"; } > $$($(XGRAMMAR_VENV)/bin/python $(PURELIB))/the-other.pth
	$(BIN)/python -m pip --python $(XGRAMMAR_VENV)/bin/python install --disable-pip-version-check -q \
	    torch==2.13.0 xgrammar==0.2.9 "transformers>=5,<6"
	touch $@

check: $(STAMP)   ## lint, format and types, changing nothing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

fix: $(STAMP)     ## lint and format, changing what can be changed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(STAMP)    ## make the pages about formats anew, and run the examples of the documentation
	$(BIN)/python -m unbraid.docs
	$(BIN)/python -m pytest -q tests/test_docs.py tests/test_readme.py $(ARGS)

# Of the core that pip takes from a release wherever a wheel of it fits.
bench: compiled   ## the benchmarks, of the compiled core (ARGS="--help")
	$(COMPILED)/bin/python -m benchmarks $(ARGS)

bench-pure: $(STAMP) ## the same of the pure one, which runs everywhere
	$(BIN)/python -m benchmarks $(ARGS)

# uv is needed for this one only (`pip install uv` somewhere); a line that names an index never gets into the lock.
lock:             ## write requirements.lock anew from pyproject.toml (UPGRADE=1 for the newest versions)
	uv pip compile pyproject.toml --extra local --extra server --extra check --extra test --extra dev --universal --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) -q -o requirements.lock
