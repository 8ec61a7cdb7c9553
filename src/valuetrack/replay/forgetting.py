r"""Drawing by age: a memory that forgets.

The transition of age k (0 for the newest) is drawn with a probability in proportion to
:math:`2^{-k / h}`, where h is the half-life. So a world that has changed is learned from what came
after, and nothing is thrown away at once.
"""

from __future__ import annotations

import math
from types import ModuleType

from valuetrack.types import Tree


def drawn_ages(xp: ModuleType, uniforms: Tree, size: Tree, half_life: float) -> Tree:
    r"""Turn uniform numbers in [0, 1) into ages below ``size``, in NumPy or JAX.

    The inverse of the distribution function: :math:`k = \lfloor \log(1 - u (1 - q^n)) / \log q
    \rfloor` with :math:`q = 2^{-1 / h}` and n transitions.

    Examples
    --------
    >>> import numpy as np
    >>> drawn_ages(np, np.array([0.0, 0.51, 0.76]), 1_000, 10.0).tolist()
    [0, 10, 20]
    """
    rate = math.log(2) / half_life
    kept = -xp.expm1(-rate * xp.asarray(size))  # 1 - q^n
    ages = -xp.log1p(-xp.asarray(uniforms) * kept) / rate
    return xp.minimum(ages.astype(xp.int32), size - 1)


def remembered(half_life: float) -> int:
    """Return from about how many transitions such a memory speaks: the sum of their weights.

    Examples
    --------
    >>> remembered(1_000)
    1443
    """
    return math.ceil(half_life / math.log(2))
