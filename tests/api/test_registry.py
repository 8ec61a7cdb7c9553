"""What every agent in the registry has."""

from __future__ import annotations

import inspect
import re

import pytest

import valuetrack as vt
from valuetrack import registry
from valuetrack.api.agent import Agent
from valuetrack.registry import AGENTS
from valuetrack.report import style

EVERY = pytest.mark.parametrize("kind", AGENTS.values(), ids=AGENTS)


@EVERY
def test_an_agent_has_a_label_a_colour_and_an_example(kind):
    assert AGENTS[kind.name] is kind
    assert kind.name == kind.name.lower()
    assert style.label_of(kind.name) == kind.label
    assert style.colour_of(kind.name) == kind.colour
    assert re.fullmatch(r"#[0-9A-F]{6}", kind.colour)
    assert f"vt.{kind.__name__}(" in inspect.getdoc(kind)
    assert getattr(vt, kind.__name__) is kind


def test_labels_and_colours_tell_agents_apart():
    for name in ("label", "colour"):
        assert len({getattr(kind, name) for kind in AGENTS.values()}) == len(AGENTS)


@EVERY
def test_every_option_has_a_default_and_is_explained(kind):
    kind.options_type()
    explained = inspect.getdoc(kind.options_type)
    for name in kind.options_type.model_fields:
        assert re.search(rf"\b{name}\b", explained), name


@EVERY
def test_the_signature_shows_the_options(kind):
    shown = inspect.signature(kind).parameters
    fields = kind.options_type.model_fields
    assert list(shown) == ["env", "seed", "seeds", "env_options", "backend", *fields]
    defaults = kind.options_type()
    for name in fields:
        assert shown[name].default == getattr(defaults, name)
        assert shown[name].kind is inspect.Parameter.KEYWORD_ONLY


def test_every_subclass_is_registered_and_found_in_capitals_too():
    trackers = {registry.ValueTracker}  # which no command can give a policy
    assert set(AGENTS.values()) == set(Agent.__subclasses__()) - trackers
    assert set(registry.CLASSES.values()) == set(Agent.__subclasses__())
    assert registry.agent_type("BootDQN") is AGENTS["bootdqn"]
    with pytest.raises(ValueError, match="There is no algorithm 'ppo'; there are lktd, sghmc"):
        registry.agent_type("ppo")


def test_samplers_come_first():
    order = [kind.is_sampler for kind in AGENTS.values()]
    assert order == sorted(order, reverse=True)
    assert order.count(True) == 3


def test_the_base_class_is_no_agent():
    with pytest.raises(TypeError, match="Choose an agent"):
        Agent.build(None, None)
