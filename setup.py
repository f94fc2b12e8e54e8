"""Builds the two extension modules, ``nest._C`` and ``libtorchbeast._C``.

They need a C++17 compiler, gRPC and protobuf (see MISSING_TOOLS). Everything else, MonoBeast
included, works without them: ``TORCHBEAST_PURE_PYTHON=1 pip install .`` leaves them out.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import nanobind
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent))

from torchbeast.runtime.threads import available_cores

MISSING_TOOLS = (
    "{} not found. PolyBeast needs gRPC's C++ library and compiler plug-in; install, for example,\n"
    "  Debian, Ubuntu:  sudo apt-get install g++ python3-dev pkg-config libgrpc++-dev "
    "libprotobuf-dev protobuf-compiler protobuf-compiler-grpc\n"
    "  Fedora:          sudo dnf install gcc-c++ python3-devel pkgconf-pkg-config grpc-devel "
    "grpc-plugins protobuf-devel protobuf-compiler\n"
    "  macOS:           brew install grpc protobuf pkgconf\n"
    "  conda:           conda install -c conda-forge cxx-compiler pkg-config libgrpc libprotobuf "
    "zlib\n"
    "or leave PolyBeast out with TORCHBEAST_PURE_PYTHON=1."
)
PROTO = Path("libtorchbeast/proto/rpcenv.proto")
CSRC = Path("libtorchbeast/csrc")
OBJECTS = Path("build/objects")
# nanobind's source, included here: an object file has its source's path, and that of nanobind may
# lead out of this directory.
NANOBIND = OBJECTS / "nanobind.cc"
# One wheel for Python 3.12 and later versions; nanobind needs what 3.12 added to the ABI.
STABLE_ABI = sys.version_info >= (3, 12) and not sysconfig.get_config_var("Py_GIL_DISABLED")


def find_tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        sys.exit("error: " + MISSING_TOOLS.format(name))
    return path


def pkg_config(option: str) -> list[str]:
    command = [find_tool("pkg-config"), option, "grpc++", "protobuf"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        missing = MISSING_TOOLS.format("grpc++ (by pkg-config)")
        sys.exit(f"error: {missing}\n{result.stderr.strip()}")
    return shlex.split(result.stdout)


def compile_in_parallel(compiler: Any, total: int) -> None:
    """Makes ``compiler`` compile as many source files at a time as there are cores.

    In a terminal a line that changes says how many of ``total`` are done.
    """
    compile_one_by_one = compiler.compile
    done = 0

    def show() -> None:
        if sys.stderr.isatty():
            end = "\n" if done == total else "\r"
            print(f"Compiled {done} of {total}", end=end, file=sys.stderr, flush=True)

    def compile_all(sources: list[str], *args: Any, **kwargs: Any) -> list[str]:
        nonlocal done
        with ThreadPoolExecutor(available_cores()) as pool:
            objects = [pool.submit(compile_one_by_one, [s], *args, **kwargs) for s in sources]
            for compiled in as_completed(objects):
                if error := compiled.exception():
                    pool.shutdown(cancel_futures=True)  # The rest would only delay the error.
                    raise error
                done += 1
                show()
        return [name for future in objects for name in future.result()]

    compiler.compile = compile_all
    show()


class BuildModules(build_py):
    """Copies the modules, and those only: what an earlier version left would be installed, too."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildExtensions(build_ext):
    """Generates the protocol's sources into ``build_temp`` and compiles nanobind in."""

    def finalize_options(self) -> None:
        super().finalize_options()
        # Not in a temporary directory: the C++ tests link the objects, too (tests/cpp/Makefile).
        self.build_temp = str(OBJECTS)

    def build_extensions(self) -> None:
        nanobind_root = Path(nanobind.include_dir()).parent
        NANOBIND.parent.mkdir(parents=True, exist_ok=True)
        # Written anew: distutils does not know the headers, but so it compiles everything again.
        NANOBIND.write_text(f'#include "{nanobind_root.resolve()}/src/nb_combined.cpp"\n')
        find_tool(self.compiler.compiler_cxx[0])
        for extension in self.extensions:
            if STABLE_ABI:
                extension.define_macros.append(("Py_LIMITED_API", "0x030C0000"))
            # A domain for each module: modules of one domain share exception translators.
            extension.define_macros.append(("NB_DOMAIN", extension.name.split(".")[0]))
            extension.sources.append(str(NANOBIND))
            extension.include_dirs += [
                str(nanobind_root / "include"),
                str(nanobind_root / "ext/robin_map/include"),
                "nest/include",
            ]
            extension.extra_compile_args += [
                "-std=c++17",
                "-O3",
                "-g0",
                "-fvisibility=hidden",
                "-fno-strict-aliasing",
                "-Wall",
                # GCC 12 takes moved-from std::variant members for uninitialised ones.
                "-Wno-maybe-uninitialized",
            ]
            if sys.platform == "linux":
                extension.extra_link_args += ["-Wl,--as-needed", "-Wl,-s"]
            if extension.name == "libtorchbeast._C":
                self.add_grpc(extension)
        compile_in_parallel(self.compiler, sum(len(e.sources) for e in self.extensions))
        super().build_extensions()

    def add_grpc(self, extension: Extension) -> None:
        generated = Path(self.build_temp) / "proto"
        generated.mkdir(parents=True, exist_ok=True)
        plugin = find_tool("grpc_cpp_plugin")
        subprocess.run(
            [
                find_tool("protoc"),
                f"--proto_path={PROTO.parent}",
                f"--cpp_out={generated}",
                f"--grpc_out={generated}",
                f"--plugin=protoc-gen-grpc={plugin}",
                str(PROTO),
            ],
            check=True,
        )
        extension.sources += [
            str(generated / name) for name in ("rpcenv.pb.cc", "rpcenv.grpc.pb.cc")
        ]
        extension.include_dirs += [str(generated), str(CSRC)]
        extension.extra_compile_args += pkg_config("--cflags")
        extension.extra_link_args += pkg_config("--libs")

    def build_extension(self, extension: Extension) -> None:
        # nanobind is in both extensions, compiled with the flags of each.
        temp, self.build_temp = self.build_temp, os.path.join(self.build_temp, extension.name)
        try:
            super().build_extension(extension)
        finally:
            self.build_temp = temp


def extensions() -> list[Extension]:
    if os.environ.get("TORCHBEAST_PURE_PYTHON"):
        return []
    return [
        Extension("nest._C", ["nest/csrc/bindings.cc"], language="c++", py_limited_api=STABLE_ABI),
        Extension(
            "libtorchbeast._C",
            sorted(map(str, CSRC.rglob("*.cc"))),
            language="c++",
            py_limited_api=STABLE_ABI,
        ),
    ]


modules = extensions()
setup(
    ext_modules=modules,
    cmdclass={"build_ext": BuildExtensions, "build_py": BuildModules},
    options={"bdist_wheel": {"py_limited_api": "cp312"}} if STABLE_ABI and modules else {},
)
