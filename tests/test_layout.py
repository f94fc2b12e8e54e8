"""The architecture: who may import whom."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NATIVE = {"nest", "libtorchbeast"}

# package -> packages whose modules it may import, besides itself.
BASE = {"core.types", "runtime"}
ALLOWED = {
    "__main__": set(),
    "nest": set(),
    "libtorchbeast": set(),
    "core.types": set(),
    "runtime": {"core.types"} | NATIVE,
    "cli": BASE,
    "core": BASE,
    "records": BASE | {"cli", "core"},
    "models": BASE | {"core", "records"} | NATIVE,
    "envs": BASE,
    "joining": BASE | {"envs"},
    "evaluate": BASE | {"cli", "core", "records", "models", "envs"},
    "training": BASE | {"cli", "core", "records", "models", "envs", "joining"} | NATIVE,
    "analysis": BASE | {"cli", "core", "records", "models", "envs", "evaluate"},
    "evaluator": BASE | {"cli", "core", "records", "models", "envs", "evaluate", "analysis"},
    "polybeast_env": BASE | {"cli", "envs", "joining"} | NATIVE,
    "polybeast": BASE | {"cli", "core", "envs", "evaluate", "training", "joining"} | NATIVE,
    "polybeast_learner": {"polybeast"},
    "atari_wrappers": {"envs"},
    "monobeast": BASE | {"cli", "evaluate", "training"},
    "saliency": BASE | {"cli", "core", "records", "models", "envs", "evaluate", "analysis"},
}


def package(module):
    parts = module.split(".")
    if parts[0] != "torchbeast":
        return parts[0]
    if parts[1:3] == ["core", "types"]:
        return "core.types"
    return parts[1] if len(parts) > 1 else "torchbeast"


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in {path}"
            for alias in node.names:
                is_module = (ROOT / node.module.replace(".", "/") / f"{alias.name}.py").exists()
                is_package = (ROOT / node.module.replace(".", "/") / alias.name).is_dir()
                yield f"{node.module}.{alias.name}" if is_module or is_package else node.module


SOURCES = sorted(
    p for top in ("torchbeast", "nest", "libtorchbeast") for p in ROOT.glob(f"{top}/**/*.py")
)


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_imports_follow_the_plan(path):
    mine = package(module_name(path))
    if mine == "torchbeast":
        assert not list(imports(path))
        return
    for imported in imports(path):
        if imported.split(".")[0] not in {"torchbeast", *NATIVE}:
            continue
        theirs = package(imported)
        # The package torchbeast itself holds its version only.
        if theirs in (mine, "torchbeast"):
            continue
        assert theirs in ALLOWED[mine], f"{path} imports {imported}"


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_modules_stay_short(path):
    assert len(path.read_text().splitlines()) <= 310


def test_every_package_is_installed():
    config = (ROOT / "pyproject.toml").read_text()
    packages = {module_name(p) for p in SOURCES if p.name == "__init__.py"}
    assert packages == set(
        re.findall(r'^    "((?:nest|libtorchbeast|torchbeast)[.\w]*)",$', config, re.M)
    )


def test_the_rest_works_where_nothing_was_compiled():
    code = (
        "import sys\n"
        "for name in ('nest._C', 'libtorchbeast._C'): sys.modules[name] = None\n"
        "import torchbeast.evaluate, torchbeast.training, torchbeast.training.pipeline\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
