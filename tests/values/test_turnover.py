"""How many transitions an average has seen, against counting them."""

from __future__ import annotations

import numpy as np
import pytest

from valuetrack.values.turnover import seen


@pytest.mark.parametrize(("window", "memory"), [(300, 100), (100, 100), (40, 200), (1, 50)])
def test_it_counts_like_a_loop(window, memory):
    drawn = np.zeros(1_000)
    for now in range(1_000 - window, 1_000):
        drawn[now + 1 - memory : now + 1] += 1
    counted = drawn.sum() ** 2 / np.sum(drawn**2) / memory
    assert seen(window, memory, 1_000) == pytest.approx(counted, rel=0.01)


def test_it_is_bounded_by_what_there_was():
    assert seen(400, 100, 200) == 2.0
    assert seen(10, 100, 100) == 1.0
    assert seen(0, 100, 1_000) == 1.0
