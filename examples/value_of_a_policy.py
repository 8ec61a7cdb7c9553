"""Track the value of a policy of your own: how long the pole will stand, and how sure that is."""

import jax.numpy as jnp

import valuetrack as vt


def policy(observation):
    """Push the cart towards where the pole leans, with probability 0.8."""
    right = jnp.where(observation[2] > 0, 0.8, 0.2)
    return jnp.stack([1 - right, right])


tracker = vt.ValueTracker(
    "CartPole-v1", policy, probabilities=True,  # a pure JAX function trains compiled
    discount=0.95, hidden=(32, 32), step_size=1e-4, likelihood_weight=2.0,
    samples=300, thinning=2, seed=0,
)  # fmt: skip
tracker.learn(15_000)
for name, lean in {"upright": 0.0, "leaning": 0.15, "nearly over": 0.2}.items():
    v = tracker.posterior([0.0, 0.0, lean, 0.5])
    low, high = v.interval(0.95)
    print(f"{name}: V = {v.solved.mean:.1f}, 95 % between {low:.1f} and {high:.1f}")

played = tracker.play(50)  # compare values with what comes of them
print(f"start: V = {played.start_values.mean():.1f}", end=", ")
print(f"discounted return {played.discounted_returns.mean():.1f}")

# Q(s, a) needs actions that the policy does not take; explored or not, the values are its own.
q = vt.ValueTracker("CartPole-v1", lambda seen: int(seen[2] > 0), of="q", explore=0.2, seed=0)
print("Q of a Python function:", q.learn(2_000).posterior([0.0, 0.0, 0.15, 0.5]).mean.round(1))
