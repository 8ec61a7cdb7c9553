"""How agents with several opinions of the values explore: their options."""

from __future__ import annotations

from typing import Annotated

import pydantic
from pydantic import Field

from valuetrack import behaviours
from valuetrack.api.options import Count, NotNegative, Options
from valuetrack.behaviours import Behaviour
from valuetrack.learner import Learner, Task
from valuetrack.networks import Network, with_prior_function


class ExploringOptions(pydantic.BaseModel):
    """How agents with several opinions of the values explore.

    Attributes
    ----------
    behaviour
        ``"epsilon_greedy"``; ``"thompson"``, where each episode draws one opinion and is greedy in
        it to its end; or ``"optimism"``, greedy in the upper end of the interval of the opinions.
        Opinions are parallel chains, heads, or samples of a single chain. Epsilon comes on top: set
        ``exploration_initial`` and ``exploration_final`` to 0 for the opinions alone.
    behaviour_every
        With ``"thompson"``, another opinion is drawn after this many steps of an episode, too.
    optimism_level
        Of the interval whose upper end ``"optimism"`` follows.
    prior_scale
        Size of a randomised prior function in units of the rewards: a random network of its own
        that is added to each chain or head and never learns, so that they differ where there are
        no data. About the largest value that is possible; 0 for none.
    """

    behaviour: behaviours.Kind = "epsilon_greedy"
    behaviour_every: Count | None = None
    optimism_level: Annotated[float, Field(gt=0, lt=1)] = Behaviour().level
    prior_scale: NotNegative = 0.0

    def behaving(self, learner: Learner) -> Learner:
        """Return the learner with the behaviour of these options."""
        if self.behaviour_every is not None and self.behaviour != "thompson":
            raise ValueError("behaviour_every belongs to behaviour='thompson'.")
        behaviour = Behaviour(self.behaviour, self.behaviour_every, self.optimism_level)
        return behaviours.behaving(learner, behaviour)

    def around_prior(self, network: Network, prior: Network) -> Network:
        """Return the network with a draw of ``prior`` added to it, if that is wanted."""
        return (
            with_prior_function(network, prior, self.prior_scale) if self.prior_scale else network
        )


def he_network(options: Options, task: Task, outputs: int | tuple[int, ...]) -> Network:
    """Build a network of the same shape as an agent's, with He's initialisation."""
    shaped = options.model_copy(update={"init": "he"})
    return Options.network(shaped, task, outputs)
