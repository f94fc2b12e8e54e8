from typing import NamedTuple

import pytest

from torchbeast.cli.config import build, describe_changes, flatten


class Wheel(NamedTuple):
    radius: float
    spokes: int | None = None


class Bicycle(NamedTuple):
    name: str
    wheel: Wheel
    sizes: tuple[int, ...] = (1, 2)


VALUES = {"name": "one", "radius": 0.3, "spokes": 36, "sizes": (3,)}


def test_nested_fields_take_their_values_by_name():
    values = {**VALUES, "colour": "of another configuration"}
    assert build(Bicycle, values) == Bicycle("one", Wheel(0.3, 36), (3,))


def test_a_field_without_value_has_its_default():
    assert build(Bicycle, {"name": "one", "radius": 0.3}) == Bicycle("one", Wheel(0.3), (1, 2))


def test_a_field_with_neither_value_nor_default_is_an_error():
    with pytest.raises(TypeError, match="radius"):
        build(Bicycle, {"name": "one"})


def test_flattening_undoes_building():
    assert flatten(build(Bicycle, VALUES)) == VALUES


def test_changes_are_told_as_flags():
    before = build(Bicycle, VALUES)
    after = before._replace(name="two", wheel=Wheel(0.3))
    assert describe_changes(before, after) == ["--name one -> two", "--spokes 36 -> default"]
    assert describe_changes(before, after, ignored=["name"]) == ["--spokes 36 -> default"]
    assert describe_changes(before, before) == []
    after = before._replace(sizes=(2.0, 1.5))
    assert describe_changes(before, after) == ["--sizes 3 -> 2,1.5"]
