"""Batches of observations: what is wrong is said of the batch, and not of its shape."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from gymnasium.vector import SyncVectorEnv

from tests.small_envs import Marked, Picture, Spaced
from valuetrack.api.environment import AgentEnvironment
from valuetrack.envs.indoor_escape import IndoorEscape

BOX = Box(-1, 1, (4,), np.float32)
PAIR = Dict({"mark": Discrete(2), "place": Box(-1, 1, (1,), np.float32)})
ROW = Tuple([Box(-1, 1, (2,), np.float32), Discrete(3)])
NESTED = Dict({"a": Tuple([Box(-1, 1, (2,), np.float32), Discrete(3)]), "b": BOX})
EMPTY = "A batch holds at least one observation."


def environment(space):
    return AgentEnvironment(lambda: Spaced(space), {}, "host", 1)


def message(space, observation):
    with pytest.raises(ValueError, match=r"\.$") as raised:
        environment(space).encode(observation)
    text = str(raised.value)
    assert "\n" not in text
    return text


def with_nan(*shape):
    array = np.zeros(shape, np.float32)
    array.flat[-1] = np.nan
    return array


MARKS, PLACES = np.array([0, 1]), np.zeros((2, 1))


@pytest.mark.parametrize(
    ("space", "observation", "telling"),
    [
        (BOX, with_nan(2, 4), "finite numbers of dtype float32, but nan came"),
        (BOX, with_nan(4), "finite numbers of dtype float32, but nan came"),
        (BOX, list(with_nan(2, 4)), "nan came"),
        (BOX, with_nan(2, 4).tolist(), "nan came"),
        (BOX, with_nan(4).tolist(), "nan came"),
        (BOX, (np.zeros(4), with_nan(4)), "nan came"),
        (BOX, np.zeros(3), "the shape (n, 4); what came has the shape (3,)"),
        (BOX, [0.0, 0.0, 0.0], "the shape (n, 4); what came has the shape (3,)"),
        (BOX, np.zeros((2, 3)), "the shape (n, 4); what came has the shape (2, 3)"),
        (BOX, np.zeros((2, 2, 4)), "is 4 numbers, and a batch of n has the shape (n, 4)"),
        (BOX, [[0, 0, 0, 0], [0]], "the shape (4,), but (1,) came"),
        (BOX, ([0, 0, 0, 0], [0]), "a tuple came that is no such array"),
        (BOX, np.array([["a"] * 4] * 2), "numbers of shape (2, 4), but dtype <U1 came"),
        (Discrete(9), np.array([3, 99]), "from 0 to 8, but 99 came"),
        (Discrete(9), [3, 99], "from 0 to 8, but 99 came"),
        (Discrete(9), (3, 99), "from 0 to 8, but 99 came"),
        (Discrete(9), 99, "from 0 to 8, but 99 came"),
        (Discrete(9), np.array([1.0, 2.0]), "integers of shape (2,), but dtype float64 came"),
        (
            PAIR,
            {"mark": np.array([0, 2]), "place": PLACES},
            "['mark'] of the observation should be",
        ),
        (
            PAIR,
            {"mark": MARKS, "place": with_nan(2, 1)},
            "['place'] of the observation should hold",
        ),
        (
            PAIR,
            {"mark": MARKS, "place": np.zeros((3, 1))},
            "the parts of a batch should be equally long, but 'mark' has 2, 'place' has 3.",
        ),
        (PAIR, {"mark": MARKS}, "lacks the key 'place'"),
        (PAIR, {"mark": 2, "place": np.zeros(1)}, "from 0 to 1, but 2 came"),
        (PAIR, ({"mark": 0, "place": [0]}, {"mark": 5, "place": [0]}), "from 0 to 1, but 5 came"),
        (PAIR, np.zeros(3), "should be a dict, but a ndarray came"),
        (PAIR, "left", "should be a dict, but a str came"),
        (ROW, (np.zeros((2, 2)), np.array([0, 3])), "from 0 to 2, but 3 came"),
        (ROW, (np.zeros((2, 2)), np.zeros(3, int)), "equally long, but 0 has 2, 1 has 3"),
        (ROW, ((np.zeros(2), 0), (np.zeros(2), 3), (np.zeros(2), 1)), "from 0 to 2, but 3 came"),
        (NESTED, {"a": (np.zeros((2, 2)), MARKS), "b": with_nan(2, 4)}, "nan came"),
        (NESTED, {"a": (np.zeros((2, 2)), MARKS), "b": np.zeros((1, 4))}, "'a' has 2, 'b' has 1"),
    ],
)
def test_what_is_wrong_with_a_batch(space, observation, telling):
    assert telling in message(space, observation)


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (BOX, []),
        (BOX, ()),
        (BOX, np.zeros((0, 4))),
        (BOX, np.array([])),
        (Discrete(9), np.array([])),
        (Discrete(9), []),
        (PAIR, {"mark": np.zeros(0, int), "place": np.zeros((0, 1))}),
        (PAIR, []),
        (ROW, (np.zeros((0, 2)), np.zeros(0, int))),
    ],
)
def test_a_batch_of_nothing(space, observation):
    assert message(space, observation) == EMPTY


@pytest.mark.parametrize("observation", [[], np.zeros((0, 2)), np.array([])], ids=repr)
def test_a_batch_of_nothing_in_jax(observation):
    escape = IndoorEscape(width=4, height=3, horizon=7)
    with pytest.raises(ValueError, match=EMPTY):
        AgentEnvironment(escape, {}, "auto", 1).encode(observation)


@pytest.mark.parametrize("space", [BOX, Discrete(9), PAIR, ROW, NESTED], ids=repr)
@pytest.mark.parametrize("count", [1, 2, 3])  # 2 is also how many parts there are
def test_the_forms_of_a_batch(space, count):
    here = environment(space)
    space.seed(0)
    singles = [space.sample() for _ in range(count)]
    rows = np.empty(count, object)
    rows[:] = singles
    vector = SyncVectorEnv([lambda: Spaced(space)] * count)
    expected = np.concatenate([here.encode(single)[0] for single in singles])
    for batch in (singles, tuple(singles), rows):
        encoded, single = here.encode(batch)
        np.testing.assert_array_equal(encoded, expected)
        assert not single
    encoded, single = here.encode(vector.reset(seed=0)[0])
    assert (encoded.shape, single) == (expected.shape, False)
    assert here.encode(singles[0])[1]


def test_images_and_dicts_of_lists():
    pictures = AgentEnvironment(Picture, {}, "host", 1)
    assert pictures.encode(np.zeros((2, 6, 6, 1), np.uint8))[0].shape == (2, 6, 6, 1)
    with pytest.raises(ValueError, match="dtype uint8, but float64 came"):
        pictures.encode(np.zeros((2, 6, 6, 1)))
    marked = AgentEnvironment(Marked, {}, "host", 1)
    encoded, single = marked.encode({"mark": [0, 1], "place": [[0.0], [0.5]]})
    assert (encoded.tolist(), single) == ([[1, 0, 0], [0, 1, 0.5]], False)
