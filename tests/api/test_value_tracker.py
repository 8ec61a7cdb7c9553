"""What users meet of a tracker besides its values: shapes, files, copies and mistakes."""

from __future__ import annotations

import copy
import inspect
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import valuetrack as vt
from tests.agents.policy_envs import Hall, Lamp, Model
from tests.probes import Bandit, Probes
from valuetrack.api.policy import PolicyError
from valuetrack.envs import CartPole, IndoorEscape, observations

SMALL = {
    "hidden": (8,),
    "batch_size": 8,
    "learning_starts": 40,
    "replay_capacity": 100,
    "samples": 6,
    "thinning": 2,
}
CARTPOLE = np.array([[0.0, 0.1, 0.02, -0.1], [0.0, 0.0, 0.1, 0.0]], np.float32)
COMPILED = {"env": "CartPole-v1", "probabilities": True}


def leaning(observation):
    """Push the cart towards where the pole leans, as probabilities."""
    right = (observation[2] > 0).astype(float)
    return jnp.stack([1 - right, right])


def by_lean(observation):
    return int(observation[2] > 0)


def tracker(env="CartPole-v1", policy=leaning, **changes):
    return vt.ValueTracker(env, policy, **{**SMALL, **changes})


def assert_same_bits(one, other):
    one, other = one.trainer.arrays(), other.trainer.arrays()
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


# -- shapes ---------------------------------------------------------------------------------------


def test_v_values_have_no_axis_of_actions():
    made = tracker(probabilities=True, seeds=2).learn(200, track=CARTPOLE, track_every=3)
    one, two = made.posterior(CARTPOLE[0]), made.posterior(CARTPOLE, member=1)
    assert one.mean.shape == one.std.shape == one.latest.shape == one.interval().low.shape == ()
    assert two.mean.shape == two.interval(0.5, kind="prediction").high.shape == (2,)
    assert one.samples.shape == (6,)
    assert two.samples.shape == (6, 2)
    assert f"{one.mean:.2f}" == f"{float(one.mean):.2f}"
    assert repr(one).startswith("Estimate of one V-value from 6 samples")
    assert repr(two).startswith("Estimate of 2 V-values from 6 samples")
    with pytest.raises(ValueError, match="V-values choose no action"):
        one.policy_probabilities()
    tracking = made.tracking()
    records = len(tracking)
    assert tracking.samples.shape == (records, 2, 1, 2)
    assert tracking.mean(window=5).shape == (records, 2, 2)
    low, high = tracking.interval(0.5, window=5)
    assert low.shape == high.shape == (records, 2, 2)
    np.testing.assert_allclose(tracking.mean(1)[-1, 1], made.tracking().samples[-1, 1, 0])


def test_q_values_have_one():
    made = tracker(probabilities=True, of="q").learn(200, track=CARTPOLE)
    assert made.posterior(CARTPOLE).samples.shape == (6, 2, 2)
    assert made.posterior(CARTPOLE).policy_probabilities().shape == (2, 2)
    assert made.tracking().samples.shape[2:] == (1, 2, 2)


def test_before_it_learns():
    made = tracker(probabilities=True)
    assert not made.posterior(CARTPOLE[0]).is_posterior
    assert made.tracking().samples.shape == (0, 1, 1, 0)


def test_figures_of_v_values(tmp_path):
    pytest.importorskip("matplotlib")
    made = tracker(probabilities=True).learn(100, track=CARTPOLE)
    figure = made.tracking().plot(state=1)
    assert figure.axes[0].get_ylabel() == "V-value"
    assert len(figure.axes[0].lines) == 1


def test_samples_for_arviz_are_called_v():
    pytest.importorskip("arviz")
    made = tracker(probabilities=True, seeds=2).learn(100)
    assert made.to_arviz(CARTPOLE[0]).posterior["v"].shape == (2, 6)


def test_the_signature_shows_the_policy_and_the_options():
    shown = list(inspect.signature(vt.ValueTracker).parameters)
    assert shown[:6] == ["env", "policy", "seed", "seeds", "env_options", "backend"]
    assert {"of", "sampler", "step_size", "alpha", "friction", "explore"} < set(shown)
    assert not {"exploration_steps", "form", "target_every"} & set(shown)
    explained = inspect.getdoc(vt.ValueTracker.options_type)
    assert all(name in explained for name in shown[6:])


def test_callbacks_evaluation_and_the_bar(capsys):
    told = []
    made = tracker(probabilities=True, seeds=2)
    made.learn(
        200,
        callback=told.append,
        report_every=100,
        evaluate_every=200,
        evaluation_episodes=3,
        progress_bar=True,
    )
    assert [progress.steps for progress in told] == [100, 200]
    assert told[0].agent is made
    assert told[1].evaluation.shape == (2, 3)
    assert "ValueTracker" in capsys.readouterr().out


def test_seeds_differ_and_do_not_depend_on_their_neighbours():
    pair = tracker(probabilities=True, seed=3, seeds=2).learn(200)
    alone = tracker(probabilities=True, seed=4).learn(200)
    values = [pair.posterior(CARTPOLE, member=m).latest for m in (0, 1)]
    assert (values[0] != values[1]).all()
    np.testing.assert_allclose(values[1], alone.posterior(CARTPOLE).latest, rtol=1e-4)


# -- files and copies -----------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["v", "q"])
def test_a_compiled_tracker_goes_on_to_the_same_bits(of, tmp_path):
    options = {"probabilities": True, "of": of, "explore": 0.2 if of == "q" else 0.0}
    whole = tracker(**options).learn(400)
    tracker(**options).learn(200).save(tmp_path / "v.vt")
    loaded = vt.load(tmp_path / "v.vt", policy=leaning)
    assert isinstance(loaded, vt.ValueTracker)
    assert loaded.options == whole.options
    assert_same_bits(loaded.learn(200), whole)


def test_a_file_without_its_policy_still_knows_the_values(tmp_path):
    for backend, policy in (("compiled", leaning), ("host", by_lean)):
        made = tracker(policy=policy, probabilities=backend == "compiled", backend=backend)
        made.learn(200).save(tmp_path / "v.vt")
        loaded = vt.load(tmp_path / "v.vt")
        assert loaded.backend == backend
        assert loaded.policy is None
        expected = made.posterior(CARTPOLE)
        np.testing.assert_array_equal(loaded.posterior(CARTPOLE).samples, expected.samples)
        for act in (lambda one=loaded: one.learn(10), loaded.play, loaded.evaluate):
            with pytest.raises(PolicyError, match=r"has no policy: valuetrack.load"):
                act()
        assert vt.load(tmp_path / "v.vt", policy=policy).learn(50).num_timesteps >= 250


def test_a_file_of_an_environment_without_an_id(tmp_path):
    tracker(Lamp, Model()).learn(100).save(tmp_path / "v.vt")
    with pytest.raises(ValueError, match="env="):
        vt.load(tmp_path / "v.vt", policy=Model()).learn(50)
    assert vt.load(tmp_path / "v.vt", env=Lamp, policy=Model()).learn(50).num_timesteps >= 150


def test_a_policy_that_fails_when_a_file_is_loaded_is_named(tmp_path):
    tracker(policy=by_lean).learn(100).save(tmp_path / "v.vt")
    with pytest.raises(PolicyError, match="returned the action 7"):
        vt.load(tmp_path / "v.vt", policy=lambda observation: 7)


def test_other_files_take_no_policy(tmp_path):
    vt.DQN("CartPole-v1", hidden=(8,)).save(tmp_path / "agent.vt")
    with pytest.raises(ValueError, match="holds a DQN, which takes no policy"):
        vt.load(tmp_path / "agent.vt", policy=leaning)


def test_a_copy_has_learned_the_same():
    made = tracker(probabilities=True).learn(100)
    twin = copy.deepcopy(made)
    assert twin.policy is leaning
    assert_same_bits(made, twin)
    assert_same_bits(made.learn(50), twin.learn(50))


# -- mistakes -------------------------------------------------------------------------------------


def test_no_policy_at_all():
    for wrong, said in [
        ("random", "this is a str"),
        (3, "this is a int"),
        (Model, "is the class Model"),
        (lambda a, b, c: 0, r"not of \(a, b, c\)"),
        (lambda: 0, "The policy failed: TypeError"),
    ]:
        with pytest.raises(PolicyError, match=said):
            tracker(policy=wrong)
    with pytest.raises(PolicyError, match="no policy of its own"):
        tracker(policy=tracker(probabilities=True))
    with pytest.raises(PolicyError, match="leave `probabilities=True` out"):
        tracker(policy=Model(), probabilities=True)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (2, "returned the action 2; actions are from 0 to 1"),
        (-1, "returned the action -1"),
        (0.0, "one integer from 0 to 1"),
        ([0.5, 0.5], "`probabilities=True` is for probabilities"),
        (None, "returned None"),
        ("left", "returned left"),
        (True, "one integer"),
    ],
    ids=str,
)
def test_what_is_no_action(answer, said):
    with pytest.raises(PolicyError, match=said) as error:
        tracker(policy=lambda observation: answer).learn(50)
    assert str(error.value).count(". ") == 0


@pytest.mark.parametrize("backend", ["host", "compiled"])
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([0.2, 0.3, 0.5], r"shape \(3,\); the probabilities of 2 actions"),
        ([0.2, 0.3], "sum to one"),
        ([1.5, -0.5], "not negative"),
        ([np.nan, 1.0], "sum to one"),
        (1, r"shape \(\)"),
    ],
    ids=str,
)
def test_what_are_no_probabilities(backend, answer, said):
    with pytest.raises(PolicyError, match=said):
        tracker(policy=lambda o: jnp.array(answer), probabilities=True, backend=backend)


def test_illegal_actions_are_said():
    with pytest.raises(PolicyError, match="chose the action 4, which is not legal there"):
        tracker(Hall, lambda observation: 4)
    with pytest.raises(PolicyError, match="sum to one over the legal actions"):
        tracker(Hall, lambda observation: [0.5, 0.5], probabilities=True)
    with pytest.raises(PolicyError, match="sum to one over the legal actions"):
        tracker(Probes(), lambda observation: jnp.full(2, 0.5), probabilities=True)


def test_a_policy_that_raises_is_quoted_and_the_tracker_goes_on():
    asked = itertools.count(1)

    def policy(observation):
        if next(asked) == 60:
            raise KeyError("no such\nstate")
        return 1

    made = tracker(Lamp, policy)
    with pytest.raises(PolicyError, match=r"The policy failed: KeyError: 'no such") as error:
        made.learn(200)
    assert isinstance(error.value.__cause__, KeyError)
    made.learn(100)
    rows = made.trainer.arrays()
    lights = rows["replay.observation"].ravel() + rows["replay.next_observation"].ravel()
    assert (lights == 1).all()  # every step leads to the other state, also across the failure


def test_a_failure_far_from_the_start_is_noticed_in_compiled_code():
    grid = IndoorEscape(width=3, height=1)

    def policy(observation):  # forgets the wall behind the second cell
        return jnp.where(observation[0] < 0.4, jnp.eye(4)[0], jnp.full(4, 0.25))

    made = tracker(grid, policy, probabilities=True)
    with pytest.raises(PolicyError, match="no probabilities of legal actions in a step before"):
        made.learn(5_000)
    with pytest.raises(PolicyError, match="no probabilities of legal actions in an episode"):
        made.play(3)
    assert np.isfinite(made.posterior(observations(grid)).latest).all()


def test_a_diverged_tracker_is_not_blamed_on_its_policy():
    options = {"probabilities": True, "step_size": 1e6, "guard": False}
    made = tracker(Bandit(), lambda o: jnp.eye(2)[0], **options)
    with pytest.warns(RuntimeWarning, match="diverged: seed 0"):
        made.learn(400)


def test_policies_that_cannot_be_compiled():
    for policy, options, said in [
        (by_lean, {"env": CartPole()}, "cannot be compiled .*Error"),
        (Model(), {"env": CartPole()}, "it has `predict`"),
        (by_lean, {"backend": "compiled"}, 'or take backend="host"'),
    ]:
        with pytest.raises(PolicyError, match=said):
            tracker(policy=policy, **options)


def test_an_agent_of_another_environment():
    agent = vt.DQN("MountainCar-v0", hidden=(8,))
    for backend in ("compiled", "host"):
        with pytest.raises(PolicyError, match=r"shape \(2,\) and 3 actions; this"):
            tracker(policy=agent, backend=backend)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"form": "sarsa"}, "has no option 'form'"),
        ({"exploration_steps": 5}, "has no option 'exploration_steps'"),
        ({"sampler": "dqn"}, "sampler is wrong"),
        ({"of": "a"}, "of is wrong"),
        ({"explore": 0.1}, "explore is wrong: V-values are learned from the policy's own steps"),
        ({"sampler": "sgld", "alpha": 0.5}, "alpha is wrong: sgld has no such option"),
        ({"sampler": "lktd", "friction": 0.5}, "friction is wrong: lktd has no such option"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        tracker(policy=by_lean, **options)


def test_a_tracker_chooses_no_actions():
    with pytest.raises(TypeError, match="ask its policy"):
        tracker(policy=by_lean).predict(CARTPOLE[0])
