"""What the agents with a target network and a point estimate share."""

from __future__ import annotations

from collections.abc import Callable

from valuetrack import samplers
from valuetrack.api.options import (
    Count,
    CountOrZero,
    Options,
    Positive,
    PositiveShare,
    Rate,
    Share,
    as_rate,
    default_of,
)
from valuetrack.samplers.base import Sampler
from valuetrack.schedules import linear
from valuetrack.types import Array, Keywords, Params, Tree


class TargetNetworkOptions(Options):
    """What the agents with a target network and a point estimate share.

    Attributes
    ----------
    learning_rate
        Of the optimiser: a number, or a schedule such as
        ``{"schedule": "linear", "initial": 1e-3, "updates": 20000}``.
    double
        Whether the network itself chooses the maximising action, and the target network only
        says what it is worth.
    target_every, tau
        The target network is refreshed every this many updates: it moves towards the network by
        the share ``tau``. 1 makes it a copy.
    """

    learning_rate: Rate = 5e-4
    double: bool = True
    target_every: Count = 250
    tau: PositiveShare = 1.0


class GradientOptions(TargetNetworkOptions):
    """What the agents that follow a gradient with Adam share.

    Attributes
    ----------
    max_gradient_norm
        Gradients are clipped to this norm; ``None`` for no clipping.
    adam_epsilon
        What Adam adds to the root of its second moments.
    prioritised
        alpha: transitions are drawn in proportion to their last error to this power. 0 draws all
        evenly; see :mod:`valuetrack.replay.prioritised`.
    importance, importance_updates
        beta, how far weights undo what is drawn more often: it rises linearly from the first to 1
        over this many updates. Of no use without ``prioritised``.
    """

    max_gradient_norm: Positive | None = 10.0
    adam_epsilon: Positive = default_of(samplers.adam, "epsilon")
    prioritised: Share = 0.0
    importance: Share = 0.4
    importance_updates: CountOrZero = 10_000

    def priorities(self) -> Keywords:
        """Return the trainer's settings of a prioritised replay memory, if there is one."""
        if not self.prioritised:
            return {}
        importance = linear(self.importance, 1.0, self.importance_updates)
        return {"prioritised": self.prioritised, "importance": importance}

    def optimiser(
        self,
        loss: Callable[[Params, Tree], Array],
        errors: Callable[[Params, Tree], Array],
        **own: Tree,
    ) -> Sampler:
        """Return Adam with these options; ``own`` are further ones of :func:`samplers.adam`.

        ``errors`` are those by which a prioritised memory draws.
        """
        return samplers.adam(
            loss,
            errors=errors if self.prioritised else None,
            learning_rate=as_rate(self.learning_rate),
            max_gradient_norm=self.max_gradient_norm,
            epsilon=self.adam_epsilon,
            **own,
        )
