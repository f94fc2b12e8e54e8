# `make train` and `make test` set up everything they need the first time; later calls start at once.
#
#   make train ARGS="--env six --use_popart"   flags of torchbeast.polybeast

VENV := .venv
PYTHON := $(VENV)/bin/python
ARGS ?=
STAMPS := $(VENV)/.stamps
# One more than there are cores: some tests wait.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
SOURCES := $(shell find nest libtorchbeast -name '*.cc' -o -name '*.h' -o -name '*.proto')

.PHONY: train test build lint format sanitize soak bench wheel fresh clean help

help:
	@echo "make train     train an agent (ARGS=\"--env six ...\")"
	@echo "make test      run all tests"
	@echo "make build     build the extension modules and install the package into .venv"
	@echo "make lint      check style and types"
	@echo "make sanitize  run the C++ tests under thread and address sanitizers"
	@echo "make soak      train while servers are killed and environments fail (ARGS=\"--minutes 120\")"
	@echo "make bench     run all benchmarks"
	@echo "make wheel     build a wheel that needs no compiler, into dist/ (WITH=python3.13)"
	@echo "make fresh     try train and test on bare Debian 12 and 13 (needs root)"
	@echo "make clean     remove everything that the above made"

train: build
	$(PYTHON) -m torchbeast.polybeast --mode train --preset small $(ARGS)

test: build $(STAMPS)/python-test tests/cpp/build/plain/tests
	$(PYTHON) -m pytest -n $(WORKERS) --maxprocesses 4 --dist worksteal $(ARGS)
	tests/cpp/build/plain/tests --gtest_brief=1

build: $(STAMPS)/build

# Else make removes what stands between a target and its sources, and looks for packages each time.
.SECONDARY:

# The packages of the system that a target needs: train, test or lint.
$(STAMPS)/system-%: tools/install_system_packages.sh
	sh tools/install_system_packages.sh $*
	mkdir -p $(STAMPS)
	touch $@

PIP := $(PYTHON) -m pip --quiet --disable-pip-version-check

$(STAMPS)/python-train: requirements.txt $(STAMPS)/system-train
	test -x $(PYTHON) || python3 -m venv $(VENV)
	$(PIP) install -r requirements.txt
	touch $@

$(STAMPS)/python-test: tests/requirements.txt $(STAMPS)/python-train
	$(PIP) install -r tests/requirements.txt
	touch $@

# Editable: the checkout is what any program and any directory imports.
$(STAMPS)/build: $(SOURCES) setup.py pyproject.toml $(STAMPS)/python-train
	$(PIP) install --no-build-isolation --no-deps --editable .
	touch $@

tests/cpp/build/%/tests: $(SOURCES) $(wildcard tests/cpp/*.cc tests/cpp/*.h) tests/cpp/Makefile $(STAMPS)/system-test
	$(MAKE) --silent --no-print-directory -C tests/cpp KIND=$*

lint: build $(STAMPS)/python-test $(STAMPS)/system-lint
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	clang-format --dry-run -Werror $(filter %.cc %.h,$(SOURCES)) tests/cpp/*.cc tests/cpp/*.h
	$(MAKE) --silent --no-print-directory -C tests/cpp annotations

format: build $(STAMPS)/python-test $(STAMPS)/system-lint
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .
	clang-format -i $(filter %.cc %.h,$(SOURCES)) tests/cpp/*.cc tests/cpp/*.h

sanitize: tests/cpp/build/thread/tests tests/cpp/build/address/tests
	TSAN_OPTIONS=suppressions=tests/cpp/thread_sanitizer.supp tests/cpp/build/thread/tests --gtest_brief=1
	tests/cpp/build/address/tests --gtest_brief=1

soak: build $(STAMPS)/python-test
	$(PYTHON) tools/soak.py $(ARGS)

bench: build $(STAMPS)/python-test
	for script in benchmarks/[a-z]*.py; do $(PYTHON) $$script || exit 1; done

WITH ?= $(PYTHON)

wheel: build
	$(PYTHON) tools/build_wheel.py --python $(WITH)

fresh:
	sh tools/try_fresh.sh bookworm trixie

clean:
	rm -rf $(VENV) build dist *.egg-info nest/*.so libtorchbeast/*.so tests/cpp/build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
