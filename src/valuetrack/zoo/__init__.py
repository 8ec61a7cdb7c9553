"""RL Baselines3 Zoo with LKTD, SGLD and SGHMC: ``python -m valuetrack.zoo train --algo lktd``."""

from __future__ import annotations

from pathlib import Path

HYPERPARAMETERS = Path(__file__).parent / "hyperparams"
"""The folder of the files ``<algorithm>.yml``, in the zoo's format."""
