"""The seven classes that users hold in their hands."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.small_envs import Counter, Marked, Picture, Spaced
from valuetrack import registry
from valuetrack.api.estimate import Estimate
from valuetrack.envs.indoor_escape import IndoorEscape, observations
from valuetrack.io.errors import ModelFileError
from valuetrack.registry import AGENTS, DQN, LKTD, SGLD, load

ESCAPE = IndoorEscape(width=4, height=3, horizon=7)
STATES = observations(ESCAPE)
SMALL = {
    "hidden": (8,),
    "batch_size": 8,
    "learning_starts": 40,
    "replay_capacity": 100,
    "exploration_steps": 200,
    "samples": 6,
    "thinning": 2,
}
OWN = {"bootdqn": {"heads": 3}, "qrdqn": {"quantiles": 4}}
SAMPLERS = {"lktd", "sgld", "sghmc"}
EVERY = pytest.mark.parametrize("name", AGENTS)
KINDS = pytest.mark.parametrize("name", ["lktd", "bootdqn", "iqn", "kova"])
"""Samples, heads, drawn levels and a filter: for what no algorithm has code of its own for."""


def make(name, env=ESCAPE, **changes):
    return AGENTS[name](env, **{**SMALL, **OWN.get(name, {}), **changes})


@functools.cache
def trained(name):
    """Return two seeds of an algorithm after 200 steps in the grid, with all cells tracked."""
    return make(name, seeds=2).learn(200, track=STATES, track_every=3)


def bits(agent):
    return {name: array.copy() for name, array in agent.trainer.arrays().items()}


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


# -- the battery ----------------------------------------------------------------------------------


@EVERY
def test_learning_changes_the_agent_and_nothing_diverges(name):
    agent = trained(name)
    assert (agent.num_timesteps, agent.trainer.clock.updates, agent.diverged) == (200, 41, {})
    first, *_, last = agent.tracking().samples
    assert np.isfinite(last).all()
    assert (first != last).any(axis=(1, 2, 3)).all()


@KINDS
def test_predict_takes_one_observation_or_many(name):
    agent = trained(name)
    action, state = agent.predict(STATES[0])
    assert type(action) is int
    assert state is None
    many, _ = agent.predict(STATES, member=1)
    assert many.shape == (12,)
    q = np.asarray(agent.posterior(STATES, member=1).acted_on)
    np.testing.assert_array_equal(many, q.argmax(axis=1))
    masked, _ = agent.predict(STATES, action_mask=[False, True, False, True], member=1)
    np.testing.assert_array_equal(masked, np.array([1, 3])[q[:, [1, 3]].argmax(axis=1)])


@EVERY
def test_posterior_says_what_it_is(name):
    agent = trained(name)
    q = agent.posterior(STATES)
    heads = 3 if name == "bootdqn" else 1
    assert q.samples.shape == (6 * heads, 12, 4)
    assert q.mean.shape == q.std.shape == q.latest.shape == (12, 4)
    np.testing.assert_allclose(q.mean, q.samples.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(q.std, q.samples.std(axis=0, ddof=1), rtol=1e-4, atol=1e-6)
    # The newest sample is the current one.
    np.testing.assert_allclose(q.samples[-heads:].mean(axis=0), q.latest, rtol=1e-4, atol=1e-5)
    assert len({row.tobytes() for row in q.samples}) == 6 * heads
    assert q.is_posterior is (name in SAMPLERS)
    assert ("not a posterior" in q.what) is (name not in SAMPLERS)
    one = agent.posterior(STATES[5])
    assert one.samples.shape == (6 * heads, 4)
    np.testing.assert_allclose(one.latest, q.latest[5], rtol=1e-4, atol=1e-5)
    other = agent.posterior(STATES, member=1)
    assert (other.latest != q.latest).any()


@KINDS
def test_intervals_and_probabilities(name):
    q = trained(name).posterior(STATES)
    credible, prediction = q.interval(0.5, "credible"), q.interval(0.5, "prediction")
    np.testing.assert_allclose(credible.low, np.quantile(q.samples, 0.25, axis=0), rtol=1e-5)
    np.testing.assert_allclose(credible.high, np.quantile(q.samples, 0.75, axis=0), rtol=1e-5)
    width = credible.high - credible.low
    np.testing.assert_allclose(prediction.high - prediction.low, width, rtol=1e-3, atol=1e-6)
    centre = (prediction.high + prediction.low) / 2
    np.testing.assert_allclose(centre, q.latest, rtol=1e-4, atol=1e-5)
    assert (q.interval(0.6, "credible").high >= credible.high).all()
    np.testing.assert_array_equal(q.interval(0.9), q.interval(0.9, "value"))  # the default
    with pytest.raises(ValueError, match=r"level 0.99 from samples needs at least 200, and here"):
        q.interval(0.99, "credible")
    mask = np.asarray(jax.vmap(ESCAPE.action_mask)(cells()))
    probabilities = q.policy_probabilities(mask)
    legal = mask.any(axis=1)
    np.testing.assert_allclose(probabilities[legal].sum(axis=1), 1.0, rtol=1e-6)
    assert (probabilities[~mask] == 0).all()
    np.testing.assert_allclose(q.policy_probabilities().sum(axis=1), 1.0, rtol=1e-6)
    best = np.argmax(q.samples[:, 0], axis=-1)
    expected = np.bincount(best, minlength=4) / len(best)
    np.testing.assert_allclose(q.policy_probabilities()[0], expected)


def cells():
    start = ESCAPE.reset(np.zeros(0))
    return type(start)(np.arange(12, dtype=np.int32), np.zeros(12, np.int32))


@KINDS
def test_an_evaluation_plays_greedy_episodes(name):
    agent = trained(name)
    returns = agent.evaluate(3)
    assert returns.shape == (2, 3)
    # About -1 a step, five steps at least and seven at most.
    assert (returns < -4).all()
    assert (returns > -8.5).all()
    np.testing.assert_array_equal(returns, agent.evaluate(3))
    assert (returns != agent.evaluate(3, seed=1)).any()


@EVERY
def test_tracking(name):
    agent = trained(name)
    heads = 3 if name == "bootdqn" else 1
    record = agent.tracking()
    assert len(record) == 13
    np.testing.assert_array_equal(record.updates, np.arange(3, 40, 3))
    np.testing.assert_array_equal(record.steps, 36 + 4 * record.updates)
    assert record.samples.shape == (13, 2, heads, 12, 4)
    plain = record.samples.mean(axis=2)
    mean = record.mean(window=4)
    np.testing.assert_allclose(mean[-1], plain[-4:].mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(mean[1], plain[:2].mean(axis=0), rtol=1e-4, atol=1e-6)
    low, high = record.interval(0.5, window=4)
    assert low.shape == high.shape == (13, 2, 12, 4)
    pooled = np.moveaxis(record.samples[-4:], 2, 1).reshape(-1, 2, 12, 4)
    np.testing.assert_allclose(low[-1], np.quantile(pooled, 0.25, axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(high[-1], np.quantile(pooled, 0.75, axis=0), rtol=1e-5, atol=1e-6)
    too_few = 1 if heads == 3 else 3  # four samples are needed
    assert np.isnan(low[:too_few]).all()
    assert np.isfinite(low[too_few:]).all()
    with pytest.raises(ValueError, match=r"needs at least 200 of them.*choose a larger window"):
        record.interval(0.99, window=4)


@EVERY
def test_a_file_goes_on_bit_for_bit(name, tmp_path):
    whole, path = trained(name), tmp_path / "agent.safetensors"
    first = make(name, seeds=2).learn(100, track=STATES)
    first.save(path)
    again = load(path, env=ESCAPE)
    assert type(again) is type(first)
    assert (again.options, again.seeds) == (first.options, first.seeds)
    assert again.num_timesteps == 100
    assert_same_bits(bits(again), bits(first))
    again.learn(100, track=STATES)
    assert_same_bits(bits(again), bits(whole))
    np.testing.assert_array_equal(again.posterior(STATES).samples, whole.posterior(STATES).samples)


@KINDS
def test_a_file_without_replay_fills_the_memory_first(name, tmp_path):
    agent, path = trained(name), tmp_path / "agent.safetensors"
    agent.save(path, replay=False)
    again = load(path, env=ESCAPE)
    assert (again.num_timesteps, again.trainer.clock.updates) == (200, 41)
    np.testing.assert_array_equal(again.predict(STATES)[0], agent.predict(STATES)[0])
    before = again.posterior(STATES).latest
    again.learn(36, track=STATES)
    assert again.trainer.clock.updates == 41
    np.testing.assert_array_equal(again.posterior(STATES).latest, before)
    again.learn(4, track=STATES)
    assert again.trainer.clock.updates == 42
    assert (again.posterior(STATES).latest != before).any()


@KINDS
def test_a_file_of_a_host_environment_goes_on_the_same_way_each_time(name, tmp_path):
    path = tmp_path / "agent.safetensors"
    agent = make(name, Marked, seeds=2).learn(100)
    agent.save(path)
    once, twice = (load(path, env=Marked) for _ in range(2))
    assert_same_bits(bits(once), bits(agent))
    once.learn(40)
    twice.learn(40)
    assert_same_bits(bits(once), bits(twice))
    assert (once.num_timesteps, once.trainer.clock.updates) == (140, 26)
    returns = once.evaluate(2)
    assert returns.shape == (2, 2)
    assert (abs(returns) <= 1).all()
    observation, info = Marked().reset(seed=0)
    mask = info["action_mask"]
    assert mask[once.predict(observation, action_mask=mask)[0]]
    batch = {"mark": np.array([0, 1, 1]), "place": np.array([[0], [0.5], [-0.5]], np.float32)}
    assert once.predict(batch)[0].shape == once.predict([observation] * 3)[0].shape == (3,)
    assert once.posterior(batch).latest.shape == (3, 4)


# -- environments in all their forms --------------------------------------------------------------


def test_an_id_trains_compiled_or_on_the_host(tmp_path):
    path = tmp_path / "agent.safetensors"
    for backend in ("auto", "host"):
        agent = DQN("CartPole-v1", backend=backend, **SMALL).learn(60)
        assert (agent.env.in_jax is None) == (backend == "host")
        assert agent.predict(np.zeros(4, np.float32))[0] in (0, 1)
        assert (agent.evaluate(2) >= 5).all()
        agent.save(path)
        again = load(path)
        assert type(again.trainer) is type(agent.trainer)
        assert_same_bits(bits(again), bits(agent))


def test_a_seed_starts_the_same_way_on_both_trainers():
    observation = np.array([0.1, -0.2, 0.03, 0.4], np.float32)
    both = [LKTD("CartPole-v1", seed=5, hidden=(8,), backend=b) for b in ("compiled", "host")]
    compiled, host = (agent.posterior(observation).latest for agent in both)
    np.testing.assert_allclose(compiled, host, rtol=1e-5)  # programs round differently


def test_options_of_an_environment_come_back(tmp_path):
    path = tmp_path / "agent.safetensors"
    options = {"width": 4, "height": 3, "walls": ((1, 0), (2, 2)), "horizon": 7}
    agent = DQN("valuetrack/IndoorEscape-v0", env_options=options, **SMALL)
    agent.save(path)
    again = load(path)
    assert again.env.in_jax == agent.env.in_jax == IndoorEscape(**options)
    assert_same_bits(bits(again), bits(agent))


def test_an_object_a_function_and_vector_environments_learn_the_same():
    vectors = [
        SyncVectorEnv([Counter] * 2, autoreset_mode=mode)
        for mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)
    ]
    expected = bits(DQN(Counter, environments=2, **SMALL).learn(80))
    for env in vectors:
        assert_same_bits(bits(DQN(env, environments=2, **SMALL).learn(80)), expected)
    one = bits(DQN(Counter(), **SMALL).learn(80))
    assert_same_bits(one, bits(DQN(Counter, **SMALL).learn(80)))
    late = DQN(SyncVectorEnv([Counter]), **SMALL).learn(80)  # loses a step at each end
    assert late.trainer.replay.written[0] < 80


def test_a_class_written_in_jax_is_made():
    assert DQN(IndoorEscape, **SMALL).env.in_jax == IndoorEscape()


def test_actions_are_those_of_the_environment():
    agent = DQN(Counter, **SMALL).learn(60)
    states = [np.array([i, 0], np.float32) for i in range(9)]
    chosen = {agent.predict(state, deterministic=False)[0] for state in states * 5}
    assert chosen <= {5, 6, 7}
    assert len(chosen) > 1
    many, _ = agent.predict(states, action_mask=[False, False, True])
    np.testing.assert_array_equal(many, [7] * 9)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (6, 6, 1), np.uint8),
        spaces.Discrete(3, start=-1),
        spaces.MultiBinary(4),
        spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (2,), np.float32)]),
    ],
    ids=lambda space: type(space).__name__ + str(space.shape or ""),
)
def test_observations_of_any_space(space):
    agent = DQN(lambda: Spaced(space), **SMALL)
    space.seed(0)
    several = [space.sample() for _ in range(3)]
    agent.learn(48, track=several)
    assert agent.tracking().samples.shape == (3, 1, 1, 3, 2)
    latest = agent.posterior(several).latest
    np.testing.assert_allclose(agent.tracking().samples[-1, 0, 0], latest, rtol=1e-4, atol=1e-5)
    assert agent.predict(several[0])[0] == latest[0].argmax()


def test_images_stay_bytes(tmp_path):
    agent = DQN(Picture, **SMALL).learn(40)
    assert agent.task == ((6, 6, 1), True, 2)
    assert agent.trainer.replay.rows.observation.dtype == np.uint8
    path = tmp_path / "agent.safetensors"
    agent.save(path)
    assert_same_bits(bits(load(path, env=Picture)), bits(agent))


def test_a_mask_is_always_obeyed():
    for mode in AutoresetMode:  # an illegal action is an error in this environment
        vector = SyncVectorEnv([Marked] * 3, autoreset_mode=mode)
        options = {**SMALL, "environments": 3, "exploration_final": 0.5}
        agent = DQN(vector, **options).learn(240)
        assert agent.trainer.replay.rows.next_mask[..., 3].sum() == 0


# -- a stranger's environment improves ------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "convolutions"), [(Marked, None), (Picture, ((8, 3, 1),))], ids=["Marked", "Picture"]
)
def test_a_strangers_environment_is_learned(env, convolutions):
    agent = DQN(
        env,
        convolutions=convolutions,
        hidden=(32,),
        batch_size=32,
        learning_starts=100,
        replay_capacity=2000,
        exploration_steps=1000,
        discount=0.7,
        learning_rate=3e-3,
        target_every=20,
        samples=2,
    )
    before = agent.evaluate(40).mean()
    agent.learn(2400)
    after = agent.evaluate(40).mean()
    assert before < 0.6
    assert after > 0.9


def test_a_posterior_learns_a_strangers_environment():
    agent = SGLD(
        Marked,
        hidden=(32,),
        batch_size=32,
        learning_starts=100,
        replay_capacity=2000,
        exploration_steps=1000,
        discount=0.7,
        step_size=1e-4,
        observation_sd=0.3,
        pseudo_population=2000,
        samples=20,
        thinning=5,
    )
    before = agent.evaluate(40).mean()
    agent.learn(2400)
    assert before < 0.6
    assert agent.evaluate(40).mean() > 0.9


# -- what happens during a training ---------------------------------------------------------------


def test_a_callback_is_told_how_it_goes():
    told = []
    agent = make("dqn", seeds=2)
    agent.learn(120, callback=told.append, report_every=20, evaluate_every=60)
    assert [p.steps for p in told] == [20, 40, 60, 80, 100, 120]
    assert [p.updates for p in told] == [0, 1, 6, 11, 16, 21]
    assert all(p.agent is agent for p in told)
    assert np.isnan(told[0].loss).all()  # no update yet
    assert all((p.loss > 0).all() for p in told[1:])
    ended = np.array([p.episode_return for p in told])
    assert ((ended < -4) & (ended > -8.5)).all()
    shapes = [None if p.evaluation is None else p.evaluation.shape for p in told]
    assert shapes == [None, None, (2, 5), None, None, (2, 5)]


def test_a_callback_can_end_a_training():
    agent = make("dqn", seeds=2).learn(400, callback=lambda p: p.steps < 80, report_every=40)
    assert agent.num_timesteps == 80


def test_reports_and_evaluations_change_nothing():
    plain, watched = make("dqn", seeds=2), make("dqn", seeds=2)
    plain.learn(120)
    watched.learn(120, report_every=12, evaluate_every=28, callback=lambda p: None)
    assert_same_bits(bits(plain), bits(watched))


def test_steps_are_rounded_up_to_whole_cycles():
    assert make("dqn", seeds=2).learn(41).num_timesteps == 44


def test_a_progress_bar_is_shown(capsys):
    make("dqn", seeds=2).learn(40, progress_bar=True)
    assert "DQN" in capsys.readouterr().out


def test_tracking_goes_on_with_the_same_observations_and_begins_anew_with_others():
    agent = make("dqn", seeds=2).learn(60, track=STATES)
    agent.learn(20, track=STATES)
    np.testing.assert_array_equal(agent.tracking().updates, np.arange(1, 12))
    agent.learn(20)
    assert len(agent.tracking()) == 11
    agent.learn(20, track=STATES[:2])
    assert agent.tracking().samples.shape == (5, 2, 1, 2, 4)


def test_a_record_is_drawn_and_saved(tmp_path):
    pytest.importorskip("matplotlib")
    record = trained("lktd").tracking()
    figure = record.plot(state=2, seed=1, window=5)
    (axes,) = figure.axes
    assert len(axes.lines) == 4
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), record.steps)
    np.testing.assert_allclose(axes.lines[3].get_ydata(), record.mean(5)[:, 1, 2, 3])
    with pytest.raises(ValueError, match="There are 12 states, numbered from 0, so no 12"):
        record.plot(state=12)
    with pytest.raises(ValueError, match="There are 2 seeds, numbered from 0, so no -1"):
        record.plot(seed=-1)
    assert record.plot(tmp_path / "figure.png") is None
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    record.save(tmp_path / "record.npz")
    with np.load(tmp_path / "record.npz") as saved:
        np.testing.assert_array_equal(saved["samples"], record.samples)


def test_before_any_update_the_posterior_is_the_start():
    q = make("lktd").posterior(STATES)
    assert q.samples.shape == (1, 12, 4)
    np.testing.assert_array_equal(q.samples[0], q.latest)
    assert np.isnan(q.std).all()


def test_divergence_is_said():
    with pytest.warns(RuntimeWarning, match="LKTD diverged: seed 0 at update"):
        agent = make("lktd", step_size=1e4, guard=False).learn(200)
    assert 1 <= agent.diverged[0] <= agent.trainer.clock.updates


def test_seeds_are_apart_and_independent():
    alone, together = make("dqn", seed=1), trained("dqn")
    alone.learn(200)
    q, mine = together.posterior(STATES, member=1).latest, alone.posterior(STATES).latest
    np.testing.assert_allclose(q, mine, rtol=1e-3, atol=1e-4)
    assert (together.posterior(STATES).latest != q).any()


def test_a_file_is_read_in_another_process(tmp_path):
    path = tmp_path / "agent.safetensors"
    agent = DQN("CartPole-v1", **SMALL).learn(60)
    agent.save(path)
    state = [0.01, -0.02, 0.03, 0.04]
    code = (
        "import sys, valuetrack as vt\n"
        "agent = vt.load(sys.argv[1])\n"
        f"print(agent.num_timesteps, agent.posterior({state}).latest.tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    steps, latest = done.stdout.strip().split(" ", 1)
    assert steps == "60"
    expected = agent.posterior(state).latest
    np.testing.assert_allclose(numbers(latest), expected, rtol=1e-5)


def numbers(text):
    return [float(number) for number in text.strip("[]").split(",")]


def test_the_names_are_there():
    assert [kind.__name__ for kind in AGENTS.values()] == [
        "LKTD", "SGHMC", "SGLD", "AKQ", "BootDQN", "DQN", "IQN", "KOVA", "KTD", "QRDQN",
    ]  # fmt: skip
    assert all(getattr(registry, kind.__name__) is kind for kind in AGENTS.values())
    assert issubclass(ModelFileError, ValueError)
    assert LKTD.options_type().alpha == 0.9


def test_close_closes_what_the_agent_made():
    closed = []

    class Closing(Counter):
        def close(self):
            closed.append(self)

    agent = make("dqn", Closing, seeds=2)
    agent.evaluate(1)
    agent.close()
    assert len(closed) == 4
    given = Closing()
    make("dqn", given).close()
    assert given not in closed
    make("dqn").close()


def test_an_agent_moves_between_the_trainers(tmp_path):
    options = {"hidden": (8,), "learning_starts": 20, "batch_size": 8, "seeds": 2}
    observation = np.array([0.1, -0.2, 0.03, 0.4], np.float32)
    agent = LKTD("CartPole-v1", **options).learn(60)
    agent.save(tmp_path / "compiled.vt")
    host = load(tmp_path / "compiled.vt", env=lambda: gymnasium.make("CartPole-v1"))
    assert (agent.backend, host.backend) == ("compiled", "host")
    host.save(tmp_path / "host.vt")
    back = load(tmp_path / "host.vt", env="CartPole-v1")
    assert back.backend == "compiled"
    for other in (host, back):
        assert (other.num_timesteps, other.trainer.clock.updates) == (
            60,
            agent.trainer.clock.updates,
        )
        for member in (0, 1):
            np.testing.assert_allclose(
                other.posterior(observation, member=member).samples,
                agent.posterior(observation, member=member).samples,
                rtol=1e-4,
            )
        updates = other.trainer.clock.updates
        other.learn(12)
        assert other.trainer.clock.updates == updates  # the memory is filled first
        other.learn(20)
        assert other.trainer.clock.updates > updates


def test_another_id_is_made_and_an_unknown_one_refused(tmp_path):
    DQN("CartPole-v1", hidden=(8,)).save(tmp_path / "agent.vt")
    with pytest.warns(Warning, match="CartPole-v0"):  # Gymnasium finds it old
        assert load(tmp_path / "agent.vt", env="CartPole-v0").backend == "host"
    with pytest.raises(ModelFileError, match="There is no environment 'Nope-v0'"):
        load(tmp_path / "agent.vt", env="Nope-v0")


@pytest.mark.parametrize("answer", [False, np.bool_(False), np.float32(3) > 5])
def test_any_false_ends_a_training(answer):
    agent = DQN("CartPole-v1", hidden=(8,), learning_starts=1000)
    agent.learn(200, report_every=40, callback=lambda progress: answer)
    assert agent.num_timesteps == 40
    with pytest.raises(TypeError, match="A callback is a function of the progress, not a list"):
        agent.learn(40, callback=[])


def test_one_sample_has_no_spread():
    agent = LKTD("CartPole-v1", hidden=(8,), learning_starts=20, batch_size=8, thinning=1)
    observation = np.zeros(4, np.float32)
    start = agent.posterior(observation)
    assert not start.is_posterior
    assert start.what == "the initial parameters, not a posterior"
    agent.learn(20)
    one = agent.posterior(observation)
    assert (len(one.samples), one.is_posterior) == (1, True)
    assert np.isnan(one.std).all()
    for kind in ("credible", "prediction"):
        with pytest.raises(ValueError, match=r"needs at least 20, and here are 1: let the agent"):
            one.interval(0.9, kind)
    agent.learn(80)
    assert len(agent.posterior(observation).samples) == 21
    assert np.isfinite(agent.posterior(observation).interval(0.9, "credible")).all()


def test_values_that_are_no_numbers_prefer_no_action():
    values = np.zeros((5, 2, 3))
    values[:, :, 1] = 1.0
    values[2, 1, 0] = np.nan
    found = Estimate(values, values[-1], "values", True).policy_probabilities()
    np.testing.assert_array_equal(found, [[0, 1, 0], [np.nan] * 3])


def test_a_vector_environment_says_how_many_environments_there_are():
    envs = gymnasium.make_vec("CartPole-v1", 4)  # takes one seed for all
    agent = DQN(envs, hidden=(8,), learning_starts=16, batch_size=8).learn(40)
    assert agent.options.environments == 4
    assert agent.trainer.clock.updates > 0
    two = DQN(gymnasium.make_vec("CartPole-v1", 4), hidden=(8,), seeds=2)
    assert two.options.environments == 2
    with pytest.raises(ValueError, match="has 4 environments, and 3 are needed"):
        DQN(gymnasium.make_vec("CartPole-v1", 4), hidden=(8,), environments=3)


def test_a_list_of_numbers_is_an_observation_on_both_trainers():
    for backend in ("compiled", "host"):
        agent = DQN("CartPole-v1", hidden=(8,), backend=backend)
        assert agent.posterior([0.0, 0.1, 0.02, -0.1]).samples.shape == (1, 2)
        assert agent.posterior([[0.0, 0.1, 0.02, -0.1]] * 3).samples.shape == (1, 3, 2)
    places = DQN("FrozenLake-v1", hidden=(8,))
    assert places.posterior([0, 3]).samples.shape == (1, 2, 4)  # a batch of two


def test_numbers_of_numpy_among_the_options_of_an_environment_are_saved(tmp_path):
    options = {"success_rate": np.float64(0.5)}
    DQN("FrozenLake-v1", hidden=(8,), env_options=options).save(tmp_path / "number.vt")
    assert load(tmp_path / "number.vt").env.options == {"success_rate": 0.5}


def test_samples_go_to_arviz():
    pytest.importorskip("arviz")
    agent = LKTD("CartPole-v1", hidden=(8,), learning_starts=20, seeds=2, thinning=1).learn(60)
    data = agent.to_arviz(np.zeros((3, 4), np.float32))
    assert data.posterior["q"].shape == (2, 11, 3, 2)
    assert data.posterior["q"].dims == ("chain", "draw", "observation", "action")
    assert data.posterior["action"].values.tolist() == [0, 1]
    assert agent.to_arviz(np.zeros(4)).posterior["q"].dims == ("chain", "draw", "action")
    np.testing.assert_array_equal(
        data.posterior["q"][1], agent.posterior(np.zeros((3, 4), np.float32), member=1).samples
    )
    assert data.posterior["q"].dims == ("chain", "draw", "observation", "action")
    assert agent.to_arviz(np.zeros(4)).posterior["q"].dims == ("chain", "draw", "action")


def test_help_explains_all_options_of_an_algorithm():
    for name in ("lktd", "dqn", "kova"):
        text = inspect.getdoc(AGENTS[name].options_type)
        assert "Epsilon falls" in text
    assert "the paper's epsilon" in inspect.getdoc(LKTD.options_type)
