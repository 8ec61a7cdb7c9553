from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gym_spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import concatenate, create_empty_array

from valuetrack.envs.gym.spaces import action_count, action_mask, action_offset, encoder
from valuetrack.networks import cnn

PIXELS = np.uint8


def box(*shape: int, dtype=np.float32) -> Box:
    return Box(0, 255 if dtype == PIXELS else 1, shape, dtype)


NESTED = Dict(
    {
        "place": box(2),
        "rest": Tuple([Discrete(3, start=-1), Dict({"camera": box(2, 5, 3, dtype=PIXELS)})]),
    }
)

VECTOR_SPACES = [
    (box(3), 3),
    (box(), 1),
    (box(2, 2, dtype=np.float64), 4),
    (box(5, dtype=PIXELS), 5),
    (box(2, 5, 5, 3, dtype=PIXELS), 150),
    (box(4, 9, 9, 3, dtype=np.bool_), 972),
    (box(2, 3, 4), 24),
    (box(9, 4, 5, dtype=np.bool_), 180),
    (box(9, 3, 9), 243),
    (Discrete(4, start=7), 4),
    (MultiBinary([2, 3]), 6),
    (MultiBinary([2, 3, 3]), 18),
    (MultiDiscrete([[2, 3], [4, 2]]), 11),
    (MultiDiscrete([2, 3], start=[-1, 5]), 5),
    (Tuple([box(2), box(2)]), 4),
    (Tuple([Tuple([box(2), Discrete(2)]), Tuple([Discrete(2), box(1)])]), 7),
    (Tuple([Dict({"a": box(1)}), Dict({"b": box(2)})]), 3),
    (NESTED, 35),
]

IMAGE_SPACES = [
    (box(9, 8, 3, dtype=PIXELS), (9, 8, 3)),
    (box(3, 9, 8, dtype=PIXELS), (9, 8, 3)),
    (box(12, 84, 84, dtype=PIXELS), (84, 84, 12)),
    (box(84, 84, 12, dtype=PIXELS), (84, 84, 12)),
    (box(3, 9, 3, dtype=PIXELS), (3, 9, 3)),
    (box(9, 8, 3), (9, 8, 3)),
    (box(4, 9, 8, dtype=np.float64), (9, 8, 4)),
    (box(5, 5, 1, dtype=np.float16), (5, 5, 1)),
    (box(9, 9, 5), (9, 9, 5)),
    (box(10, 10, 4, dtype=np.bool_), (10, 10, 4)),  # Breakout of MinAtar
    (box(10, 10, 10, dtype=np.bool_), (10, 10, 10)),  # Seaquest of MinAtar
    (box(9, 9, 3, dtype=np.int32), (9, 9, 3)),
    (box(2, 9, 9, dtype=np.int8), (9, 9, 2)),
]


def is_one_sentence(error: pytest.ExceptionInfo[ValueError]) -> bool:
    message = str(error.value)
    return message.endswith(".") and "\n" not in message


@pytest.mark.parametrize(("space", "length"), VECTOR_SPACES, ids=repr)
def test_vectors(space, length):
    inputs = encoder(space)
    array = inputs.encode(space.sample())
    assert (inputs.shape, inputs.dtype, inputs.is_image) == ((length,), np.float32, False)
    assert (array.shape, array.dtype) == ((length,), np.float32)


@pytest.mark.parametrize(("space", "shape"), IMAGE_SPACES, ids=repr)
def test_images(space, shape):
    inputs = encoder(space)
    observation = space.sample()
    array = inputs.encode(observation)
    assert (inputs.shape, inputs.dtype, inputs.is_image) == (shape, space.dtype, True)
    assert (array.shape, array.dtype) == (shape, space.dtype)
    expected = observation if observation.shape == shape else observation.transpose(1, 2, 0)
    np.testing.assert_array_equal(array, expected)
    assert array.flags.c_contiguous


def test_a_multibinary_image_is_booleans():
    space = MultiBinary([4, 10, 10])
    inputs = encoder(space)
    observation = space.sample()
    array = inputs.encode(observation)
    assert (inputs.shape, inputs.dtype, inputs.is_image) == ((10, 10, 4), np.bool_, True)
    assert array.dtype == np.bool_
    np.testing.assert_array_equal(array, observation.transpose(1, 2, 0))


ALL_SPACES = [MultiBinary([10, 10, 4])] + [space for space, _ in VECTOR_SPACES + IMAGE_SPACES]


@pytest.mark.parametrize("layout", ["gymnasium", "tuple", "list", "object"])
@pytest.mark.parametrize("count", [1, 2, 3])  # 2 is also how many parts some of the tuples have
@pytest.mark.parametrize("space", ALL_SPACES, ids=repr)
def test_a_batch_is_its_observations(space, count, layout):
    singles = [space.sample() for _ in range(count)]
    if layout == "gymnasium":
        batch = concatenate(space, singles, create_empty_array(space, count))
    elif layout == "object":
        batch = np.empty(count, object)
        for i, single in enumerate(singles):
            batch[i] = single
    else:
        batch = tuple(singles) if layout == "tuple" else singles
    inputs = encoder(space)
    array = inputs.encode_batch(batch, count)
    assert (array.shape, array.dtype) == ((count, *inputs.shape), inputs.dtype)
    np.testing.assert_array_equal(array, [inputs.encode(single) for single in singles])


@pytest.mark.parametrize(
    ("space", "observation", "expected"),
    [
        (box(2, 2), [[1, 2], [3, 4]], [1, 2, 3, 4]),
        (box(2, dtype=PIXELS), np.array([0, 255], PIXELS), [0, 255]),
        (Discrete(3, start=-1), -1, [1, 0, 0]),
        (Discrete(3, start=-1), np.array(1, np.int8), [0, 0, 1]),
        (Discrete(2, start=127), np.int8(127), [1, 0]),
        (Discrete(2, start=-1), np.uint8(0), [0, 1]),
        (Discrete(201, start=-100), np.int8(100), np.eye(201)[200]),
        (MultiBinary(3), [1, 0, 1], [1, 0, 1]),
        (MultiDiscrete([2, 3], start=[-1, 5]), [0, 7], [0, 1, 0, 0, 1]),
        (Dict({"b": box(1), "a": Discrete(2)}, sort_keys=False), {"a": 1, "b": [9]}, [9, 0, 1]),
        (Tuple([Discrete(2), box(2)]), (0, [3, 4]), [1, 0, 3, 4]),
        (Tuple([box(1, 2, 1, dtype=PIXELS)]), (np.array([[[51], [255]]], PIXELS),), [0.2, 1]),
        (Tuple([box(2, dtype=PIXELS)]), (np.array([51, 255], PIXELS),), [51, 255]),
    ],
    ids=repr,
)
def test_values(space, observation, expected):
    np.testing.assert_array_equal(encoder(space).encode(observation), np.float32(expected))


@pytest.mark.parametrize("space", [box(3), box(9, 9, 3), box(9, 9, 3, dtype=PIXELS)], ids=repr)
def test_the_array_is_not_the_environments(space):
    inputs = encoder(space)
    observation = space.sample()
    assert not np.shares_memory(inputs.encode(observation), observation)
    assert not np.shares_memory(inputs.encode_batch(observation[None], 1), observation)


def test_an_image_goes_through_the_network():
    import jax

    inputs = encoder(box(3, 9, 8, dtype=PIXELS))
    network = cnn(inputs.shape, 2, convolutions=((4, 3, 1),), hidden=(8,))
    params = jax.eval_shape(network.init, jax.random.key(0))
    images = inputs.encode_batch(np.ones((5, 3, 9, 8), PIXELS), 5)
    outputs = jax.eval_shape(network.apply, params, images)
    assert outputs.shape == (5, 2)


@pytest.mark.parametrize(
    ("space", "observation", "said"),
    [
        (box(3), np.zeros(2), r"shape \(3,\), but \(2,\)"),
        (box(3), [[1, 2, 3]], r"shape \(3,\), but \(1, 3\)"),
        (box(3), [1, [2], 3], "list came"),
        (box(3), ["1", "2", "3"], "dtype <U1"),
        (box(3), np.zeros(3, complex), "complex128"),
        (box(3), None, "NoneType came"),
        (box(3), {"a": 1}, "dict came"),
        (box(3), [0, np.nan, 0], "nan came"),
        (box(3), np.float32([0, 0, -np.inf]), "-inf came"),
        (box(3, dtype=np.float64), [0, 1e300, 0], r"float32, but 1e\+300"),
        (box(9, 9, 3), np.full((9, 9, 3), np.nan, np.float32), "nan came"),
        (box(9, 9, 3, dtype=PIXELS), np.zeros((3, 9, 9), PIXELS), r"\(9, 9, 3\), but \(3, 9, 9\)"),
        (box(9, 9, 3, dtype=PIXELS), np.zeros((9, 9, 3)), "uint8, but float64"),
        (box(9, 9, 3, dtype=PIXELS), np.full((9, 9, 3), 256), "0 to 255, but 256"),
        (box(9, 9, 3, dtype=PIXELS), np.full((9, 9, 3), -1), "0 to 255, but -1"),
        (Tuple([box(9, 9, 3, dtype=PIXELS)]), (np.ones((9, 9, 3)),), r"\[0\].*uint8"),
        (box(9, 9, 3, dtype=np.bool_), np.full((9, 9, 3), 2), "zeros and ones, but 2"),
        (box(9, 9, 3, dtype=np.bool_), np.full((9, 9, 3), 0.5), "zeros and ones, but 0.5"),
        (MultiBinary([9, 9, 3]), np.full((9, 9, 3), np.nan), "zeros and ones, but nan"),
        (box(9, 9, 3, dtype=np.int8), np.full((9, 9, 3), 128), "-128 to 127, but 128"),
        (box(9, 9, 3, dtype=np.int32), np.zeros((9, 9, 3)), "int32, but float64"),
        (Discrete(3, start=1), 0, "from 1 to 3, but 0"),
        (Discrete(3, start=1), 4, "from 1 to 3, but 4"),
        (Discrete(3, start=-1), np.uint64(2**64 - 1), "from -1 to 1, but 18446744073709551615"),
        (Discrete(3), 1.0, "integers .* float64"),
        (Discrete(3), [1], r"shape \(\), but \(1,\)"),
        (MultiBinary(2), [0, 2], "zeros and ones, but 2"),
        (MultiBinary(2), [0, np.nan], "zeros and ones, but nan"),
        (MultiDiscrete([2, 3]), [1, 3], "from 0 to 2 in component 1, but 3"),
        (Dict({"a": box(1), "b": box(1)}), {"a": [0]}, "lacks the key 'b'; its keys: 'a'"),
        (Dict({"a": box(1)}), {"a": [0], "c": [0]}, "1 parts, but 2"),
        (Dict({"a": box(1)}), [0], "dict, but a list"),
        (Dict({"a\nb": box(1)}), {"a\nb": [0, 0]}, r"\['a\\nb'\]"),
        (Tuple([box(1)]), ([0], [0]), "1 parts, but 2"),
        (Tuple([box(1)]), {"a": [0]}, "tuple, but a dict"),
        (Dict({"a": Tuple([box(1), box(2)])}), {"a": ([0], [0])}, r"part \['a'\]\[1\] of"),
    ],
)
def test_what_does_not_fit_is_one_sentence(space, observation, said):
    with pytest.raises(ValueError, match=said) as error:
        encoder(space).encode(observation)
    assert is_one_sentence(error)


@pytest.mark.parametrize(
    ("space", "batch", "said"),
    [
        (box(3), np.zeros((3, 3)), r"\(2, 3\), but \(3, 3\)"),
        (box(3), np.zeros(3), r"\(2, 3\), but \(3,\)"),
        (box(3), (np.zeros(3), np.zeros(2)), "tuple came"),
        (box(1), [[0], [np.inf]], "inf came"),
        (Discrete(3), [0, 3], "from 0 to 2, but 3"),
        (Dict({"a": box(1)}), {"a": np.zeros((3, 1))}, r"\['a'\].*\(2, 1\), but \(3, 1\)"),
        (Dict({"a": box(1)}), ({"a": [0]},), "batch of 2.*tuple of length 1"),
        (Dict({"a": box(1)}), 7, "batch of 2.*int came"),
        (Tuple([box(1)]), (([0],), ([0, 0],)), r"\[0\].*\(1,\), but \(2,\)"),
    ],
)
def test_a_batch_that_does_not_fit_is_one_sentence(space, batch, said):
    with pytest.raises(ValueError, match=said) as error:
        encoder(space).encode_batch(batch, 2)
    assert is_one_sentence(error)


@pytest.mark.parametrize(
    "space",
    [
        gym_spaces.Text(3),
        gym_spaces.Graph(box(1), None),
        gym_spaces.Sequence(box(1)),
        gym_spaces.OneOf([box(1), box(2)]),
        Dict({}),
        Tuple([]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("inside", [False, True])
def test_other_spaces_are_refused(space, inside):
    with pytest.raises(ValueError, match=type(space).__name__) as error:
        encoder(Dict({"part": space}) if inside else space)
    assert is_one_sentence(error)
    assert "TransformObservation" in str(error.value)
    assert ("['part']" in str(error.value)) == inside


def test_the_shapes_of_what_comes():
    assert encoder(box(3, 9, 8, dtype=PIXELS)).source == (3, 9, 8)
    assert encoder(MultiDiscrete([[2, 3], [4, 2]])).source == (2, 2)
    rest = {0: (), 1: {"camera": (2, 5, 3)}}
    assert encoder(NESTED).source == {"place": (2,), "rest": rest}
    assert hash(encoder(NESTED)) == hash(encoder(NESTED))


def test_a_vector_environment_of_gymnasium():
    env = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync")
    inputs = encoder(env.single_observation_space)
    observations, _ = env.reset(seed=0)
    np.testing.assert_array_equal(inputs.encode_batch(observations, 3), observations)
    env.close()


@pytest.mark.parametrize(
    ("space", "count", "offset"), [(Discrete(4), 4, 0), (Discrete(2, start=-3), 2, -3)]
)
def test_actions(space, count, offset):
    assert (action_count(space), action_offset(space)) == (count, offset)
    assert type(action_count(space)) is type(action_offset(space)) is int


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (
            Box(-1, 1),
            r"The action space is Box\(1,\), continuous; valuetrack chooses among finitely many "
            r"actions \(Discrete\). Discretise it with a gymnasium.ActionWrapper.",
        ),
        (box(2, dtype=np.int32), "an array of int32"),
        (MultiDiscrete([2, 3]), "several choices at once.*combinations"),
        (MultiBinary(2), "several choices at once.*combinations"),
        (Tuple([Discrete(2)]), "is Tuple"),
    ],
)
@pytest.mark.parametrize("function", [action_count, action_offset])
def test_other_actions_are_refused(space, said, function):
    with pytest.raises(ValueError, match=said) as error:
        function(space)
    assert is_one_sentence(error)


@pytest.mark.parametrize("mask", [[True, False], [1, 0], np.int8([1, 0]), np.uint64([1, 0])])
def test_a_mask_is_booleans(mask):
    legal = action_mask({"action_mask": mask}, 2)
    assert legal.dtype == np.bool_
    assert legal.tolist() == [True, False]


def test_without_a_mask_there_is_none():
    assert action_mask({"other": 1}, 2) is None


def test_only_a_terminal_state_may_allow_nothing():
    nothing = {"action_mask": np.zeros(2, np.int8)}
    assert not action_mask(nothing, 2, terminal=True).any()
    with pytest.raises(ValueError, match="allows no action") as error:
        action_mask(nothing, 2)
    assert is_one_sentence(error)


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ([1, 0, 1], r"shape is \(3,\)"),
        ([[1, 0]], r"shape is \(1, 2\)"),
        (1, r"shape is \(\)"),
        ([1, 2], "other than 0 and 1"),
        ([1, -1], "other than 0 and 1"),
        ([1.0, 0.0], "float64"),
        (["a", "b"], "<U1"),
        ([[1], 0], "list came"),
    ],
)
@pytest.mark.parametrize("terminal", [False, True])
def test_a_wrong_mask_is_one_sentence(mask, said, terminal):
    with pytest.raises(ValueError, match=said) as error:
        action_mask({"action_mask": mask}, 2, terminal=terminal)
    assert is_one_sentence(error)
