"""``python -m torchbeast`` and what all programs have in common."""

import importlib
import importlib.metadata
import json
import subprocess
import sys

from torchbeast import __main__ as entry


def test_an_unknown_program_is_misuse(assert_misuse):
    assert_misuse(entry.main, ["polybest"], "no program 'polybest': choose from polybeast,")


def test_arguments_reach_the_program(capsys):
    assert entry.main(["polybeast", "--mode=env_info", "--env=PongNoFrameskip-v4"]) == 0
    assert "RIGHTFIRE" in capsys.readouterr().out
    assert entry.main(["polybeast", "--mode=env_info", "--env=Pong", "--json"]) == 0
    (actions,) = json.loads(capsys.readouterr().out).values()
    assert actions[:2] == ["NOOP", "FIRE"]


def test_console_scripts_lead_to_programs():
    scripts = importlib.metadata.distribution("torchbeast-popart").entry_points
    assert {"torchbeast", "polybeast", "polybeast_env", "monobeast"} <= {s.name for s in scripts}
    for script in scripts:
        module, _, function = script.value.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_the_package_is_found_from_any_directory(tmp_path):
    out = subprocess.run(
        [sys.executable, "-c", "import torchbeast, nest, libtorchbeast; print(nest.front((1, 2)))"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert out.stdout == "1\n"
