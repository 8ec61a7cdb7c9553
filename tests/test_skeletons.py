"""What people copy works."""

from __future__ import annotations

import runpy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import valuetrack.registry  # before the skeleton of an agent, which is not for its list
from tests.samplers.support import longest_step, x64
from valuetrack import priors
from valuetrack.checks import linear_gaussian as lg
from valuetrack.checks.moments import moment_test, run_chains
from valuetrack.envs.registry import IN_JAX
from valuetrack.experiments import measure, run, spec

SKELETONS = Path(__file__).parents[1] / "skeletons"


@pytest.fixture
def skeleton(monkeypatch):
    """Run a skeleton as a module; what it registers is forgotten afterwards."""
    for env_id in list(IN_JAX):
        monkeypatch.setitem(IN_JAX, env_id, IN_JAX[env_id])
    before = set(IN_JAX)
    yield lambda name: SimpleNamespace(
        **runpy.run_path(str(SKELETONS / f"{name}.py"), run_name=name)
    )
    for env_id in set(IN_JAX) - before:
        del IN_JAX[env_id]


def test_the_sampler_has_its_exact_law(skeleton):
    made = skeleton("sampler")
    model = lg.example(6, 3, correlation=0.5, prior_sd=0.5, pseudo_population=6, seed=138)
    step_size = longest_step(model, 0.5)
    update = made.langevin_update(model, step_size=step_size)
    with x64():
        sampler = made.langevin(
            lg.measurement(),
            priors.gaussian(model.prior_sd),
            step_size=step_size,
            pseudo_population=model.pseudo_population,
            observation_sd=model.observation_sd,
        )
        updates = lg.mixing_updates(update, tolerance=1e-5) + 5
        samples = run_chains(sampler, model, chains=4096, updates=updates, seed=1)
    assert moment_test(samples, lg.stationary(update)).p_value > 1e-4


def test_the_agent_learns_saves_and_is_asked(skeleton, tmp_path):
    made = skeleton("agent")
    agent = made.ExpectedSarsa("CartPole-v1", hidden=(8,), learning_starts=100, seed=0)
    before = np.asarray(agent.posterior(np.zeros(4)).latest)
    agent.learn(400)
    after = agent.posterior(np.zeros(4))
    assert agent.trainer.clock.updates > 0
    assert not np.array_equal(after.latest, before)
    assert not after.is_posterior
    agent.save(tmp_path / "agent.vt")
    with pytest.raises(ValueError, match="target_epsilon"):
        made.ExpectedSarsa("CartPole-v1", target_epsilon=2.0)


def walk(action: int, cell: int, uniform: float) -> tuple[int, bool]:
    """Step through the corridor in plain Python."""
    moved = cell + (1 if action == 1 and uniform >= 0.1 else -1)
    cell = min(max(moved, 0), 5)
    return cell, cell == 5


def test_the_environment_matches_plain_python_and_trains(skeleton):
    made = skeleton("environment")
    env, rng = made.Corridor(), np.random.default_rng(0)
    step = jax.jit(env.step)
    state, cell = env.reset(jnp.zeros(0)), 0
    for count in range(1, 51):
        action, uniform = int(rng.random() < 0.7), rng.random()
        result = step(state, jnp.int32(action), jnp.array([uniform]))
        cell, over = walk(action, cell, np.float32(uniform))
        assert (int(result.state.cell), bool(result.terminated)) == (cell, over)
        assert bool(result.truncated) == (count == env.horizon and not over)
        state = result.state
        if over:
            break
    agent = valuetrack.registry.DQN("Corridor-v0", hidden=(8,), learning_starts=50)
    assert agent.learn(200).backend == "compiled"
    assert agent.evaluate(2).shape == (1, 2)


def test_the_experiment_its_measure_and_the_engine_run_and_resume(skeleton, tmp_path, monkeypatch):
    made = skeleton("measure")
    kind = measure._Kind(made.WidthsOptions, made.plan_points, made.WidthsMeasure)
    monkeypatch.setitem(measure.KINDS, "widths", kind)
    experiment = spec.resolve(spec.read_toml(SKELETONS / "experiment.toml"), "experiment.toml")
    request = run.Request(experiment, rows=("lktd", "lktd-narrow"), seeds=2)
    folder = run.open_or_create(tmp_path / "run", request, resume=False)
    with ThreadPoolExecutor(1) as executor:
        engine = skeleton("engine").ExecutorEngine(folder, executor)
        assert run.run(folder, engine=engine)
    widths = folder.table("widths", columns=["row", "seed", "step", "width"])
    assert len(widths["seed"]) == 2 * 2 * 4
    assert np.isfinite(widths["width"]).any()
    records = folder.read_progress("lktd", "seeds-0000-0001")
    assert [record["steps"] for record in records] == [500, 1000, 1500, 2000]
    assert run.run(folder)  # there is nothing left to do
