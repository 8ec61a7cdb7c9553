"""Indoor escape for Gymnasium: the general wrapper, and how the grid is drawn."""

from __future__ import annotations

import importlib
from typing import Any, SupportsIndex

import numpy as np
from gymnasium.error import DependencyNotInstalled, ResetNeeded
from numpy.typing import NDArray

from valuetrack.envs.gym.from_jax import JaxEnv
from valuetrack.envs.indoor_escape import Cell, IndoorEscape
from valuetrack.types import Json

Observation = NDArray[np.float32]
Frame = NDArray[np.uint8]

_FRAME_PIXELS = 512
_FLOOR, _LINE = (250, 248, 243), (226, 222, 212)
_WALL, _GOAL = (68, 76, 92), (74, 168, 117)
_START, _START_RING = (214, 229, 245), (106, 154, 204)
_AGENT, _AGENT_RIM = (232, 119, 54), (150, 66, 20)


class IndoorEscapeEnv(JaxEnv):
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
        self.grid = IndoorEscape(**options)
        super().__init__(self.grid, render_mode=render_mode)
        self._window = _Window(self.metadata["render_fps"]) if render_mode == "human" else None

    def reset(
        self, *, seed: int | None = None, options: Json | None = None
    ) -> tuple[Observation, Json]:
        """Start an episode; ``options`` is ignored, for the start is fixed."""
        started = super().reset(seed=seed, options=options)
        self._show()
        return started

    def step(self, action: SupportsIndex) -> tuple[Observation, float, bool, bool, Json]:
        """Take one step."""
        arrived = super().step(action)
        self._show()
        return arrived

    def render(self) -> Frame | str | None:
        """Return an image or text, or ``None`` after showing the window."""
        if self.state is None:
            raise ResetNeeded("No episode has begun; call reset() before render().")
        y, x = divmod(int(self.state.cell), self.grid.width)
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

    def _show(self) -> None:
        if self._window is not None:
            self.render()


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
