"""The replay memory: the ring on the host, and that it shares its files with the device's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from valuetrack.replay import DeviceRing, HostRing, Layout, host_transitions


def make_memory(seeds=2, capacity=5, dtype=np.float32):
    return HostRing(Layout((2,), np.dtype(dtype), actions=3), seeds, capacity)


def transitions(*numbers):
    """Return a transition for each environment that carries its number in every field."""
    n = np.array(numbers)
    return host_transitions(
        observation=np.stack([n, n + 1], axis=1),
        action=n % 3,
        reward=n.astype(float),
        discount=n / 100,
        next_observation=np.stack([n + 1, n + 2], axis=1),
        next_action=(n + 1) % 3,
        next_mask=np.stack([n % 2 == 0, n % 2 == 1, n > 0], axis=1),
    )


def fill(memory, owners, count, first=0):
    """Write this many rows, one environment per owner, numbered on from ``first``."""
    owners = np.array(owners)
    for step in range(count):
        numbers = first + step * len(owners) + np.arange(len(owners))
        memory.write(np.arange(len(owners)), owners, transitions(*numbers))


def assert_whole(drawn):
    """Every field of a row has to come from the same transition."""
    n = np.round(drawn.reward).astype(int)
    expected = transitions(*n.ravel())
    for name in drawn._fields:
        given = getattr(drawn, name)
        wanted = getattr(expected, name).reshape(given.shape)
        np.testing.assert_allclose(given, wanted, rtol=1e-6, err_msg=name)


def test_the_ring_keeps_the_newest():
    memory = make_memory(seeds=1)
    fill(memory, [0], 3)
    np.testing.assert_array_equal(memory.filled, [3])
    fill(memory, [0], 4, first=3)
    np.testing.assert_array_equal(memory.filled, [5])
    np.testing.assert_array_equal(memory.rows.reward[0], [5, 6, 2, 3, 4])


def test_environments_write_to_their_seed_in_order():
    memory = make_memory(capacity=6)
    fill(memory, [0, 0, 1, 1], 2)
    np.testing.assert_array_equal(memory.rows.reward[0], [0, 1, 4, 5, 0, 0])
    np.testing.assert_array_equal(memory.rows.reward[1], [2, 3, 6, 7, 0, 0])


def test_a_slice_writes_what_single_rows_do():
    one, other = make_memory(capacity=6), make_memory(capacity=6)
    for memory in (one, other):
        fill(memory, [0, 1], 2)
    new = transitions(10, 11, 12, 20, 21, 22)  # three of each seed
    assert one.append(new)
    other.write(np.arange(6), np.array([0, 0, 0, 1, 1, 1]), new)
    for ours, theirs in zip(one.rows, other.rows, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(one.written, other.written)
    assert not one.append(new)  # beyond the end
    fill(one, [0], 1)
    assert not one.append(transitions(1, 2))  # the seeds are at different places


def test_environments_that_are_left_out_write_nothing():
    memory = make_memory()
    memory.write(np.array([2]), np.array([0, 0, 1]), transitions(7, 8, 9))
    np.testing.assert_array_equal(memory.filled, [0, 1])
    assert memory.rows.reward[1, 0] == 9
    memory.write(np.array([], int), np.array([0, 0, 1]), transitions(7, 8, 9))
    np.testing.assert_array_equal(memory.written, [0, 1])


def test_what_is_written_is_a_copy():
    memory = make_memory(seeds=1)
    row = transitions(4)
    memory.write(np.array([0]), np.array([0]), row)
    row.observation[:] = 0
    np.testing.assert_array_equal(memory.rows.observation[0, 0], [4, 5])


def test_draws_are_uniform_and_from_the_seeds_own_filled_rows():
    memory = make_memory(seeds=3, capacity=20)
    fill(memory, [0], 7, first=100)
    fill(memory, [1], 33, first=200)
    fill(memory, [2], 1, first=300)
    uniforms = np.random.default_rng(0).random((3, 40, 100), np.float32)
    drawn = memory.draw(uniforms)
    assert drawn.observation.shape == (3, 40, 100, 2)
    assert drawn.next_mask.shape == (3, 40, 100, 3)
    assert_whole(drawn)
    owned = [set(range(100, 107)), set(range(213, 233)), {300}]
    for seed, numbers in enumerate(owned):
        came, counts = np.unique(drawn.reward[seed], return_counts=True)
        assert set(came) == numbers
        if len(numbers) > 1:
            assert stats.chisquare(counts).pvalue > 1e-3


def test_the_largest_uniform_stays_inside():
    memory = make_memory(seeds=1)
    fill(memory, [0], 3)
    edge = np.nextafter(np.float32(1), np.float32(0))
    np.testing.assert_array_equal(memory.draw(np.array([[0, edge]])).reward, [[0, 2]])
    np.testing.assert_array_equal(memory.draw(np.array([[1.0]])).reward, [[2]])


def test_what_is_drawn_does_not_change_later():
    memory = make_memory(seeds=1)
    fill(memory, [0], 5)
    drawn, newest = memory.draw(np.array([[0.0]])), memory.newest(2)
    fill(memory, [0], 5, first=50)
    assert drawn.reward == 0
    np.testing.assert_array_equal(newest.reward, [[3, 4]])


def test_the_newest_in_the_order_of_time():
    memory = make_memory()
    fill(memory, [0, 1], 4)
    fill(memory, [0], 3, first=50)
    newest = memory.newest(4)
    np.testing.assert_array_equal(newest.reward, [[6, 50, 51, 52], [1, 3, 5, 7]])
    assert_whole(newest)


def test_the_newest_of_few_are_real_rows():
    memory = make_memory()
    fill(memory, [0, 1], 2, first=10)
    fill(memory, [0], 1, first=50)
    newest = memory.newest(5)
    assert set(newest.reward[0]) == {10, 12, 50}
    assert set(newest.reward[1]) == {11, 13}
    np.testing.assert_array_equal(newest.reward[:, -2:], [[12, 50], [11, 13]])


def test_arrays_come_back():
    memory, other = make_memory(), make_memory()
    fill(memory, [0, 1, 1], 4)
    saved = {name: array.copy() for name, array in memory.arrays().items()}
    other.restore(saved)
    np.testing.assert_array_equal(other.written, [4, 8])
    fill(memory, [0], 2, first=90)
    fill(other, [0], 2, first=90)
    for name, array in memory.arrays().items():
        np.testing.assert_array_equal(array, other.arrays()[name])
        assert array.dtype == other.arrays()[name].dtype
    assert saved["replay.reward"].max() < 90  # what was read is not written to


def test_only_filled_rows_are_saved():
    memory, other = make_memory(capacity=50), make_memory(capacity=50)
    assert {array.shape[1] for name, array in rings(memory.arrays())} == {0}
    fill(memory, [0, 1, 1], 4)
    saved = {name: array.copy() for name, array in memory.arrays().items()}
    assert {array.shape[1] for name, array in rings(saved)} == {8}
    fill(other, [0, 1], 30, first=500)  # of which nothing stays
    other.restore(saved)
    for ring, wanted in zip(other.rows, memory.rows, strict=True):
        np.testing.assert_array_equal(ring, wanted)


def rings(arrays):
    return [(name, array) for name, array in arrays.items() if name != "replay.written"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replay.written", np.array([3, -1])),
        ("replay.written", np.array([3, 2])),
        ("replay.written", np.array([3, 2**62])),
        ("replay.written", np.array([3.0, 3.0])),
        ("replay.action", np.full((2, 4), 3, np.int32)),
        ("replay.next_action", np.full((2, 4), -1, np.int32)),
        ("replay.reward", np.zeros((2, 3), np.float32)),
    ],
)
def test_what_cannot_be_is_refused(name, value):
    memory, other = make_memory(), make_memory()
    fill(memory, [0, 1], 4)
    saved = memory.arrays()
    other.restore(saved, most=4)
    with pytest.raises(ValueError, match="the saved replay memory"):
        other.restore({**saved, name: value})
    with pytest.raises(ValueError, match="cannot exist"):
        other.restore(saved, most=3)
    np.testing.assert_array_equal(other.written, [4, 4])


def filled(count, **options):
    memory = make_memory(**options)
    fill(memory, range(len(memory.written)), count)
    return memory


@pytest.mark.parametrize(
    "other",
    [filled(6, seeds=1), filled(6, capacity=6), filled(6, dtype=np.uint8)],
    ids=["seeds", "capacity", "dtype"],
)
def test_a_memory_of_another_size_is_refused(other):
    memory = make_memory()
    fill(memory, [0, 1], 3)
    before = {name: array.copy() for name, array in memory.arrays().items()}
    with pytest.raises(ValueError, match="does not fit"):
        memory.restore(other.arrays())
    for name, array in memory.arrays().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_missing_array_is_refused():
    arrays = make_memory().arrays()
    del arrays["replay.next_mask"]
    with pytest.raises(ValueError, match="does not fit"):
        make_memory().restore(arrays)


def test_bytes_stay_bytes():
    memory = make_memory(dtype=np.uint8)
    fill(memory, [0, 1], 2, first=200)
    for part in (memory.rows, memory.draw(np.zeros((2, 3))), memory.newest(1)):
        assert part.observation.dtype == part.next_observation.dtype == np.uint8
        assert part.reward.dtype == part.discount.dtype == np.float32
        assert part.action.dtype == part.next_action.dtype == np.int32
        assert part.next_mask.dtype == bool
    assert_whole(memory.newest(2))


@pytest.mark.parametrize("dtype", [np.float32, np.uint8], ids=str)
def test_what_one_ring_has_saved_the_other_can_read(dtype):
    host = make_memory(capacity=6, dtype=dtype)
    fill(host, [0, 0, 1, 1], 2, first=10)
    device = DeviceRing(host.layout, capacity=6, block=2)
    saved = {name: array.copy() for name, array in host.arrays().items()}
    rings_on_device = device.restore(saved, 2, 2)
    back = device.arrays(rings_on_device, 2)
    assert back.keys() == saved.keys()
    for name, array in saved.items():
        np.testing.assert_array_equal(back[name], array, err_msg=name)
        assert back[name].dtype == array.dtype, name
    with pytest.raises(ValueError, match="the saved replay memory"):
        device.restore(saved, 2, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8], ids=str)
def test_an_empty_ring_on_the_device_comes_back(dtype):
    device = DeviceRing(Layout((2,), np.dtype(dtype), actions=3), capacity=6, block=2)
    empty = device.restore(make_memory(capacity=6, dtype=dtype).arrays(), 2, 0)
    assert empty.numbers.shape == (2, 6, device.layout.width)
    assert not empty.numbers.any()
