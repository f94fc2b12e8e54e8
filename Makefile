# `make train` and `make test` set up everything they need the first time; later calls start at once.
#
#   make train ARGS="--env six --use_popart"   flags of torchbeast.polybeast

VENV := .venv
PYTHON := $(VENV)/bin/python
ARGS ?=
STAMPS := $(VENV)/.stamps
SOURCES := $(shell find nest libtorchbeast -name '*.cc' -o -name '*.h' -o -name '*.proto')

.PHONY: train test build lint format sanitize bench clean help

help:
	@echo "make train     train an agent (ARGS=\"--env six ...\")"
	@echo "make test      run all tests"
	@echo "make build     build the extension modules"
	@echo "make lint      check style and types"
	@echo "make sanitize  run the C++ tests under thread and address sanitizers"
	@echo "make bench     run all benchmarks"
	@echo "make clean     remove everything that the above made"

train: build
	$(PYTHON) -m torchbeast.polybeast --mode train --preset small $(ARGS)

test: build tests/cpp/build/plain/tests
	$(PYTHON) -m pytest -n auto --maxprocesses 4 --dist loadfile $(ARGS)
	tests/cpp/build/plain/tests --gtest_brief=1

build: $(STAMPS)/build

# System packages: a compiler, gRPC and protobuf with their compilers, GoogleTest.
$(STAMPS)/system: tools/install_system_packages.sh
	sh tools/install_system_packages.sh train
	mkdir -p $(STAMPS)
	touch $@

$(STAMPS)/python: requirements.txt $(STAMPS)/system
	test -x $(PYTHON) || python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

$(STAMPS)/build: $(SOURCES) setup.py $(STAMPS)/python
	$(PYTHON) setup.py --quiet build_ext --inplace
	touch $@

tests/cpp/build/%/tests: $(SOURCES) $(wildcard tests/cpp/*.cc tests/cpp/*.h) tests/cpp/Makefile $(STAMPS)/build
	$(MAKE) --no-print-directory -C tests/cpp KIND=$*

lint: build
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	clang-format --dry-run -Werror $(filter %.cc %.h,$(SOURCES)) tests/cpp/*.cc tests/cpp/*.h
	$(MAKE) --no-print-directory -C tests/cpp annotations

format: build
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .
	clang-format -i $(filter %.cc %.h,$(SOURCES)) tests/cpp/*.cc tests/cpp/*.h

sanitize: tests/cpp/build/thread/tests tests/cpp/build/address/tests
	TSAN_OPTIONS=suppressions=tests/cpp/thread_sanitizer.supp tests/cpp/build/thread/tests --gtest_brief=1
	tests/cpp/build/address/tests --gtest_brief=1

bench: build
	for script in benchmarks/[a-z]*.py; do $(PYTHON) $$script || exit 1; done

clean:
	rm -rf $(VENV) build dist *.egg-info nest/*.so libtorchbeast/*.so tests/cpp/build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
