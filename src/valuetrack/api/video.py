"""Videos of greedy episodes: GIF files by Pillow, MP4 files by MoviePy."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from valuetrack.envs.gym import guards
from valuetrack.io.atomic import write_atomically
from valuetrack.types import NDArray

if TYPE_CHECKING:
    from valuetrack.api.agent import AnyAgent

ENDINGS = (".gif", ".mp4")
FRAMES_PER_SECOND = 30
"""Where the environment does not say how fast it is."""


def record(
    agent: AnyAgent,
    path: str | os.PathLike[str],
    *,
    episodes: int,
    seed: int,
    member: int,
    max_episode_steps: int,
) -> list[float]:
    """Play greedy episodes and write what is seen of them; return their returns."""
    target = Path(path)
    if target.suffix.lower() not in ENDINGS:
        raise ValueError(f"A video is a {' or '.join(ENDINGS)} file, not {target.name}.")
    env = agent.env.drawn()
    try:
        frames: list[NDArray] = []
        returns = [
            _episode(agent, env, frames, seed + episode, member, max_episode_steps)
            for episode in range(episodes)
        ]
        speed = float(env.metadata.get("render_fps") or FRAMES_PER_SECOND)
    finally:
        env.close()
    write = _write_gif if target.suffix.lower() == ".gif" else _write_mp4
    write(frames, target, speed)
    return returns


def _episode(
    agent: AnyAgent,
    env: gymnasium.Env[Any, Any],
    frames: list[NDArray],
    seed: int,
    member: int,
    limit: int,
) -> float:
    observation, info = guards.call(env, "reset", seed=seed)
    frames.append(_frame(env))
    total, steps, over = 0.0, 0, False
    while not over and steps < limit:
        action, _ = agent.predict(observation, action_mask=info.get("action_mask"), member=member)
        observation, reward, terminated, truncated, info = guards.call(env, "step", action)
        frames.append(_frame(env))
        total, steps, over = total + float(reward), steps + 1, bool(terminated or truncated)
    return total


def _frame(env: gymnasium.Env[Any, Any]) -> NDArray:
    try:
        frame: Any = env.render()
    except gymnasium.error.DependencyNotInstalled as error:
        raise ImportError(
            f"{guards.name_of(env)} needs more to be drawn: pip install 'valuetrack[video]'."
        ) from error
    except Exception as error:
        raise guards.failed(env, error, "render") from error
    picture = np.asarray(frame)
    if picture.ndim != 3 or picture.shape[2] != 3:
        raise ValueError(f"{guards.name_of(env)} draws no pictures of three colours.")
    return picture.astype(np.uint8)


def _write_gif(frames: list[NDArray], path: Path, speed: float) -> None:
    try:
        from PIL import Image  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError("A GIF needs Pillow: pip install 'valuetrack[video]'.") from error
    first, *rest = [Image.fromarray(frame) for frame in frames]
    content = io.BytesIO()
    length = max(20, round(1000 / speed))  # milliseconds; browsers show none for less
    first.save(
        content, "GIF", save_all=True, append_images=rest, duration=length, loop=0, optimize=False
    )
    write_atomically(path, lambda file: file.write(content.getvalue()))


def _write_mp4(frames: list[NDArray], path: Path, speed: float) -> None:
    try:
        from moviepy import ImageSequenceClip  # noqa: PLC0415 - whoever wants it has it
    except ImportError as error:
        raise ImportError("An .mp4 needs MoviePy: pip install moviepy, or write a .gif.") from error
    ImageSequenceClip(frames, fps=speed).write_videofile(str(path), logger=None)
