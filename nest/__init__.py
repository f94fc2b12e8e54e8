"""Nested structures: tuples, lists, dicts and namedtuples whose leaves are anything else.

Leaves are visited depth first, sequences by index and dicts by sorted key (keys are strings).
Results have the container types of the first structure; other subclasses of list and tuple than
namedtuples come back as list and tuple. A plain dict comes back in sorted order,
an ``OrderedDict`` in its own order. Structures that should match and do not raise a ``ValueError``
that names the place.

>>> import nest
>>> nest.map(lambda leaf: leaf + 1, {"b": (1, 2), "a": [3]})
{'a': [4], 'b': (2, 3)}
>>> nest.map_many(sum, (1, {"x": 2}), (10, {"x": 20}), (100, {"x": 200}))
(111, {'x': 222})
>>> nest.map_many2(lambda first, second: first * second, (2, 3), (4, 5))
(8, 15)
>>> nest.flatten({"b": (1, 2), "a": [3]})
[3, 1, 2]
>>> nest.pack_as({"b": (0, 0), "a": [0]}, [3, 1, 2])
{'a': [3], 'b': (1, 2)}
>>> nest.front({"b": (1, 2), "a": [3]})
3
>>> nest.map_many2(max, (1, {"x": 2}), (1, {"y": 2}))
Traceback (most recent call last):
ValueError: nests don't match at [1]: expected mappings to have same keys but found 'x' vs 'y'
"""

from nest._C import flatten, front, map, map_many, map_many2, pack_as

__all__ = ["flatten", "front", "map", "map_many", "map_many2", "pack_as"]
