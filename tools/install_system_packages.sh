#!/bin/sh
# Installs the system packages that a make target needs and the system lacks.
#
#   install_system_packages.sh train    compiler, Python headers and venv, gRPC and protobuf
#   install_system_packages.sh test     the same and GoogleTest
#   install_system_packages.sh lint     those of fuzz and clang-format
#   install_system_packages.sh fuzz     those of train, GoogleTest, clang and libFuzzer
#
# Asks for root only if a package is missing. Knows apt, dnf and Homebrew. PYTHON3 is the Python to build
# for, by default python3.
set -eu

target=${1:-train}
python=${PYTHON3:-python3}

have() { command -v "$1" >/dev/null 2>&1; }

if [ "$python" != python3 ] && ! have "$python"; then
    echo "error: there is no $python" >&2
    exit 1
fi
# Debian's name of it.
version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])' 2>/dev/null || echo python3)

have_headers() {
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null
}

have_libfuzzer() {
    echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
        clang++ -fsanitize=fuzzer,address,undefined -x c++ - -o /dev/null
}

# require NAME APT DNF BREW COMMAND...: adds a line to $missing if COMMAND fails.
require() {
    name=$1 apt=$2 dnf=$3 brew=$4
    shift 4
    "$@" >/dev/null 2>&1 || missing="$missing$name|$apt|$dnf|$brew
"
}

find_missing() {
    missing=
    require "a C++ compiler" g++ gcc-c++ gcc have g++
    require "Python.h" "$version-dev" python3-devel python have_headers
    require "Python's venv" "$version-venv" python3-pip python "$python" -c 'import venv, ensurepip'
    require "pkg-config" pkg-config pkgconf-pkg-config pkgconf have pkg-config
    require "protoc" protobuf-compiler protobuf-compiler protobuf have protoc
    require "grpc_cpp_plugin" protobuf-compiler-grpc grpc-plugins grpc have grpc_cpp_plugin
    require "protobuf for C++" libprotobuf-dev protobuf-devel protobuf pkg-config --exists protobuf
    require "gRPC for C++" libgrpc++-dev grpc-devel grpc pkg-config --exists grpc++
    if [ "$target" != train ]; then
        require "GoogleTest" libgtest-dev gtest-devel googletest pkg-config --exists gtest
    fi
    if [ "$target" = lint ] || [ "$target" = fuzz ]; then
        require "clang" clang clang llvm have clang++
        require "libFuzzer" libclang-rt-dev compiler-rt llvm have_libfuzzer
    fi
    if [ "$target" = lint ]; then
        require "clang-format" clang-format clang-tools-extra clang-format have clang-format
    fi
}

# packages FIELD: the packages that are missing, from that column of $missing.
packages() { printf '%s' "$missing" | cut -d '|' -f "$1" | sort -u | tr '\n' ' ' | sed 's/ $//'; }

names() { printf '%s' "$missing" | cut -d '|' -f 1 | paste -s -d ',' - | sed 's/,/, /g'; }

find_missing
[ -n "$missing" ] || exit 0

root=
[ "$(id -u)" -eq 0 ] || root=sudo
may_install() { have "$1" && { [ -z "$root" ] || have sudo; }; }
announce() { echo "Installing system packages: $(names)" >&2; }

if may_install apt-get; then
    announce
    apt="$root env DEBIAN_FRONTEND=noninteractive apt-get"  # sudo drops what is exported.
    # shellcheck disable=SC2046  # One word per package.
    # Where one source cannot be reached, the lists of the others will do.
    { $apt update -qq; $apt install -y -qq --no-install-recommends $(packages 2); } >/dev/null || true
elif may_install dnf; then
    announce
    # shellcheck disable=SC2046
    $root dnf install -y -q $(packages 3) || true
elif have brew; then
    announce
    # shellcheck disable=SC2046
    brew install --quiet $(packages 4) || true
fi

find_missing
[ -n "$missing" ] || exit 0
if have apt-get; then
    way="As root: apt-get install $(packages 2)"
elif have dnf; then
    way="As root: dnf install $(packages 3)"
else
    way="Their names with Homebrew: $(packages 4)"
fi
echo "error: missing: $(names). $way" >&2
echo "Without root: docs/quickstart.md, section Without root or a compiler" >&2
exit 1
