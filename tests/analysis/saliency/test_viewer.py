"""The page in a real browser, from a file, without a network."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from tests.analysis.saliency import browser
from tests.analysis.saliency.known import Patches, make_step
from torchbeast.analysis.saliency import parse_scores
from torchbeast.analysis.saliency.checks import Curves, Faithfulness, Randomisation
from torchbeast.analysis.saliency.drawing import find_peaks, make_film
from torchbeast.analysis.saliency.report import Check
from torchbeast.analysis.saliency.viewer import write_page

PLACES = [(10, 10), (10, 66), (60, 40)]
HALF = Curves(np.full(33, 0.75), np.full(33, 0.25))
EVEN = Curves(np.full(33, 0.5), np.full(33, 0.5))


@pytest.fixture(scope="module")
def films():
    """Two agents whose action k reads patch k, the second in another order of places."""
    films = []
    for name, places in (("</script>first", PLACES), ("second", PLACES[::-1])):
        agent = Patches(places).eval()
        steps = [make_step(agent, agent.bright_frame(k), k) for k in range(3)]
        scores = parse_scores(["action:A0", "action:chosen", "value"], steps[0].subject)
        films.append(make_film(name, steps, scores))
    return films


@pytest.fixture(scope="module")
def page(films, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "new" / "page.html"
    shuffled = Randomisation({"heads": 0.125, "fc": 0.0}, {"heads": 0.0625, "fc": 0.0})
    check = Check("action:A0", Faithfulness(HALF, EVEN, EVEN), shuffled, [])
    write_page(path, "PongNoFrameskip-v4", films, find_peaks(films), [[check], []])
    return path


@pytest.fixture(scope="module")
def window(page):
    if not browser.is_installed():
        pytest.skip("needs chromium and chromium-driver")
    with browser.start_browser() as opened:
        opened.open(page)
        opened.wait("data.agents.every((a) => a.pictures.every((p) => p.complete))")
        yield opened
        assert opened.errors() == []


@pytest.fixture
def fresh(window):
    window.run("(layers.forEach((l, i) => { l.shown = i < 2; }), choose(0), go(0), true)")
    return window


def text(window, selector):
    return window.run(f"document.querySelector('{selector}').textContent")


def brightest(window):
    """Row and column, as shares of the canvas, of the most colourful pixel."""
    source = window.run("document.getElementById('game').toDataURL().split(',')[1]")
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(source))).convert("RGB"), int)
    colour = picture.max(axis=-1) - picture.min(axis=-1)
    row, column = np.unravel_index(colour.argmax(), colour.shape)
    return row / colour.shape[0], column / colour.shape[1], colour.max()


def test_the_page_needs_nothing_but_itself(page):
    content = page.read_text()
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", content)
    assert "</script>first" not in content


def test_it_shows_the_game_the_agent_and_the_first_step(fresh):
    assert text(fresh, "#title") == "</script>first plays PongNoFrameskip-v4"
    assert text(fresh, "#where") == "step 0, A0"
    assert fresh.run("document.querySelectorAll('#policy > div').length") == 3
    assert fresh.run("document.querySelector('.played span').textContent") == "A0"


def test_a_layer_lies_on_the_place_that_the_action_reads(fresh):
    row, column, colour = brightest(fresh)
    assert colour > 60
    assert row == pytest.approx(13 / 84, abs=3 / 84)
    assert column == pytest.approx(13 / 84, abs=3 / 84)


def test_keys_switch_steps_layers_and_agents(fresh):
    fresh.press("right")
    assert text(fresh, "#where").endswith("A1")
    row, column, _ = brightest(fresh)  # Of the chosen action.
    assert (row, column) == pytest.approx((13 / 84, 69 / 84), abs=3 / 84)
    fresh.press("2")
    fresh.press("1")
    assert brightest(fresh)[2] == 0
    fresh.press("1")
    fresh.press("end")
    assert text(fresh, "#where").endswith("A2")
    fresh.press("home")
    fresh.press("a")
    assert text(fresh, "#title").startswith("second")
    row, column, _ = brightest(fresh)
    assert (row, column) == pytest.approx((63 / 84, 43 / 84), abs=3 / 84)
    fresh.press("left")
    assert text(fresh, "#where").endswith("A0")


def test_layers_have_a_box_an_opacity_and_a_scale(fresh, films):
    shown = brightest(fresh)[2]
    fresh.click("#layers input[type=checkbox]:nth-of-type(1)")
    fresh.run("(layers[1].opacity = 0.2, draw(), true)")
    assert 0 < brightest(fresh)[2] < shown
    fresh.run("(layers[1].opacity = 0.8, true)")
    peak = find_peaks(films)["action:A0", "SARFA"]
    assert text(fresh, "#layers .scale").startswith(f"0 to {peak:.3}")


def test_checks_are_shown_of_the_agent_that_has_them(fresh):
    cells = fresh.run("[...document.querySelectorAll('#checks td')].map((c) => c.textContent)")
    assert cells == ["action:A0", "0.50", "0.50", "0.13", "0.06", "0.00", "-", "-"]
    fresh.press("a")
    assert text(fresh, "#checks") == ""


def test_playing_goes_on_by_itself_until_it_is_stopped(fresh):
    fresh.click("#play")
    fresh.wait("state.index === 2")
    fresh.click("#play")
    assert fresh.run("state.playing === null")


def test_a_screenshot_has_colours(fresh):
    picture = np.asarray(Image.open(io.BytesIO(fresh.screenshot())).convert("RGB"), int)
    assert (picture.max(axis=-1) - picture.min(axis=-1)).max() > 100
