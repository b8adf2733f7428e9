"""Random lives of a query: no row lost, none twice, each error with its ground. `lives` says what a life is."""

from __future__ import annotations

import logging
from collections import Counter

import pytest
from tests import luck
from tests.spark.source.lives.life import Life

LIVES = 50
"""For each seed."""


@pytest.mark.chance
@pytest.mark.parametrize("seed", luck.seeds(8))
def test_a_query_reads_each_row_once_whatever_happens(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "kadence")  # each story has what is lost in it already
    outcomes: Counter[str] = Counter()
    for number in range(seed * LIVES, (seed + 1) * LIVES):
        life = Life(number)
        life.live()
        outcomes += life.outcomes
    kinds = {"killed in a batch", "DataLossError", "moved from the connector", "finished", "rows"}
    assert kinds <= outcomes.keys(), "so many lives have all of these"
