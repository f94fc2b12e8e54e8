#!/bin/sh
# Installs what the extension modules and their tests need and the system lacks.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }

complete() {
    have g++ && have clang-format && have protoc && have grpc_cpp_plugin && have pkg-config \
        && pkg-config --exists grpc++ protobuf gtest && python3 -c 'import venv, ensurepip' 2>/dev/null
}

complete && exit 0

root=
[ "$(id -u)" -eq 0 ] || root=sudo
if [ -n "$root" ] && ! have sudo && have apt-get; then
    echo "error: please install as root: apt-get install g++ clang-format pkg-config libgrpc++-dev protobuf-compiler-grpc libgtest-dev python3-venv" >&2
    exit 1
fi

if have apt-get; then
    export DEBIAN_FRONTEND=noninteractive
    $root apt-get update -qq
    $root apt-get install -y -qq --no-install-recommends g++ clang-format pkg-config \
        libgrpc++-dev protobuf-compiler-grpc protobuf-compiler libgtest-dev python3-venv >/dev/null
elif have brew; then
    brew install grpc protobuf pkg-config googletest clang-format
else
    echo "error: please install a C++17 compiler, clang-format, pkg-config, gRPC for C++ with its protoc plug-in, and GoogleTest" >&2
    exit 1
fi

complete || {
    echo "error: some packages are still missing: g++, clang-format, protoc, grpc_cpp_plugin, pkg-config with grpc++, protobuf and gtest, or python3's venv" >&2
    exit 1
}
