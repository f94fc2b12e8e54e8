import numpy as np
import pytest

from torchbeast.serving.messages import MAX_KEY_BYTES, Reply, Request, WireError
from torchbeast.serving.observations import ObservationEncoder, decode_actions, encode_spec


def stack(*planes):
    return np.stack([np.full((2, 3), plane, np.uint8) for plane in planes])


def encode(encoder, observation, *, episode_start=False):
    reply = Reply()
    encoder.append(0, encoder.check(observation), reply, episode_start=episode_start)
    (leaf,) = reply.leaves
    return len(leaf.data) // 6, leaf.newest_only


def test_a_moved_stack_is_sent_by_its_newest_plane():
    encoder = ObservationEncoder(1, newest_plane=True)
    assert encode(encoder, stack(1, 1, 1), episode_start=True) == (3, b"")
    assert encode(encoder, stack(1, 1, 2)) == (1, b"\1")
    assert encode(encoder, stack(9, 9, 9), episode_start=True) == (3, b"")
    assert encode(encoder, stack(9, 9, 4)) == (1, b"\1")


def test_pictures_that_move_otherwise_are_no_stack():
    encoder = ObservationEncoder(1, newest_plane=True)
    encode(encoder, stack(1, 2, 3), episode_start=True)
    assert encode(encoder, stack(7, 8, 9)) == (3, b"")
    assert encode(encoder, stack(8, 9, 1)) == (3, b"")


def test_a_client_that_cannot_rebuild_stacks_gets_them_whole():
    encoder = ObservationEncoder(1, newest_plane=False)
    encode(encoder, stack(1, 1, 1), episode_start=True)
    assert encode(encoder, stack(1, 1, 2)) == (3, b"")


def test_the_structure_is_that_of_the_nest():
    spec = encode_spec({"b": np.zeros((2, 3), np.float32), "a": (True, 4)})
    assert list(spec.mapping.keys) == ["a", "b"]
    first, second = spec.mapping.items[0].sequence.items
    assert (first.array.dtype, second.array.dtype) == (1, 6)
    assert list(spec.mapping.items[1].array.shape) == [2, 3]


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ({"a": 1, "c": 2}, "a, b against a, c"),
        (1, "a mapping of 2 against a leaf"),
        ({"a": 1, "b": "text"}, r"its observation\['b'\] is str"),
        ({"a": 1.0, "b": 2}, r"its observation\['a'\] is float64\[\], the first one was int64\[\]"),
    ],
)
def test_observations_unlike_the_first_are_refused(observation, message):
    encoder = ObservationEncoder(1, newest_plane=True)
    encoder.check({"a": 1, "b": 2})
    with pytest.raises(WireError, match=message):
        encoder.check(observation)


@pytest.mark.parametrize("number", [float("nan"), float("-inf")])
def test_observations_that_are_not_finite_are_refused(number):
    encoder = ObservationEncoder(1, newest_plane=True)
    observation = {"a": np.zeros(2, np.uint8), "b": np.array([1.0, number])}
    for _ in range(2):  # The first one, and one of a structure that is known.
        with pytest.raises(WireError, match=r"^its observation\['b'\] is not finite$"):
            encoder.check(observation)
        encoder.check({**observation, "b": np.ones(2)})


def test_long_keys_are_refused():
    half = MAX_KEY_BYTES // 2
    ObservationEncoder(1, newest_plane=True).check(({"é" * (half // 2): 1}, {"b" * half: 2}))
    with pytest.raises(WireError, match="keys have more than 65536 bytes"):
        ObservationEncoder(1, newest_plane=True).check(({"é" * (half // 2): 1}, {"bb" * half: 2}))


def make_request(dtype, shape, actions):
    request = Request(actions=actions)
    request.action_spec.dtype = dtype
    request.action_spec.shape.extend(shape)
    return request


def test_single_integers_are_ints_and_other_actions_arrays():
    request = make_request(5, [1], np.array([3, -4], np.int32).tobytes())
    assert decode_actions(request, 2) == [3, -4]
    request = make_request(9, [2], np.array([0.5, 1.5], np.float32).tobytes())
    assert decode_actions(request, 1)[0].tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("dtype", "shape", "actions"),
    [(5, [1], b"123"), (0, [1], b"1"), (2, [-1], b""), (2, [1] * 7, b"1"), (2, [2**40] * 3, b"")],
)
def test_actions_that_do_not_fit_are_refused(dtype, shape, actions):
    with pytest.raises(WireError):
        decode_actions(make_request(dtype, shape, actions), 1)
