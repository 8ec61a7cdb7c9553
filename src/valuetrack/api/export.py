"""Policies as files for programs without this library: ONNX, and StableHLO of ``jax.export``."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.export
import jax.numpy as jnp

from valuetrack.io.atomic import write_atomically
from valuetrack.policies import greedy
from valuetrack.training.evaluation import values_key
from valuetrack.types import Array

if TYPE_CHECKING:
    from valuetrack.api.playing import Player

Policy = Callable[[Array], tuple[Array, Array]]
"""(encoded observations) -> values (n, actions) and greedy actions (n,)."""
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
"""Where a file of ``jax.export`` runs."""
ONNX, STABLEHLO = ".onnx", (".stablehlo", ".bin")


def export(agent: Player, path: str | os.PathLike[str], member: int) -> None:
    """Write what a seed of an agent believes and does into a file; see ``Agent.export``."""
    suffix = Path(path).suffix.lower()
    if suffix not in (ONNX, *STABLEHLO):
        raise ValueError(
            f"The name of an exported policy ends in {', '.join((ONNX, *STABLEHLO))}, not in "
            f"{suffix or 'nothing'!r}."
        )
    policy = policy_of(agent, member)
    (n,) = jax.export.symbolic_shape("n")  # observations in a batch
    batch = jax.ShapeDtypeStruct((n, *agent.env.task.shape), agent.env.dtype)  # type: ignore[no-untyped-call]
    content = as_onnx(policy, batch) if suffix == ONNX else as_stablehlo(policy, batch)
    write_atomically(Path(path), lambda file: file.write(content))


def policy_of(agent: Player, member: int) -> Policy:
    """Return a seed's values and greedy actions as a pure function, parameters included."""
    learner, state, first = agent.actor.learner, agent.actor.member(member), agent.env.actions.first

    def policy(observations: Array) -> tuple[Array, Array]:
        values = jnp.mean(learner.values(values_key(), state, observations), axis=0)
        chosen = greedy(values, jnp.ones(values.shape, bool))
        return values, (chosen + first).astype(jnp.int32)

    return policy


def as_onnx(policy: Policy, batch: jax.ShapeDtypeStruct) -> bytes:
    """Return a policy as an ONNX model with one input and two outputs, for batches of any size."""
    try:
        import jax2onnx  # noqa: PLC0415 - an extra, as the next
        import onnx  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("jax2onnx is missing: pip install 'valuetrack[onnx]'.") from error
    names = {"input_names": ["observations"], "output_names": ["values", "actions"]}
    with _quiet(logging.getLogger("onnx_ir")):
        model = jax2onnx.to_onnx(policy, [batch], **names)
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise ValueError(
            "ONNX lacks an operation of this policy, such as the random numbers of IQN; write a "
            ".stablehlo file instead."
        ) from error
    content: bytes = model.SerializeToString()
    return content


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Keep a library from telling of what it leaves out of a file and nobody needs."""
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def as_stablehlo(policy: Policy, batch: jax.ShapeDtypeStruct) -> bytes:
    """Return a policy as ``jax.export`` serialises it, for batches of any size."""
    exported = jax.export.export(jax.jit(policy), platforms=PLATFORMS)(batch)
    return bytes(exported.serialize())
