import collections
import gc
import sys

import pytest

import nest

Pair = collections.namedtuple("Pair", "first second")
STRUCTURES = [
    1,
    (),
    {"b": 1, "a": (2, [3])},
    Pair(1, {"x": [2]}),
    collections.OrderedDict([("b", 1), ("a", [2])]),
    collections.defaultdict(list, b=1, a=[2]),
    {"": 1, "a\0b": 2, "a\0c": 3},
    ({}, [], ((),)),
]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_map_keeps_container_types_and_pack_as_inverts_flatten(structure):
    result = nest.map(lambda leaf: leaf, structure)
    assert result == structure
    assert type(result) is type(structure)
    assert nest.pack_as(structure, nest.flatten(structure)) == structure


def test_dicts_are_visited_by_sorted_key():
    assert nest.flatten({"z": 1, "a": 2, "m": {"y": 3, "b": 4}}) == [2, 4, 3, 1]


def test_map_many_passes_the_leaves_as_one_list_and_map_many2_one_by_one():
    assert nest.map_many(lambda leaves: leaves, (1, [2]), (3, [4])) == ([1, 3], [[2, 4]])
    assert nest.map_many2(lambda a, b: a - b, {"x": 5}, {"x": 3}) == {"x": 2}


@pytest.mark.parametrize(
    ("other", "place"),
    [
        ((1, {"x": (2,)}), r"\['x'\]: a leaf against a sequence of 1"),
        ((1, {"y": 2}), r"at \[1\]: expected mappings to have same keys but found 'x' vs 'y'"),
        ((1, {}), r"at \[1\]: .*same length"),
        ((1, {"x": 2, "y": 3}), r"at \[1\]: .*same length"),
        ((1,), "same length"),
    ],
)
def test_mismatch_is_a_value_error_that_names_the_place(other, place):
    with pytest.raises(ValueError, match=place):
        nest.map_many2(lambda a, b: a, (1, {"x": 2}), other)


def test_front_is_the_first_leaf():
    assert nest.front(((), [5, 6])) == 5
    with pytest.raises(ValueError, match="without leaves"):
        nest.front(((), {}))


@pytest.mark.parametrize("flat", [[1], [1, 2, 3]])
def test_pack_as_wants_exactly_as_many_leaves(flat):
    with pytest.raises(ValueError, match=r"Too few elements|didn't exhaust sequence"):
        nest.pack_as((0, 0), flat)


def test_endless_structure_is_an_error():
    structure = []
    structure.append(structure)
    with pytest.raises(ValueError, match="nested deeper"):
        nest.flatten(structure)


def test_no_references_leak():
    leaf = object()
    structure = {"a": (leaf, [leaf]), "b": Pair(leaf, leaf)}

    def use():
        nest.map(lambda x: x, structure)
        nest.map_many(lambda x: x[0], structure, structure)
        nest.map_many2(lambda x, y: x, structure, structure)
        nest.pack_as(structure, nest.flatten(structure))
        nest.front(structure)
        with pytest.raises(ValueError, match="don't match"):
            nest.map_many2(lambda x, y: x, structure, (leaf,))

    use()
    gc.collect()
    before = sys.getrefcount(leaf)
    for _ in range(100):
        use()
    gc.collect()
    assert sys.getrefcount(leaf) == before
