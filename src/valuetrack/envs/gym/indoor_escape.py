"""Indoor escape for Gymnasium: the same pure functions behind its stateful interface."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any, SupportsIndex

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled, InvalidAction, ResetNeeded
from numpy.typing import NDArray

from valuetrack.envs.indoor_escape import Cell, EscapeState, IndoorEscape
from valuetrack.types import Array, Json

Observation = NDArray[np.float32]
Frame = NDArray[np.uint8]
Packed = tuple[EscapeState, Array]

_FRAME_PIXELS = 512
_FLOOR, _LINE = (250, 248, 243), (226, 222, 212)
_WALL, _GOAL = (68, 76, 92), (74, 168, 117)
_START, _START_RING = (214, 229, 245), (106, 154, 204)
_AGENT, _AGENT_RIM = (232, 119, 54), (150, 66, 20)


@lru_cache(maxsize=64)
def _compile(grid: IndoorEscape) -> tuple[Callable[..., Packed], Callable[..., Packed]]:
    """Compile reset and step, once for all environments with equal options.

    Both return the next state and, in one float32 vector, all that the caller sees: observation,
    action mask, reward, terminated, truncated. One small transfer is three times as fast as five.
    """

    def pack(state: EscapeState, *rest: Array) -> Packed:
        parts = [grid.observe(state), grid.action_mask(state), jnp.stack(rest)]
        return state, jnp.concatenate([part.astype(jnp.float32) for part in parts])

    def reset(uniforms: Array) -> Packed:
        return pack(grid.reset(uniforms), *jnp.zeros(3))

    def step(state: EscapeState, action: Array, uniforms: Array) -> Packed:
        result = grid.step(state, action, uniforms)
        return pack(result.state, result.reward, result.terminated, result.truncated)

    return jax.jit(reset), jax.jit(step)


class IndoorEscapeEnv(gymnasium.Env[Observation, np.int64]):
    """The indoor escape environment behind Gymnasium's interface.

    Parameters
    ----------
    render_mode : {"human", "rgb_array", "ansi"}, optional
        What `render` gives: a window (needs pygame), an image, or text. North is up.
    **options
        The options of `valuetrack.envs.indoor_escape.IndoorEscape`.

    Notes
    -----
    ``info["action_mask"]`` holds ones where an action is legal, in the form that
    ``action_space.sample(mask)`` takes. An illegal action is not an error: the agent stays where it
    is and pays for the step. The environment counts its steps itself, so that it needs no
    time-limit wrapper. All randomness comes from ``np_random``, which ``reset(seed=...)`` seeds.

    Examples
    --------
    >>> import gymnasium, valuetrack.envs
    >>> env = gymnasium.make("valuetrack/IndoorEscape-v0", width=4, height=3)
    >>> observation, info = env.reset(seed=1)
    >>> action = env.action_space.sample(info["action_mask"])
    >>> observation, reward, terminated, truncated, info = env.step(action)
    """

    # Gymnasium declares it so.
    metadata: Json = {"render_modes": ["human", "rgb_array", "ansi"], "render_fps": 8}  # noqa: RUF012

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        modes = self.metadata["render_modes"]
        if render_mode is not None and render_mode not in modes:
            raise ValueError(f"render_mode must be None or one of {modes}, but is {render_mode!r}.")
        self.grid = IndoorEscape(**options)
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0.0, 1.0, self.grid.observation_shape, np.float32)
        self.action_space = spaces.Discrete(self.grid.num_actions)
        self._reset, self._step = _compile(self.grid)
        self._state: EscapeState | None = None
        self._over = False
        self._window = _Window(self.metadata["render_fps"]) if render_mode == "human" else None

    def reset(
        self, *, seed: int | None = None, options: Json | None = None
    ) -> tuple[Observation, Json]:
        """Start an episode; ``options`` is ignored, for the start is fixed."""
        super().reset(seed=seed, options=options)
        observation, info, _ = self._arrive(self._reset(self._uniforms(self.grid.reset_uniforms)))
        return observation, info

    def step(self, action: SupportsIndex) -> tuple[Observation, float, bool, bool, Json]:
        """Take one step."""
        if self._state is None or self._over:
            why = "No episode has begun" if self._state is None else "The episode has ended"
            raise ResetNeeded(f"{why}; call reset() before step().")
        # Checked first: an action that is refused must not use up randomness.
        checked = self._checked(action)
        uniforms = self._uniforms(self.grid.step_uniforms)
        arrived = self._arrive(self._step(self._state, checked, uniforms))
        observation, info, (reward, terminated, truncated) = arrived
        return observation, reward, bool(terminated), bool(truncated), info

    def render(self) -> Frame | str | None:
        """Return an image or text, or ``None`` after showing the window."""
        if self._state is None:
            raise ResetNeeded("No episode has begun; call reset() before render().")
        y, x = divmod(int(self._state.cell), self.grid.width)
        if self.render_mode == "ansi":
            return write(self.grid, (x, y))
        if self.render_mode == "rgb_array":
            return draw(self.grid, (x, y))
        if self._window is not None:
            self._window.show(draw(self.grid, (x, y)))
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            self._window.close()

    def _arrive(self, packed: Packed) -> tuple[Observation, Json, list[float]]:
        """Keep the state; return the observation, the info, and reward, terminated, truncated."""
        self._state, vector = packed
        seen = np.asarray(vector)
        self._over = bool(seen[-2:].any())
        if self._window is not None:
            self.render()
        return seen[:2].copy(), {"action_mask": seen[2:-3].astype(np.int8)}, seen[-3:].tolist()

    def _uniforms(self, count: int) -> NDArray[np.float32]:
        return self.np_random.random(count, dtype=np.float32)

    def _checked(self, action: SupportsIndex) -> np.int32:
        try:
            number = operator.index(action)
        except TypeError:
            raise InvalidAction(f"The action must be an integer, but is {action!r}.") from None
        if not 0 <= number < self.grid.num_actions:
            last = self.grid.num_actions - 1
            raise InvalidAction(f"The action must lie between 0 and {last}, but is {number}.")
        return np.int32(number)


def write(grid: IndoorEscape, agent: Cell) -> str:
    """Return the grid as text, north up: A agent, S start, G goal, # wall, . floor."""
    rows = [["."] * grid.width for _ in range(grid.height)]
    marks = [*((cell, "#") for cell in grid.walls), (grid.start, "S"), (grid.goal_position, "G")]
    for (x, y), mark in [*marks, (agent, "A")]:
        rows[y][x] = mark
    return "\n".join(" ".join(row) for row in reversed(rows)) + "\n"


def draw(grid: IndoorEscape, agent: Cell) -> Frame:
    """Return the grid as an image of shape (pixels, pixels, 3), north up."""
    side = max(_FRAME_PIXELS // max(grid.width, grid.height), 8)
    edge = max(side // 32, 1)
    image = np.empty((grid.height * side + edge, grid.width * side + edge, 3))
    image[:] = _FLOOR
    for offset in range(edge):
        image[offset::side] = image[:, offset::side] = _LINE

    def tile(cell: Cell, margin: int = 0) -> NDArray[np.float64]:
        x, y = cell
        top, left = (grid.height - 1 - y) * side + edge + margin, x * side + edge + margin
        inner = side - edge - 2 * margin
        return image[top : top + inner, left : left + inner]

    for cell in grid.walls:
        # A negative margin covers the grid lines, so that adjoining walls look like one.
        tile(cell, -edge)[:] = _WALL
    tile(grid.start)[:] = _START
    _disc(tile(grid.start), 0.62, _START_RING)
    _disc(tile(grid.start), 0.46, _START)
    tile(grid.goal_position)[:] = _GOAL
    _chequer(tile(grid.goal_position, side // 6))
    _disc(tile(agent), 0.68, _AGENT_RIM)
    _disc(tile(agent), 0.58, _AGENT)
    return image.round().astype(np.uint8)


def _disc(tile: NDArray[np.float64], radius: float, colour: tuple[int, int, int]) -> None:
    """Blend a disc into the middle of a tile; ``radius`` is relative to half its side."""
    half = len(tile) / 2
    offsets = np.arange(len(tile)) + 0.5 - half
    # A rim one pixel wide, in proportion to how much of the pixel lies inside, hides the steps.
    cover = np.clip(radius * half - np.hypot(offsets[:, None], offsets) + 0.5, 0.0, 1.0)[..., None]
    tile[:] = (1.0 - cover) * tile + cover * np.array(colour)


def _chequer(tile: NDArray[np.float64]) -> None:
    """Paint a flag of four by four squares over a tile."""
    square = np.arange(len(tile)) * 4 // len(tile)
    tile[(square[:, None] + square) % 2 == 0] = _FLOOR


class _Window:
    """A pygame window; pygame is imported here alone, for it is optional."""

    def __init__(self, fps: int) -> None:
        try:
            self._pygame: Any = importlib.import_module("pygame")
        except ImportError:
            message = "The human render mode needs pygame; install it with `pip install pygame`."
            raise DependencyNotInstalled(message) from None
        self._fps = fps
        self._screen: Any = None
        self._clock: Any = None

    def show(self, frame: Frame) -> None:
        """Show a frame and wait for its share of a second."""
        pygame = self._pygame
        if self._screen is None:
            pygame.display.init()
            self._screen = pygame.display.set_mode(frame.shape[1::-1])
            pygame.display.set_caption("Indoor escape")
            self._clock = pygame.time.Clock()
        # pygame's first axis is x.
        self._screen.blit(pygame.surfarray.make_surface(frame.swapaxes(0, 1)), (0, 0))
        pygame.event.pump()
        pygame.display.flip()
        self._clock.tick(self._fps)

    def close(self) -> None:
        """Close the window; harmless if it was never opened or is closed already."""
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None
