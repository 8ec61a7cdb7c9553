from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from valuetrack import schedules

EACH = {
    "constant": schedules.constant(0.3),
    "linear": schedules.linear(1.0, 0.1, 10),
    "at once": schedules.linear(1.0, 0.1, 0),
    "polynomial": schedules.polynomial(0.3, 0.6),
    "cyclical": schedules.cyclical(0.3, 7),
}


@pytest.mark.parametrize(
    ("count", "value"), [(0, 1.0), (1, 0.91), (5, 0.55), (9, 0.19), (10, 0.1), (10**6, 0.1)]
)
def test_linear_is_a_line_and_then_stays(count, value):
    assert schedules.linear(1.0, 0.1, 10)(count) == pytest.approx(value, rel=1e-6)


def test_linear_may_rise():
    assert [float(schedules.linear(0, 4, 4)(k)) for k in range(6)] == [0, 1, 2, 3, 4, 4]


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_linear_without_steps_is_at_its_end(count):
    assert schedules.linear(1.0, 0.25, 0)(count) == 0.25


@pytest.mark.parametrize("power", [0.0, 0.5, 0.6, 1.0])
@pytest.mark.parametrize("k", [1, 2, 3, 10, 1000])
def test_polynomial_is_that_of_the_theorem(power, k):
    value = schedules.polynomial(0.3, power)(k - 1)
    assert value == pytest.approx(0.3 / k**power, rel=1e-5)


def test_polynomial_offset_holds_the_step_up():
    schedule = schedules.polynomial(0.2, 0.5, offset=100.0)
    assert schedule(0) == pytest.approx(0.2)
    assert schedule(300) == pytest.approx(0.1)  # (100 / 400) ** 0.5 = 1 / 2


def test_cyclical_restarts():
    schedule = schedules.cyclical(0.4, 4)
    cycle = [0.2 * (np.cos(np.pi * k / 4) + 1) for k in range(4)]
    np.testing.assert_allclose([schedule(k) for k in range(12)], cycle * 3, rtol=1e-6)
    assert cycle[0] == 0.4


def test_cyclical_of_length_one_is_constant():
    assert [float(schedules.cyclical(0.5, 1)(k)) for k in range(3)] == [0.5] * 3


@pytest.mark.parametrize("iterations", [1, 5])
@pytest.mark.parametrize("power", [0.0, 0.9])
def test_inner_decay(iterations, power):
    factors = schedules.inner_decay(iterations, power)
    np.testing.assert_allclose(factors, [1 / k**power for k in range(1, iterations + 1)])


@pytest.mark.parametrize("name", EACH)
def test_traced_counts_give_the_same_values(name):
    schedule = EACH[name]
    counts = jnp.arange(25)
    _, scanned = jax.lax.scan(lambda c, _: (c + 1, schedule(c)), jnp.int32(0), length=25)
    mapped = jax.jit(jax.vmap(lambda c: jnp.asarray(schedule(c)), out_axes=0))(counts)
    expected = [float(schedule(int(count))) for count in counts]
    np.testing.assert_allclose(scanned, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(mapped, expected, rtol=1e-5, atol=1e-7)


def test_as_schedule_takes_numbers_and_schedules():
    assert schedules.as_schedule(0.3)(7) == 0.3
    assert schedules.as_schedule(EACH["linear"]) is EACH["linear"]


def test_as_schedule_takes_those_of_optax():
    theirs = optax.linear_schedule(1.0, 0.1, 10)
    schedule = schedules.as_schedule(theirs)
    np.testing.assert_allclose(
        [schedule(k) for k in range(15)], [EACH["linear"](k) for k in range(15)], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("build", "arguments", "message"),
    [
        (schedules.linear, (1.0, 0.0, -1), "steps >= 0"),
        (schedules.polynomial, (1.0, -0.1), "power >= 0"),
        (schedules.cyclical, (1.0, 0), "cycle_length >= 1"),
        (schedules.inner_decay, (0, 0.9), "at least one inner iteration"),
    ],
)
def test_bad_options(build, arguments, message):
    with pytest.raises(ValueError, match=message):
        build(*arguments)


@pytest.mark.parametrize("offset", [0.0, -1.0])
def test_polynomial_offset_is_positive(offset):
    with pytest.raises(ValueError, match="offset > 0"):
        schedules.polynomial(1.0, 0.5, offset=offset)
