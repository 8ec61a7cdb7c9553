"""One battery that every sampler passes, whatever it samples."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers.support import x64
from tests.samplers.zoo import (
    FACTORIES,
    KEY,
    ON_NESTED,
    ON_NETWORK,
    STEP,
    STOCHASTIC,
    Factory,
    every_sampler,
    every_stochastic,
    nested_data,
    nested_params,
    network_params,
    on_network,
    one_of_each,
    optimiser,
    transitions,
)
from valuetrack import samplers, schedules
from valuetrack.measurement import Measurement
from valuetrack.samplers import Info, Sampler


def leaves_of(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(a: Any, b: Any) -> list[bool]:
    return [np.array_equal(x, y) for x, y in zip(leaves_of(a), leaves_of(b), strict=True)]


@every_sampler
def test_signature(factory: Factory) -> None:
    sampler = factory(ON_NETWORK)
    assert isinstance(sampler, Sampler)
    assert list(inspect.signature(sampler.init).parameters) == ["params"]
    assert list(inspect.signature(sampler.step).parameters) == ["key", "state", "data"]


@every_sampler
def test_step_returns_a_new_state_and_leaves_the_old_one(factory: Factory) -> None:
    sampler = on_network(factory)
    state = sampler.init(network_params())
    assert isinstance(state, tuple)
    assert {"params", "updates"} <= set(state._fields)
    assert all(same(state.params, network_params()))
    before = jax.tree.map(np.array, state)

    new, info = sampler.step(KEY, state, transitions())
    assert all(same(before, state)), "the state that came in was changed"
    assert type(new) is type(state)
    assert jax.tree.structure(new) == jax.tree.structure(state)
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype), (state, new))
    assert shapes[0] == shapes[1]
    assert not any(same(new.params, state.params)), "a leaf of the parameters did not move"
    assert (int(state.updates), int(new.updates)) == (0, 1)

    assert isinstance(info, Info)
    assert [leaf.shape for leaf in jax.tree.leaves(info)] == [(), (), ()]
    assert info.finite.dtype == bool
    assert info.finite
    h = ON_NETWORK.predict(state.params, transitions())
    error = np.mean((transitions().reward - h) ** 2)
    np.testing.assert_allclose(info.mean_squared_residual, error, rtol=1e-5)


def test_info_has_one_structure() -> None:
    infos = []
    for factory in FACTORIES.values():
        sampler = factory(ON_NETWORK)
        state = jax.eval_shape(sampler.init, network_params())
        infos.append(jax.eval_shape(sampler.step, KEY, state, transitions())[1])
    assert len({jax.tree.structure(info) for info in infos}) == 1
    known = {tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(info)) for info in infos}
    assert len(known) == 1


@one_of_each
def test_nested_pytrees_in_double_precision(factory: Factory) -> None:
    with x64():
        sampler = factory(ON_NESTED)
        state = sampler.init(nested_params(jnp.float64))
        new, info = jax.jit(sampler.step)(KEY, state, nested_data(jnp.float64))
        assert jax.tree.structure(new) == jax.tree.structure(state)
        assert {leaf.dtype for leaf in jax.tree.leaves(new.params)} == {jnp.dtype(jnp.float64)}
        assert not any(same(new.params, state.params))
        assert info.finite


@every_sampler
def test_data_of_higher_precision_does_not_change_the_parameters_dtype(factory: Factory) -> None:
    with x64():
        sampler = factory(ON_NESTED)
        state = sampler.init(nested_params(jnp.float32))
        new, _ = jax.eval_shape(sampler.step, KEY, state, nested_data(jnp.float64))
        before, after = (jax.tree.map(lambda x: x.dtype, s) for s in (state, new))
        assert before == after


# The filters and the prototype solve linear systems, which there are not in half precision.
SOLVERS = ("kova", "ktd", "akq", "lktd_proto")


@pytest.mark.parametrize(
    "factory",
    [f for name, f in FACTORIES.items() if not name.startswith(SOLVERS)],
    ids=[name for name in FACTORIES if not name.startswith(SOLVERS)],
)
def test_half_precision_parameters_stay_so(factory: Factory) -> None:
    sampler = factory(ON_NESTED)
    state = sampler.init(nested_params(jnp.bfloat16))
    new, _ = jax.eval_shape(sampler.step, KEY, state, nested_data(jnp.bfloat16))
    assert {leaf.dtype for leaf in jax.tree.leaves(new.params)} == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.parametrize("name", ["lktd restart", "sgld", "sghmc carried", "adam"])
def test_half_precision_is_finite(name: str) -> None:
    sampler = FACTORIES[name](ON_NESTED)
    state = sampler.init(nested_params(jnp.bfloat16))
    new, info = jax.jit(sampler.step)(KEY, state, nested_data(jnp.bfloat16))
    assert info.finite
    assert not all(same(new.params, state.params))


@one_of_each
def test_many_chains_in_one_program(factory: Factory) -> None:
    """A vmap of a scan gives the chains that single calls give, and no two of them alike."""
    sampler = factory(ON_NETWORK)
    batches = [transitions(seed=seed) for seed in range(2)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)
    keys = jax.random.split(KEY, (3, 2))  # of 3 chains, 2 updates
    start = sampler.init(network_params())

    def chain(keys: Any) -> Any:
        def body(state: Any, inputs: Any) -> Any:
            return sampler.step(inputs[0], state, inputs[1])

        return jax.lax.scan(body, start, (keys, stacked))

    chains, infos = jax.jit(jax.vmap(chain))(keys)
    assert jax.tree.structure(chains) == jax.tree.structure(start)
    assert infos.finite.shape == (3, 2)
    single = start
    for key, batch in zip(keys[1], batches, strict=True):
        single, _ = on_network(factory).step(key, single, batch)
    for many, one in zip(leaves_of(chains.params), leaves_of(single.params), strict=True):
        np.testing.assert_allclose(many[1], one, rtol=2e-4, atol=2e-5)
        if factory in STOCHASTIC.values():
            for a, b in itertools.combinations(many, 2):
                assert np.all(a != b)
        else:
            np.testing.assert_allclose(many[0], many[2], rtol=1e-5)


@every_sampler
def test_no_second_compilation(factory: Factory) -> None:
    traces = 0

    def counting(params: Any, data: Any) -> Any:
        nonlocal traces
        traces += 1
        return ON_NETWORK.predict(params, data)

    sampler = factory(Measurement(counting, ON_NETWORK.observe))
    step = jax.jit(sampler.step)
    state, _ = step(KEY, sampler.init(network_params()), transitions())
    once = traces
    for seed in range(3):
        state, _ = step(jax.random.key(seed), state, transitions(seed=seed))
    step(KEY, sampler.init(network_params()), transitions())
    assert traces == once
    assert step._cache_size() == 1


@pytest.mark.parametrize(
    "name", ["lktd restart", "sghmc carried", "kova plain", "ktd plain", "akq", "adam"]
)
def test_python_numbers_as_parameters_compile_once(name: str) -> None:
    line = Measurement(lambda p, data: p["a"] * data[0][:, 0] + p["b"], lambda p, data: data[1])
    sampler = FACTORIES[name](line)
    step = jax.jit(sampler.step)
    state = sampler.init({"a": 1.0, "b": np.float32(2)})
    for _ in range(3):
        state, _ = step(KEY, state, nested_data())
    assert step._cache_size() == 1


@every_sampler
def test_same_key_same_bits(factory: Factory) -> None:
    sampler = on_network(factory)
    state, step = sampler.init(network_params()), sampler.step
    assert all(same(step(KEY, state, transitions()), step(KEY, state, transitions())))


@every_stochastic
def test_every_parameter_has_noise_of_its_own(factory: Factory) -> None:
    """Equal parameters with equal gradients move apart, within a leaf and between leaves."""
    nothing = Measurement(
        lambda p, data: 0 * (p["a"].sum() + p["b"].sum()) + data[0][:, 0], lambda p, data: data[1]
    )
    sampler = factory(nothing)
    start = {"a": jnp.zeros(3), "b": jnp.zeros((3, 2))}
    state, _ = jax.jit(sampler.step)(KEY, sampler.init(start), nested_data())
    numbers = np.concatenate([leaf.ravel() for leaf in leaves_of(state.params)])
    assert len(np.unique(numbers)) == 9
    again, _ = jax.jit(sampler.step)(jax.random.key(1), sampler.init(start), nested_data())
    assert not set(numbers) & set(np.concatenate([x.ravel() for x in leaves_of(again.params)]))


POISON = ["reward", "observation", "params"]


@every_sampler
def test_nan_is_reported_and_not_forgotten(factory: Factory) -> None:
    sampler = on_network(factory)
    step, clean = sampler.step, transitions()
    for poison in POISON:
        params, data = network_params(), clean
        if poison == "params":
            params["body"][0]["w"] = params["body"][0]["w"].at[1, 2].set(jnp.nan)
        elif poison == "observation":
            data = clean._replace(observation=clean.observation.at[3, 1].set(jnp.nan))
        else:
            data = clean._replace(reward=clean.reward.at[3].set(jnp.nan))
        state, info = step(KEY, sampler.init(network_params()), clean)
        assert info.finite
        if poison == "params":
            state = sampler.init(params)
        state, info = step(KEY, state, data)
        assert not info.finite, poison
        for _ in range(3):
            state, info = step(KEY, state, clean)
            assert not info.finite, f"{poison}: forgotten"


@every_sampler
def test_infinity_is_reported(factory: Factory) -> None:
    sampler = on_network(factory)
    data = transitions()._replace(reward=transitions().reward.at[0].set(jnp.inf))
    _, info = sampler.step(KEY, sampler.init(network_params()), data)
    assert not info.finite


def test_kova_reports_a_covariance_that_overflows() -> None:
    sampler = samplers.kova(ON_NESTED, observation_variance=1.0, forgetting=0.999)
    state = sampler.init(nested_params())
    state = state._replace(covariance=1e37 * state.covariance)
    state, info = jax.jit(sampler.step)(KEY, state, nested_data())
    assert not np.all(np.isfinite(state.covariance))
    assert not info.finite


def test_adam_reports_moments_that_overflow() -> None:
    """Then the step is gradient / infinity = 0: the parameters stay finite, and still for ever."""
    sampler = optimiser(ON_NESTED)
    inputs, outputs = nested_data()
    step = jax.jit(sampler.step)
    state, info = step(KEY, sampler.init(nested_params()), (inputs, 1e18 * outputs + 2e18))
    assert np.isfinite(info.mean_squared_residual)
    state, info = step(KEY, state, (1e5 * inputs, 1e18 * outputs))
    assert np.isfinite(info.mean_squared_residual)
    assert all(np.isfinite(leaf).all() for leaf in leaves_of(state.params))
    assert not all(np.isfinite(leaf).all() for leaf in leaves_of(state.moments))
    assert not info.finite


@every_sampler
def test_step_size_schedule_is_honoured(factory: Factory) -> None:
    if factory in (FACTORIES["kova plain"], FACTORIES["kova forgetting"]):
        sampler = factory(ON_NETWORK, learning_rate=0.25)
        _, info = jax.jit(sampler.step)(KEY, sampler.init(network_params()), transitions())
        assert info.step_size == 0.25
        return
    if factory in (FACTORIES["ktd plain"], FACTORIES["ktd noise"], FACTORIES["akq"]):
        _, info = on_network(factory).step(KEY, factory(ON_NETWORK).init(network_params()),
                                           transitions())  # fmt: skip
        assert info.step_size == 1.0  # these filters have no step size
        return
    name = "learning_rate" if factory is optimiser else "step_size"
    sampler = factory(ON_NETWORK, **{name: schedules.polynomial(2 * STEP, 1.0)})
    step = jax.jit(sampler.step)
    state = sampler.init(network_params())
    for update in range(3):
        before = state
        state, info = step(KEY, state, transitions())
        assert info.step_size == pytest.approx(2 * STEP / (update + 1), rel=1e-5)
        if update == 1:  # where the schedule passes the constant step of the others
            fixed, _ = on_network(factory).step(KEY, before, transitions())
            for a, b in zip(leaves_of(state.params), leaves_of(fixed.params), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@every_stochastic
def test_step_size_may_be_traced(factory: Factory) -> None:
    """One program tries many step sizes."""

    def end(step_size: Any) -> Any:
        sampler = factory(ON_NESTED, step_size=step_size)
        return sampler.step(KEY, sampler.init(nested_params()), nested_data())[1].step_size

    np.testing.assert_allclose(jax.jit(jax.vmap(end))(jnp.array([1e-3, 1e-4])), [1e-3, 1e-4])


@every_sampler
def test_what_cannot_be_sampled_is_refused(factory: Factory) -> None:
    sampler = factory(ON_NETWORK)
    for empty in ({}, [], None):
        with pytest.raises(ValueError, match="no parameters"):
            sampler.init(empty)
    for integers in (jnp.arange(3), {"a": jnp.ones(2), "b": 1}, np.array([True])):
        with pytest.raises(TypeError, match="floating-point"):
            sampler.init(integers)


BAD_POSTERIOR = [
    {"pseudo_population": 0},
    {"pseudo_population": float("inf")},
    {"observation_sd": -1.0},
    {"observation_sd": float("nan")},
    {"likelihood_weight": 0.0},
    {"step_size": 0.0},
    {"step_size": -1e-3},
    {"step_size": float("nan")},
]
BAD_INNER = [{"inner_iterations": 0}]
BAD_FILTER = [
    {"observation_variance": 0.0}, {"observation_variance": float("nan")},
    {"initial_variance": -1.0}, {"process_variance": -1.0}, {"process_variance": float("nan")},
    {"forgetting": 1.0}, {"forgetting": -0.1},
]  # fmt: skip
BAD: dict[str, list[dict[str, Any]]] = {
    "lktd restart": [
        *BAD_POSTERIOR, *BAD_INNER, {"alpha": 0.0}, {"alpha": 1.0}, {"alpha": float("nan")},
        {"latent": "exact"},
    ],
    "lktd_prototype": BAD_POSTERIOR,
    "sgld": [*BAD_POSTERIOR, *BAD_INNER],
    "sghmc carried": [
        *BAD_POSTERIOR, *BAD_INNER, {"friction": 0.0}, {"friction": 1.1}, {"momentum": "nesterov"},
    ],
    "kova plain": [
        {"observation_variance": 0.0}, {"learning_rate": 0.0}, {"initial_variance": -1.0},
        {"process_variance": -1.0}, {"process_variance": float("nan")}, {"forgetting": 1.0},
    ],
    "ktd plain": [
        *BAD_FILTER, {"alpha": 0.0}, {"alpha": -1.0}, {"beta": -1.0}, {"kappa": -1.0},
        {"kappa": float("nan")},
    ],
    "akq": BAD_FILTER,
    "adam": [{"learning_rate": 0.0}, {"learning_rate": -1.0}, {"max_gradient_norm": 0.0}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("factory", "option"),
    [(FACTORIES[name], option) for name, options in BAD.items() for option in options],
    ids=[f"{name} {option}" for name, options in BAD.items() for option in options],
)
def test_bad_options_are_refused_by_name(factory: Factory, option: dict[str, Any]) -> None:
    (name,) = option
    says = {"inner_iterations": "inner iteration"}.get(name, name)
    with pytest.raises(ValueError, match=says):
        factory(ON_NETWORK, **option)
