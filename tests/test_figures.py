"""Stored figures, films and notebooks show the agents and data that are shipped."""

import importlib
import json
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tools import figures, soak
from tools.figure_table import FIGURES, Figure
from tools.figures import (
    RECORDS,
    find_inputs,
    find_problems,
    main,
    read_records,
    reproduce,
    store,
)

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("models/*/README.md")]
STORED = {path for figure in FIGURES for path in figure.outputs}


def shown_files(page):
    """The pictures that a page shows, and the films and web pages to which it links."""
    text = page.read_text()
    links = re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", text)
    links += re.findall(r"\]\(([^)\s]+\.(?:gif|mp4|html))\)", text)
    files = [link for link in links if not re.match(r"[a-z]+:", link)]
    return {(page.parent / file).resolve().relative_to(ROOT.resolve()).as_posix() for file in files}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_no_figure_is_older_than_what_it_shows(figure):
    problems = find_problems(figure, read_records(ROOT).get(figure.name), ROOT)
    assert not problems, f"make figures ARGS={figure.name} makes it anew"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_everything_that_a_page_shows_has_an_entry(page):
    assert shown_files(page) <= STORED


def test_everything_that_is_stored_has_an_entry():
    patterns = (
        *("docs/images/*", "docs/examples/*", "movies/*", "notebooks/*.ipynb"),
        *("models/*/curve.png", "models/*/frame.png"),
    )
    stored = [path for pattern in patterns for path in ROOT.glob(pattern)]
    stored += [path.parent / "README.md" for path in ROOT.glob("models/*/evaluation.json")]
    assert {path.relative_to(ROOT).as_posix() for path in stored} == STORED


def test_the_readme_shows_pictures_and_a_page():
    assert {"movies/Pong_saliency.gif", "docs/examples/carnival.html"} <= shown_files(
        ROOT / "README.md"
    )


@pytest.mark.parametrize("figure", [f for f in FIGURES if f.page], ids=lambda figure: figure.name)
def test_the_page_prints_the_commands(figure):
    lines = [line.strip() for line in (ROOT / figure.page).read_text().splitlines()]
    for command in figure.commands:
        assert command in lines


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_the_agents_of_the_commands_are_inputs(figure):
    inputs = find_inputs(figure, ROOT)
    for agent in (path.name for path in ROOT.glob("models/*") if path.is_dir()):
        if any(
            re.search(rf"(=|/|,|--xpid ){agent}(?![\w-])", command) for command in figure.commands
        ):
            assert any(name.startswith(f"models/{agent}/") for name in inputs), agent


@pytest.mark.parametrize(
    "command", [c for f in FIGURES for c in f.commands if " -m " in c], ids=lambda c: c[10:60]
)
def test_the_programs_accept_the_commands(command):
    _, _, module, *arguments = shlex.split(command)
    if module == "torchbeast.analysis.analyze_resnet":
        module = "torchbeast.analysis.filter_flags"
    importlib.import_module(module).make_parser().parse_args(arguments)


# A small checkout of one figure. `cat` sees only what is listed as an input.
SMALL = Figure(
    "small",
    "page.md",
    ("cp models/a/model.tar made.txt", "ls models/a"),
    ("models/a/*.tar",),
    {"stored/small.txt": "made.txt"},
)


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    (root / "models" / "a").mkdir(parents=True)
    (root / "tools").mkdir()
    (root / "models" / "a" / "model.tar").write_text("weights")
    (root / "models" / "a" / "notes.txt").write_text("not an input")
    reproduce(SMALL, root, tmp_path / "work")
    return root


def problems(checkout, figure=SMALL):
    return find_problems(figure, read_records(checkout).get("small"), checkout)


def test_commands_see_only_the_inputs(checkout):
    assert (checkout / "stored" / "small.txt").read_text() == "weights"
    assert [p.name for p in (checkout.parent / "work" / "models" / "a").iterdir()] == ["model.tar"]
    assert problems(checkout) == []


def test_a_figure_older_than_its_agent_is_found(checkout):
    (checkout / "models" / "a" / "model.tar").write_text("trained for longer")
    assert problems(checkout) == ["stored/small.txt: older than models/a/model.tar"]


def test_a_new_checkpoint_is_found(checkout):
    (checkout / "models" / "a" / "other.tar").write_text("weights")
    assert problems(checkout) == ["stored/small.txt: older than models/a/other.tar"]


def test_a_changed_command_is_found(checkout):
    changed = SMALL._replace(commands=(*SMALL.commands, "true"))
    assert problems(checkout, changed) == ["stored/small.txt: the commands have changed since"]


def test_a_file_that_was_changed_or_removed_is_found(checkout):
    (checkout / "stored" / "small.txt").write_text("edited")
    assert problems(checkout) == ["stored/small.txt is not the file that make figures wrote"]
    (checkout / "stored" / "small.txt").unlink()
    assert problems(checkout) == ["stored/small.txt does not exist"]


def test_a_figure_without_a_record_is_found(checkout):
    (checkout / RECORDS).unlink()
    assert problems(checkout) == ["make figures has not made small yet"]


def test_a_command_that_fails_leaves_figure_and_record(checkout):
    before = json.loads((checkout / RECORDS).read_text())
    (checkout / "models" / "a" / "model.tar").write_text("trained for longer")
    failing = SMALL._replace(commands=(*SMALL.commands, "false"))
    with pytest.raises(subprocess.CalledProcessError):
        reproduce(failing, checkout, checkout.parent / "again")
    assert (checkout / "stored" / "small.txt").read_text() == "weights"
    assert json.loads((checkout / RECORDS).read_text()) == before


def test_a_figure_that_fails_is_named_and_the_others_are_made(checkout, monkeypatch, capfd):
    failing = SMALL._replace(name="failing", commands=("false",))
    removed = SMALL._replace(name="removed", inputs=("models/b/*.tar",))
    monkeypatch.setattr(figures, "ROOT", checkout)
    monkeypatch.setattr(figures, "FIGURES", (failing, removed, SMALL))
    (checkout / "models" / "a" / "model.tar").write_text("trained for longer")
    assert main(["--stale"]) == 1
    assert problems(checkout) == []
    err = capfd.readouterr().err
    assert "removed: no file matches models/b/*.tar" in err
    assert "failed: failing, removed" in err


def test_only_stale_figures_are_made(checkout, monkeypatch, capfd):
    monkeypatch.setattr(figures, "ROOT", checkout)
    monkeypatch.setattr(figures, "FIGURES", (SMALL,))
    assert main(["--stale"]) == 0
    assert capfd.readouterr().out == ""
    assert main(["small"]) == 0
    assert "$ cp models/a/model.tar made.txt" in capfd.readouterr().out


def test_only_the_figures_of_a_page_are_made(checkout, monkeypatch, capfd):
    other = SMALL._replace(name="other", page="other.md", commands=("false",))
    monkeypatch.setattr(figures, "ROOT", checkout)
    monkeypatch.setattr(figures, "FIGURES", (SMALL, other))
    assert main(["--page", "page.md"]) == 0
    assert main(["--page", "other.md"]) == 1
    with pytest.raises(SystemExit):
        main(["--page", "missing.md"])
    assert "invalid choice: 'missing.md'" in capfd.readouterr().err


def test_an_input_that_was_removed_is_found(checkout):
    (checkout / "models" / "a" / "model.tar").unlink()
    assert problems(checkout) == ["small: no file matches models/a/*.tar"]


def test_pictures_are_stored_small_and_look_the_same(tmp_path):
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[16:48, 16:48] = [255, 127, 14]
    picture[:, :, 2] += np.arange(64, dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / "made.png")
    store(tmp_path / "made.png", tmp_path / "stored.png")
    stored = Image.open(tmp_path / "stored.png")
    assert stored.mode == "P"
    assert np.abs(np.asarray(stored.convert("RGB")).astype(int) - picture).max() <= 4


def test_pictures_of_many_colours_keep_them(tmp_path):
    picture = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(picture).save(tmp_path / "made.png")
    store(tmp_path / "made.png", tmp_path / "stored.png")
    assert (np.asarray(Image.open(tmp_path / "stored.png")) == picture).all()


def test_a_picture_that_looks_the_same_stays_as_it_is(tmp_path):
    picture = np.zeros((8, 8, 3), np.uint8)
    Image.fromarray(picture).save(tmp_path / "stored.png", compress_level=0)
    before = (tmp_path / "stored.png").read_bytes()
    Image.fromarray(picture).save(tmp_path / "made.png")
    store(tmp_path / "made.png", tmp_path / "stored.png")
    assert (tmp_path / "stored.png").read_bytes() == before
    picture[3, 3] = 255
    Image.fromarray(picture).save(tmp_path / "made.png")
    store(tmp_path / "made.png", tmp_path / "stored.png")
    assert (
        np.asarray(Image.open(tmp_path / "stored.png").convert("RGB"))[3, 3].tolist() == [255] * 3
    )


def test_a_film_that_looks_the_same_stays_as_it_is(tmp_path):
    def save(name, last, **options):
        pictures = [Image.fromarray(np.full((8, 8, 3), x, np.uint8)) for x in (0, 100, last)]
        pictures[0].save(
            tmp_path / name, save_all=True, append_images=pictures[1:], duration=60, **options
        )

    save("stored.gif", 200, comment=b"an earlier one")
    before = (tmp_path / "stored.gif").read_bytes()
    save("made.gif", 200)
    store(tmp_path / "made.gif", tmp_path / "stored.gif")
    assert (tmp_path / "stored.gif").read_bytes() == before
    save("made.gif", 220)
    store(tmp_path / "made.gif", tmp_path / "stored.gif")
    assert (tmp_path / "stored.gif").read_bytes() == (tmp_path / "made.gif").read_bytes()


def test_a_damaged_film_is_replaced(tmp_path):
    made, stored = tmp_path / "made.gif", tmp_path / "stored.gif"
    pictures = [Image.fromarray(np.full((8, 8, 3), x, np.uint8)) for x in (0, 100)]
    pictures[0].save(made, save_all=True, append_images=pictures[1:], duration=60)
    contents = made.read_bytes()
    for size in range(0, len(contents), 7):
        stored.write_bytes(contents[:size])
        store(made, stored)
        assert stored.read_bytes() == contents


def test_unknown_names_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["similarity", "similarities"])
    assert "no figure is called similarities; there are soak," in capsys.readouterr().err


def test_samples_of_a_soak_run_are_kept(tmp_path):
    samples = [
        soak.Sample(5.04, 700.26, 400.0, 51, 112, 1234),
        soak.Sample(10, 701, 401, 52, 112, 9),
    ]
    soak.write_samples(samples, tmp_path / "soak.csv")
    first, second = soak.read_samples(tmp_path / "soak.csv")
    assert first == soak.Sample(5.0, 700.3, 400.0, 51, 112, 1234)
    assert second == samples[1]


WITH_TABLE = SMALL._replace(
    tables={"scores": "table.md"}, commands=(*SMALL.commands, "cp made.txt table.md")
)
PAGE = """# Page

<!-- table scores -->
<!-- end -->

The rest.
"""


@pytest.fixture
def page(checkout, tmp_path):
    page = checkout / "page.md"
    page.write_text(PAGE)
    reproduce(WITH_TABLE, checkout, tmp_path / "table")
    return page


def test_a_table_is_put_into_its_page_and_nothing_else_changes(checkout, page, tmp_path):
    text = "# Page\n\n<!-- table scores -->\n\nweights\n\n<!-- end -->\n\nThe rest.\n"
    assert page.read_text() == text
    assert problems(checkout, WITH_TABLE) == []
    reproduce(WITH_TABLE, checkout, tmp_path / "again")
    assert page.read_text() == text


def test_a_table_that_was_edited_or_is_old_is_found(checkout, page):
    page.write_text(page.read_text().replace("The rest.", "Another text."))
    assert problems(checkout, WITH_TABLE) == []
    page.write_text(page.read_text().replace("weights", "better weights"))
    assert problems(checkout, WITH_TABLE) == [
        "the table scores of page.md is not what make figures wrote"
    ]
    (checkout / "models" / "a" / "model.tar").write_text("trained for longer")
    assert (
        "stored/small.txt and the table scores of page.md: older than models/a/model.tar"
        in problems(checkout, WITH_TABLE)
    )


def test_a_page_without_a_place_for_the_table_is_found(checkout, page):
    page.write_text("# Page\n")
    assert problems(checkout, WITH_TABLE) == ["the page has 0 places for a table scores, not one"]
