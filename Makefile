# `make train` and `make test` set up everything they need the first time; later calls start at once.
#
#   make train ARGS="--env six --use_popart"   flags of torchbeast.polybeast

VENV := .venv
PYTHON := $(VENV)/bin/python
# The Python that creates .venv: make train PYTHON3=python3.12
PYTHON3 ?= python3
ARGS ?=
# The version of the Python in .venv, or of the one that will create it. Another version needs a new set-up.
VERSION := $(shell { $(PYTHON) -V || $(PYTHON3) -V; } 2>/dev/null | cut -d . -f 1,2 | tr -cd 0-9.)
STAMPS := $(VENV)/.stamps-$(VERSION)
CPP_BUILDS := $(addprefix tests/cpp/build/,plain thread address)
SOURCES := $(shell find nest libtorchbeast -name '*.cc' -o -name '*.h' -o -name '*.proto')

# One target at a time: two package managers would disturb each other. The C++ tests are still compiled in
# parallel.
.NOTPARALLEL:

.PHONY: train test test-cluster build lint docs docs-serve figures format sanitize fuzz models wheel fresh clean distclean help

help:
	@echo "make train     train an agent (ARGS=\"--env six ...\")"
	@echo "make test      run all tests"
	@echo "make test-cluster  test environment servers on a Ray cluster (six minutes)"
	@echo "make build     build the extension modules and install the package into .venv"
	@echo "make lint      check style, types and who imports whom"
	@echo "make format    mend the style that lint checks"
	@echo "make docs      build the documentation as a site, into build/docs"
	@echo "make docs-serve  the same, as a server on this machine"
	@echo "make figures   make the figures and films of the pages whose inputs changed"
	@echo "make sanitize  run the C++ tests under thread and address sanitizers"
	@echo "make fuzz      feed the learner's end of the protocol damaged messages (RUNS=1000000)"
	@echo "make models    train the agents of models/models.toml, one after the other (ARGS=\"Pong\")"
	@echo "make wheel     build a wheel that needs no compiler, into dist/ (WITH=python3.13)"
	@echo "make fresh     try train and test on bare Debian 12 and 13 (needs root)"
	@echo "make clean     remove what was built; make distclean removes .venv, too"

train: build
	$(PYTHON) -m torchbeast.polybeast --mode train --preset small $(ARGS)

# Four processes even on two cores, because many tests wait.
test: build $(STAMPS)/python-test tests/cpp/build/plain/tests
	$(PYTHON) -m pytest -n 4 --dist worksteal $(ARGS)

# The cluster runs on this machine. Ray takes 360 MB, so make test leaves these tests out.
test-cluster: build $(STAMPS)/python-test $(STAMPS)/python-ray
	$(PYTHON) -m pytest -m cluster tests/servers $(ARGS)

# An upgrade of the system may have replaced a library that the extension modules need, and the
# checkout may have been moved.
build: $(STAMPS)/build
	@[ -d build/objects ] && $(CHECK_BUILD) 2>/dev/null || { \
	    rm -rf nest/*.so libtorchbeast/*.so $(CPP_BUILDS) && $(COMPILE) && $(REGISTER) && $(CHECK_BUILD); \
	}

# Without this make deletes intermediate files, and looks for packages each time.
.SECONDARY:

# The packages of the system that a target needs: train, test, lint or fuzz.
$(STAMPS)/system-%: tools/install_system_packages.sh
	@$(PYTHON) -c '$(CHECK_VERSION)' 2>/dev/null || ! command -v $(PYTHON3) >/dev/null || $(PYTHON3) -c '$(CHECK_VERSION)'
	@PYTHON3="$$([ -x $(PYTHON) ] && echo $(PYTHON) || echo $(PYTHON3))" sh tools/install_system_packages.sh $*
	@[ -d $(STAMPS) ] || rm -rf $(CPP_BUILDS)
	@mkdir -p $(STAMPS)
	@touch $@

# In a terminal pip shows what it downloads.
QUIET := $(shell [ -t 2 ] || echo --quiet)
PIP := $(PYTHON) -m pip $(QUIET) --disable-pip-version-check
# Python compiles a module when it is first imported; pip would compile all of torch, which takes a minute.
INSTALL := $(PIP) install --no-compile
# If this is set, each process compiles the modules of torch anew, which takes seconds.
unexport PYTHONDONTWRITEBYTECODE
# Without a GPU the CPU build of torch saves gigabytes. An index that the user has configured is kept.
CPU_TORCH := https://download.pytorch.org/whl/cpu
TORCH_INDEX = { [ "$$(uname -s)" != Linux ] || command -v nvidia-smi || [ -e /dev/nvidiactl ] || \
    [ -e /dev/dxg ] || [ -e /dev/kfd ] || $(PYTHON) -m pip config list | grep index-url; \
    } >/dev/null 2>&1 || { index="--extra-index-url $(CPU_TORCH)"; size="200 MB, without CUDA"; }
# Shows progress; pip would compile silently.
COMPILE := echo "Compiling PolyBeast's C++ part: one to ten minutes" >&2 && \
    $(PYTHON) setup.py --quiet build_ext --inplace
# Editable: programs import the checkout, from any directory.
REGISTER := TORCHBEAST_PURE_PYTHON=1 $(PYTHON) -m pip --quiet --disable-pip-version-check install \
    --no-compile --no-build-isolation --no-deps --editable .
CHECK_BUILD := (cd / && "$(abspath $(PYTHON))" -c 'import nest, os, sys, libtorchbeast; place = os.path.dirname(nest.__file__); \
    sys.exit(None if os.path.samefile(place, "$(CURDIR)/nest") else "error: another nest is in the way, in " + place)')
CHECK_VERSION := import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v < (3, 15) else "error: Python \
    3.10 to 3.14 is needed; %s is %d.%d. Name another one: make train PYTHON3=python3.12" % (sys.executable, *v))

$(STAMPS)/python-train: requirements.txt $(STAMPS)/system-train
	@{ $(PYTHON) -c '$(CHECK_VERSION)' && { $(PYTHON) -m pip --version || $(PYTHON) -m ensurepip; }; } >/dev/null 2>&1 || { \
	    $(PYTHON3) -c '$(CHECK_VERSION)' && echo "Making a Python environment in $(VENV)" >&2 && \
	    $(PYTHON3) -m venv --clear $(VENV) && mkdir -p $(STAMPS); \
	}
	@size="200 MB to 6 GB"; $(TORCH_INDEX); \
	    echo "Installing Python packages: torch is a download of $$size" >&2; \
	    $(INSTALL) $$index -r requirements.txt
	@touch $@

$(STAMPS)/python-test: tests/requirements.txt $(STAMPS)/python-train
	@echo "Installing what the tests need" >&2
	@$(INSTALL) -r tests/requirements.txt
	@touch $@

$(STAMPS)/python-ray: pyproject.toml $(STAMPS)/build
	@TORCHBEAST_PURE_PYTHON=1 $(INSTALL) --no-build-isolation --editable '.[ray]'
	@touch $@

$(STAMPS)/python-docs: docs/requirements.txt $(STAMPS)/python-train
	@$(INSTALL) -r docs/requirements.txt
	@touch $@

$(STAMPS)/compiled: $(SOURCES) setup.py | $(STAMPS)/python-train
	@$(COMPILE)
	@touch $@

$(STAMPS)/build: pyproject.toml $(STAMPS)/python-train $(STAMPS)/compiled
	@$(REGISTER)
	@touch $@

CPP_TESTS := $(wildcard tests/cpp/*.cc tests/cpp/*.h)
FUZZERS := $(wildcard tests/cpp/fuzz/*.cc)

tests/cpp/build/%/tests: $(SOURCES) $(CPP_TESTS) tests/cpp/Makefile $(STAMPS)/system-test
	@echo "Compiling the tests of the C++ part" >&2
	@$(MAKE) --silent --no-print-directory -C tests/cpp KIND=$*

# These link the objects of the extension module.
tests/cpp/build/plain/tests: $(STAMPS)/compiled

lint: $(STAMPS)/python-test $(STAMPS)/system-lint
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports --no-cache --no-logo
	clang-format --dry-run -Werror $(filter %.cc %.h,$(SOURCES)) $(CPP_TESTS) $(FUZZERS)
	$(MAKE) --silent --no-print-directory -C tests/cpp annotations

format: $(STAMPS)/python-test $(STAMPS)/system-lint
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .
	clang-format -i $(filter %.cc %.h,$(SOURCES)) $(CPP_TESTS) $(FUZZERS)

# The variable silences an advertisement of the theme. mkdocs.yml turns warnings into errors.
docs: $(STAMPS)/python-docs
	$(PYTHON) tools/flag_reference.py
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build

docs-serve: $(STAMPS)/python-docs
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs serve

include docs/figures.mk

# All films together take an hour on two cores.
figures: build $(FIGURES)

sanitize: tests/cpp/build/thread/tests tests/cpp/build/address/tests
	TSAN_OPTIONS=suppressions=tests/cpp/thread_sanitizer.supp tests/cpp/build/thread/tests --gtest_brief=1
	tests/cpp/build/address/tests --gtest_brief=1

RUNS ?= 1000000
FUZZ_BUILD := tests/cpp/build/fuzz

fuzz: $(STAMPS)/system-fuzz
	@mkdir -p $(FUZZ_BUILD)/corpus
	$(MAKE) --silent --no-print-directory -C tests/cpp KIND=fuzz build/fuzz/reply_fuzzer
	$(FUZZ_BUILD)/reply_fuzzer -runs=$(RUNS) -max_len=4096 -timeout=10 -rss_limit_mb=2048 \
	    -artifact_prefix=$(FUZZ_BUILD)/ $(FUZZ_BUILD)/corpus

# Ctrl-C stops and saves; the same command resumes.
models: build
	$(PYTHON) tools/train_models.py $(ARGS)

WITH ?= $(PYTHON)

wheel: $(STAMPS)/python-train
	$(PYTHON) tools/build_wheel.py --python $(WITH)

fresh:
	sh tools/try_fresh.sh bookworm trixie

clean:
	rm -rf build dist *.egg-info nest/*.so libtorchbeast/*.so tests/cpp/build .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
