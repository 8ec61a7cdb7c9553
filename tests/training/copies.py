"""Trainers that share what is compiled: tracing takes longer than the few cycles of a test."""

from __future__ import annotations

import copy

import jax
import jax.numpy as jnp

from valuetrack.training.compiled_trainer import CompiledTrainer


def fresh(built: CompiledTrainer) -> CompiledTrainer:
    """Return a trainer at the beginning, as ``built`` is, which must never run itself."""
    assert not built.clock.cycles
    trainer = copy.copy(built)
    trainer._states = jax.tree.map(jnp.copy, built._states)  # a run consumes what it gets
    return trainer
