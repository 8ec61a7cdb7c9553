"""What the agents with a target network and a point estimate share."""

from __future__ import annotations

from valuetrack.api.options import Count, Options, Positive, Rate


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
    target_every
        The target network is refreshed every this many updates.
    """

    learning_rate: Rate = 5e-4
    double: bool = True
    target_every: Count = 250


class GradientOptions(TargetNetworkOptions):
    """What the agents that follow a gradient with Adam share.

    Attributes
    ----------
    max_gradient_norm
        Gradients are clipped to this norm; ``None`` for no clipping.
    """

    max_gradient_norm: Positive | None = 10.0
