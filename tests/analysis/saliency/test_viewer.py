import base64
import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from tests.analysis.saliency.known import PLACES, Patches, make_step
from torchbeast.analysis.saliency import parse_scores
from torchbeast.analysis.saliency.checks import Curves, Faithfulness, GradientCheck, Randomisation
from torchbeast.analysis.saliency.drawing import find_peaks
from torchbeast.analysis.saliency.film import make_film
from torchbeast.analysis.saliency.report import Check
from torchbeast.analysis.saliency.viewer import write_page

HALF = Curves(np.full(33, 0.75), np.full(33, 0.25))
EVEN = Curves(np.full(33, 0.5), np.full(33, 0.5))


def decode(text):
    return base64.b64decode(text, validate=True)


def test_a_page_has_games_maps_and_checks_of_its_agents_and_needs_no_other_file(tmp_path):
    films = []
    # The second agent's actions read the places in another order.
    for name, places in (("</script>first", PLACES), ("second", PLACES[::-1])):
        agent = Patches(places).eval()
        steps = [make_step(agent, agent.bright_frame(k), k) for k in range(3)]
        scores = parse_scores(["action:chosen", "value"], steps[0].subject)
        films.append(make_film(name, steps, scores))
    shuffled = Randomisation({"heads": 0.125, "fc": 0.0}, {"heads": 0.0625, "fc": 0.0})
    curves = {"map": HALF, "gradients": EVEN, "random": EVEN, "edges": EVEN}
    check = Check("action:A0", Faithfulness(curves), shuffled, GradientCheck([], 0.75, 0.25))
    path = tmp_path / "page.html"
    write_page(path, "PongNoFrameskip-v4", films, find_peaks(films), [[check], []])

    page = path.read_text()
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert "</script>first" not in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert [agent["name"] for agent in data["agents"]] == ["</script>first", "second"]
    for agent, film, places in zip(data["agents"], films, (PLACES, PLACES[::-1]), strict=True):
        assert [step["action"] for step in agent["steps"]] == [0, 1, 2]
        maps = agent["maps"]["action:chosen"]
        cells = np.frombuffer(decode(maps["data"]), np.uint8).reshape(3, *maps["shape"])
        for k, (row, column) in enumerate(places):
            cell = np.unravel_index(cells[k].argmax(), cells[k].shape)
            # A cell is centred on its pixel; a patch has six.
            pixel = np.multiply(cell, agent["grid"]["spacing"]) + agent["grid"]["first"]
            assert pixel == pytest.approx((row + 3, column + 3), abs=3)
            with Image.open(io.BytesIO(decode(agent["pictures"][k]))) as picture:
                assert np.array_equal(picture.convert("RGB"), film.steps[k].picture)
    numbers = [0.5, 0.5, 0.125, 0.0625, 0.0, 0.75, 0.25, 0.0]
    assert data["agents"][0]["checks"] == [{"score": "action:A0", "numbers": numbers}]
    assert data["agents"][1]["checks"] == []
