"""What users get wrong: every mistake is one sentence."""

from __future__ import annotations

import functools

import gymnasium
import numpy as np
import pytest
import safetensors.numpy
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from tests.small_envs import Broken, Counter, Marked, Picture, Spaced
from valuetrack.envs.gym.guards import EnvironmentFailedError
from valuetrack.envs.indoor_escape import IndoorEscape
from valuetrack.io.array_file import load as read
from valuetrack.io.array_file import save
from valuetrack.io.errors import ModelFileError
from valuetrack.registry import DQN, KOVA, KTD, LKTD, SGHMC, BootDQN, load

ESCAPE = IndoorEscape(width=4, height=3, horizon=7)
SMALL = {"hidden": (4,), "batch_size": 4, "learning_starts": 8, "replay_capacity": 40, "samples": 2}


@functools.cache
def in_jax():
    return DQN(ESCAPE, seeds=2, **SMALL)


@functools.cache
def on_host():
    return DQN(Counter, **SMALL)


@functools.cache
def with_dict():
    return DQN(Marked(), **SMALL)


def one_sentence(error):
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    return text


class Continuous(Spaced):
    def __init__(self):
        super().__init__(spaces.Box(0, 1, (2,), np.float32))
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)


class Wordy(Spaced):
    def __init__(self):
        super().__init__(spaces.Text(5))


MAKING = {
    "unknown option": (lambda: LKTD(ESCAPE, stepsize=1e-5), "did you mean step_size"),
    "option far from all": (lambda: DQN(ESCAPE, zzz=1), "has no option 'zzz'; there are hidden"),
    "another's option": (lambda: DQN(ESCAPE, alpha=0.5), "DQN has no option 'alpha'"),
    "text for a number": (lambda: DQN(ESCAPE, batch_size="many"), "batch_size is wrong"),
    "digits for a number": (lambda: DQN(ESCAPE, batch_size="64"), "should be a whole number"),
    "yes for a number": (lambda: DQN(ESCAPE, batch_size=True), "should be a whole number"),
    "SB3's name": (lambda: DQN(ESCAPE, gamma=0.9), "no option 'gamma': here it is discount."),
    "two steps": (
        lambda: LKTD(ESCAPE, learning_rate=1e-3, step_size=1e-5),
        "LKTD: step_size and learning_rate are two words for one step",
    ),
    "too large a covariance": (
        lambda: KOVA(ESCAPE, hidden=(2000, 2000)),
        "KOVA keeps a covariance of",
    ),
    "too large a square root": (
        lambda: KTD(ESCAPE, hidden=(2000, 2000)),
        "KTD keeps a covariance of",
    ),
    "a target network for KTD": (lambda: KTD(ESCAPE, form="sarsa_target"), "form is wrong"),
    "half a count": (lambda: DQN(ESCAPE, batch_size=1.5), "batch_size is wrong"),
    "SB3's first argument": (
        lambda: LKTD("MlpPolicy", "CartPole-v1"),
        "no MlpPolicy: write LKTD('CartPole-v1', ...)",
    ),
    "SB3's first argument alone": (
        lambda: LKTD("CnnPolicy", env=ESCAPE),
        "and no CnnPolicy: write LKTD(env, ...)",
    ),
    "SB3's policy by name": (lambda: DQN(policy="MlpPolicy", env=ESCAPE), "hidden, activation"),
    "options without names": (lambda: DQN(ESCAPE, (8, 8)), "such as DQN(env, hidden=(64, 64))"),
    "CleanRL's name": (lambda: DQN(ESCAPE, end_e=0.1), "here it is exploration_final."),
    "a name that counts otherwise": (
        lambda: DQN(ESCAPE, target_update_interval=9),
        "here it is target_every, which counts updates.",
    ),
    "the paper's step": (lambda: DQN(ESCAPE, step_size=1e-3), "did you mean learning_rate?"),
    "short for the step": (lambda: LKTD(ESCAPE, lr=1e-3), "did you mean learning_rate?"),
    "a device": (lambda: DQN(ESCAPE, device="cuda"), "JAX_PLATFORMS"),
    "truth for layers": (lambda: DQN(ESCAPE, hidden=True), "hidden is wrong"),
    "empty layer": (lambda: DQN(ESCAPE, hidden=(8, 0)), "hidden.1 is wrong"),
    "array for layers": (lambda: DQN(ESCAPE, hidden=np.zeros((3, 3))), "hidden"),
    "negative step size": (lambda: LKTD(ESCAPE, step_size=-1.0), "greater than 0, not -1.0"),
    "no step size": (lambda: LKTD(ESCAPE, step_size=float("nan")), "step_size is wrong"),
    "discount above one": (lambda: KOVA(ESCAPE, discount=1.5), "less than or equal to 1"),
    "alpha of one": (lambda: LKTD(ESCAPE, alpha=1.0), "alpha is wrong: Input should be less"),
    "unknown form": (lambda: SGHMC(ESCAPE, form="td"), "'sarsa_target' or 'expected_sarsa'"),
    "unknown activation": (lambda: DQN(ESCAPE, activation="swish"), "activation is wrong"),
    "no heads": (lambda: BootDQN(ESCAPE, heads=0), "heads is wrong"),
    "no seeds": (lambda: DQN(ESCAPE, seeds=0), "seeds must be an integer of at least 1, not 0"),
    "seeds in text": (lambda: DQN(ESCAPE, seeds="3"), "seeds must be an integer"),
    "negative seed": (lambda: DQN(ESCAPE, seed=-1), "seed must be an integer of at least 0"),
    "huge seed": (lambda: DQN(ESCAPE, seed=2**32), "below 2^32"),
    "unknown environment": (lambda: DQN("NoSuch-v0"), "no environment 'NoSuch-v0'"),
    "unknown namespace": (lambda: DQN("nowhere/NoSuch-v0"), "no environment 'nowhere/NoSuch-v0'"),
    "old version": (lambda: DQN("CartPole-v9", **SMALL), "CartPole-v9"),
    "option of JAX's": (lambda: DQN("CartPole-v1", env_options={"size": 1}), "cannot be made"),
    "option of Gymnasium's": (
        lambda: DQN("CartPole-v1", env_options={"size": 1}, backend="host"),
        "CartPole-v1 cannot be made",
    ),
    "options for an object": (lambda: DQN(Counter, env_options={"last": 3}), "given by its id"),
    "a number as environment": (lambda: DQN(5), "not int"),
    "no environment": (lambda: DQN(None), "not NoneType"),
    "a function of nothing": (lambda: DQN(lambda: 3), "returned no gymnasium.Env but a int"),
    "a function of a JAX one": (lambda: DQN(lambda: ESCAPE), "returned no gymnasium.Env"),
    "an object for two": (lambda: DQN(Counter(), seeds=2), "cannot serve 2 runs"),
    "a vector of another size": (
        lambda: DQN(SyncVectorEnv([Counter] * 3), environments=2),
        "has 3 environments, and 2 are needed",
    ),
    "continuous actions": (lambda: DQN(Continuous, **SMALL), "Box"),
    "words as observations": (lambda: DQN(Wordy, **SMALL), "space of type Text"),
    "large kernels": (
        lambda: DQN(Picture, convolutions=((4, 9, 1),), **SMALL),
        "too small for a kernel of 9",
    ),
    "a tiny image": (lambda: DQN(lambda: Picture(1), **SMALL), "too small for a convolution"),
    "unknown backend": (lambda: DQN(ESCAPE, backend="gpu"), "backend is one of auto, compiled"),
    "compiled for the host's": (
        lambda: DQN("Taxi-v3", backend="compiled"),
        "'Taxi-v3' does not exist in JAX",
    ),
    "host for JAX's": (lambda: DQN(ESCAPE, backend="host"), "takes the compiled trainer"),
}

USING = {
    "no steps": (lambda: in_jax().learn(0), "total_timesteps must be an integer of at least 1"),
    "negative steps": (lambda: in_jax().learn(-5), "total_timesteps"),
    "steps in text": (lambda: in_jax().learn("many"), "total_timesteps"),
    "half a step": (lambda: in_jax().learn(0.5), "total_timesteps"),
    "report never": (lambda: in_jax().learn(8, report_every=0), "report_every"),
    "report backwards": (lambda: in_jax().learn(8, report_every=-4), "report_every"),
    "evaluate backwards": (lambda: in_jax().learn(8, evaluate_every=-4), "evaluate_every"),
    "evaluate nothing": (
        lambda: in_jax().learn(8, evaluate_every=4, evaluation_episodes=0),
        "evaluation_episodes",
    ),
    "track never": (lambda: in_jax().learn(8, track_every=0), "track_every"),
    "track one": (lambda: in_jax().learn(8, track=[0.5, 0.5]), "wrap a single one: [obs]"),
    "track another shape": (
        lambda: in_jax().learn(8, track=np.zeros((2, 3))),
        "has the shape (2, 3)",
    ),
    "track one, on the host": (
        lambda: on_host().learn(8, track=np.zeros(2, np.float32)),
        "wrap a single one: [obs]",
    ),
    "track none": (lambda: on_host().learn(8, track=[]), "at least one observation"),
    "evaluate an object": (lambda: with_dict().evaluate(1), "an environment of its own"),
    "evaluate an object later": (
        lambda: with_dict().learn(8, evaluate_every=4),
        "an environment of its own",
    ),
    "no episodes": (lambda: in_jax().evaluate(0), "episodes must be an integer of at least 1"),
    "evaluation seed": (lambda: on_host().evaluate(1, seed=-1), "seed must be an integer"),
    "member too high": (lambda: in_jax().predict(np.zeros(2), member=2), "2 seeds, so no member 2"),
    "member too low": (lambda: in_jax().posterior(np.zeros(2), member=-1), "no member -1"),
    "member in text": (lambda: in_jax().predict(np.zeros(2), member="0"), "no member '0'"),
    "NaN": (lambda: in_jax().predict([np.nan, 0]), "holds a NaN"),
    "infinity": (lambda: in_jax().posterior([[np.inf, 0]]), "an infinity"),
    "NaN, on the host": (lambda: on_host().predict(np.array([np.nan, 0])), "nan came"),
    "wrong shape": (
        lambda: in_jax().predict(np.zeros(3)),
        "An observation of IndoorEscape is 2 numbers, and a batch of n has the shape (n, 2); "
        "what came has the shape (3,).",
    ),
    "too many axes": (lambda: in_jax().predict(np.zeros((2, 2, 2))), "has the shape (2, 2, 2)"),
    "wrong shape, on the host": (
        lambda: on_host().predict(np.zeros(3)),
        "An observation of Counter is 2 numbers, and a batch of n has the shape (n, 2); "
        "what came has the shape (3,).",
    ),
    "wrong batch, on the host": (
        lambda: on_host().predict([[1, 2, 3], [1, 2, 3]]),
        "what came has the shape (2, 3).",
    ),
    "what reset returns": (lambda: in_jax().predict((np.zeros(2), {})), "info = env.reset()"),
    "what reset returns, on the host": (
        lambda: on_host().predict(Counter().reset()),
        "a pair of an observation of Counter and its info",
    ),
    "what reset returns, of a dict": (
        lambda: with_dict().predict(Marked().reset()),
        "a pair of an observation of Marked and its info",
    ),
    "text": (lambda: in_jax().predict("left"), "what came is a str"),
    "text, on the host": (lambda: on_host().predict("left"), "In Counter, the observation should"),
    "none": (lambda: on_host().predict(None), "In Counter, the observation should be"),
    "array for a dict": (lambda: with_dict().predict(np.zeros(3)), "should be a dict"),
    "missing key": (lambda: with_dict().predict({"mark": 0}), "lacks the key 'place'"),
    "wrong part": (
        lambda: with_dict().predict({"mark": 2, "place": np.zeros(1)}),
        "should be from 0 to 1",
    ),
    "mask of another size": (
        lambda: in_jax().predict(np.zeros(2), action_mask=[True] * 3),
        "action_mask is 4 booleans",
    ),
    "mask without action": (
        lambda: in_jax().predict(np.zeros(2), action_mask=[False] * 4),
        "allows no action",
    ),
    "level of one": (lambda: in_jax().posterior(np.zeros(2)).interval(1.0), "between 0 and 1"),
    "level in percent": (lambda: in_jax().posterior(np.zeros(2)).interval(95), "95 does not"),
    "unknown interval": (
        lambda: in_jax().posterior(np.zeros(2)).interval(kind="confidence"),
        "'value', 'return', 'credible' or 'prediction', not 'confidence'",
    ),
    "nothing tracked": (lambda: on_host().tracking().mean(), "Nothing was tracked"),
    "nothing drawn": (lambda: on_host().tracking().plot(), "Nothing was tracked"),
    "a window of nothing": (lambda: on_host().tracking().mean(0), "at least one record, not 0"),
}


@pytest.mark.parametrize("what", MAKING)
def test_making(what):
    make, telling = MAKING[what]
    with pytest.raises((ValueError, TypeError)) as error:
        make()
    assert telling in one_sentence(error)


@pytest.mark.parametrize("what", USING)
def test_using(what):
    use, telling = USING[what]
    with pytest.raises((ValueError, TypeError)) as error:
        use()
    assert telling in one_sentence(error)


@pytest.mark.parametrize(
    ("wrong", "telling"),
    [
        ({"observation": np.array([np.nan, 0])}, "nan came"),
        ({"observation": np.zeros(3)}, "(3,) came"),
        ({"observation": {"a": 1}}, "dict"),
        ({"reward": float("nan")}, "reward that is no finite number: nan"),
        ({"reward": float("inf")}, "reward that is no finite number: inf"),
    ],
    ids=["NaN", "shape", "type", "NaN reward", "infinite reward"],
)
def test_an_environment_that_goes_wrong(wrong, telling):
    agent = DQN(lambda: Broken(**wrong), **SMALL)
    with pytest.raises(ValueError, match="Broken") as error:
        agent.learn(8)
    assert telling in one_sentence(error)


def test_a_wrong_observation_names_the_environment_and_the_step():
    one = DQN(lambda: Broken(observation=np.zeros(3)), **SMALL)
    several = DQN(SyncVectorEnv([lambda: Broken(observation=[np.nan, 0])] * 2), **SMALL)
    with pytest.raises(ValueError, match="should have the shape") as error:
        one.learn(16)
    assert one_sentence(error).startswith("What Broken returned in step 3 is wrong: the obs")
    with pytest.raises(ValueError, match="finite") as error:
        several.learn(16)
    assert one_sentence(error).startswith("What SyncVectorEnv returned in step 3 is wrong: the obs")


def test_a_number_of_units_is_one_layer():
    assert DQN(ESCAPE, hidden=8).options.hidden == (8,)
    assert DQN(ESCAPE, hidden=[8, 4]).options.hidden == (8, 4)


# -- files ----------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "agent.safetensors"
    on_host().save(path)
    return path


def message_of(path, **options):
    with pytest.raises(ModelFileError) as error:
        load(path, **options)
    text = one_sentence(error)
    assert str(path) in text
    return text


def test_a_file_that_is_not_there(tmp_path):
    assert "does not exist" in message_of(tmp_path / "none.safetensors")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9])
def test_a_file_cut_short(saved, share):
    data = saved.read_bytes()
    saved.write_bytes(data[: int(share * len(data))])
    assert "is damaged" in message_of(saved, env=Counter)


def test_a_foreign_file(tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(safetensors.numpy.save({"w": np.zeros(3)}))
    assert "not a model of valuetrack" in message_of(path)
    path.write_text("hello, this is not a model")
    assert "not a model of valuetrack" in message_of(path)


def test_a_file_of_another_algorithm(tmp_path):
    path = tmp_path / "agent.safetensors"
    save(path, {}, {"algorithm": "ppo"})
    assert "unknown algorithm 'ppo'" in message_of(path)
    save(path, {}, {"algorithm": ["ppo"]})
    assert "unknown algorithm ['ppo']" in message_of(path)


def test_a_file_with_an_incomplete_description(saved, tmp_path):
    arrays, description = read(saved)
    for key in description:
        path = tmp_path / f"{key}.safetensors"
        save(path, arrays, {name: value for name, value in description.items() if name != key})
        if key in ("version", "spaces"):  # older files have no spaces
            assert load(path, env=Counter).num_timesteps == 0
        else:
            text = message_of(path, env=Counter)
            assert "incomplete" in text or "unknown algorithm None" in text
    for key, wrong in (("options", 3), ("seeds", "x"), ("task", None), ("env_options", 5)):
        save(saved, arrays, {**description, key: wrong})
        assert "incomplete" in message_of(saved, env=Counter)
    save(saved, arrays, {**description, "options": {"hidden": [0]}})
    assert "hidden.0 is wrong" in message_of(saved, env=Counter)


def test_a_file_with_arrays_that_do_not_fit(saved):
    arrays, description = read(saved)
    for name in (
        "clock.cycles",
        "learned.learner.sampler.params.body.0.w",
        "learned.pool.weights",
        "replay.action",
    ):
        fewer = {key: array for key, array in arrays.items() if key != name}
        save(saved, fewer, description)
        assert "is damaged" in message_of(saved, env=Counter)
        save(saved, {**arrays, name: np.zeros((7, 7))}, description)
        assert "is damaged" in message_of(saved, env=Counter)


def test_a_file_without_an_environment_can_only_be_asked(saved):
    agent = load(saved)
    assert np.isfinite(agent.posterior(agent.observation_space.sample()).mean).all()
    with pytest.raises(
        ValueError, match=r"valuetrack.load\(path, env=...\) lets it play and learn"
    ):
        agent.learn(10)


def test_a_file_with_another_environment(saved):
    text = message_of(saved, env=Marked)
    assert "observations of shape (2,) and 3 actions" in text
    assert "has (3,) and 4" in text


def test_a_file_with_no_environment_at_all(saved):
    with pytest.raises(TypeError, match="not int"):
        load(saved, env=5)
    assert "no environment 'NoSuch-v0'" in message_of(saved, env="NoSuch-v0")


def test_an_error_of_the_environment_is_not_the_files(saved):
    def builder():
        raise KeyError("my own mistake")

    with pytest.raises(EnvironmentFailedError, match="my own mistake") as caught:
        load(saved, env=builder)
    assert isinstance(caught.value.__cause__, KeyError)


def test_saving_where_there_is_no_folder(tmp_path):
    with pytest.raises(ModelFileError, match="its folder does not exist"):
        on_host().save(tmp_path / "none" / "agent.safetensors")
    with pytest.raises(ModelFileError, match="is a folder"):
        on_host().save(tmp_path)


def test_options_that_json_cannot_hold(tmp_path):
    gymnasium.register("tests/Counter-v0", lambda **options: Counter())
    try:
        agent = DQN("tests/Counter-v0", env_options={"thing": object()}, **SMALL)
        agent.save(tmp_path / "agent.safetensors")
        with pytest.raises(ValueError, match="loaded without its environment"):
            load(tmp_path / "agent.safetensors").learn(1)
        load(tmp_path / "agent.safetensors", env=Counter)
    finally:
        del gymnasium.registry["tests/Counter-v0"]
