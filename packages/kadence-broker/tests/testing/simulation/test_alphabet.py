"""Stories drawn from the alphabet: the reference model objects to none, and what the table has happens."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from types import FunctionType
from typing import Any

import pytest
from tests.luck import seeds
from tests.testing.simulation.alphabet.ledger import Ledger, Log
from tests.testing.simulation.alphabet.story import Story
from tests.testing.simulation.alphabet.table import CALLS, LOOKS, PLACES, ROWS, Row

from kadence import AsyncConsumer
from kadence.errors import WakeupError
from kadence_testing.simulation import SimulationError

Happened = Counter[Row]


def play(first: int, count: int) -> tuple[Happened, list[str]]:
    """How often each row happened in these stories, and what the model objected to."""
    rows: Happened = Counter()
    objections = []
    logging.disable(logging.CRITICAL)
    for seed in range(first, first + count):
        story = Story(seed)
        try:
            story.run()
        except SimulationError as error:
            objections.append(str(error))
        rows.update(story.happened)
    logging.disable(logging.NOTSET)
    return rows, objections


def test_no_story_breaks_a_rule() -> None:
    """A third of the rows happens in so few stories; the test below and `make soak-alphabet` see to all."""
    dealt = seeds(30)
    rows, objections = play(dealt[0], len(dealt))
    assert not objections, "\n".join(objections)
    assert {row.place for row in rows} >= {"", "anywhere", *PLACES}
    assert len(rows) > 0.25 * len(ROWS)


@pytest.mark.heavy
@pytest.mark.timeout(1_800)
def test_every_row_of_the_table_happens() -> None:
    rows, objections = play(100, 900)
    assert not objections, "\n".join(objections)
    assert not [str(row) for row in ROWS if not rows[row]]


def test_the_table_has_every_call_of_a_consumer() -> None:
    kinds = (FunctionType, property, staticmethod)
    members = {name: each for base in AsyncConsumer.__mro__ for name, each in vars(base).items()}
    calls = {name for name, each in members.items() if isinstance(each, kinds) and not name.startswith("_")}
    assert calls == {*CALLS, *LOOKS}


def test_the_model_objects_to_a_poll_that_a_wakeup_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the guide's loop, too: its calls of the producer do not count, and its polls do."""
    poll = AsyncConsumer.poll

    async def hangs(consumer: AsyncConsumer[Any, Any], *given: Any, **more: Any) -> Any:
        try:
            return await poll(consumer, *given, **more)
        except WakeupError:
            await asyncio.sleep(50)
            raise

    monkeypatch.setattr(AsyncConsumer, "poll", hangs)
    with pytest.raises(SimulationError, match=r"a call that wakeup\(\) ends has taken"):
        Story(0, ("b", [Row("wakeup", "b", "between")])).run()


def test_the_model_objects_to_a_range_whose_commits_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time counts from the rest of all programs: one that reads a range again handles again what has ended."""
    commits = Ledger.commits

    def comes_no_further(ledger: Ledger) -> list[Log]:
        for log in (changed := commits(ledger)):
            ledger.committed[log] = (min(ledger.committed[log][0], 1), "")
        return changed

    monkeypatch.setattr(Ledger, "commits", comes_no_further)
    with pytest.raises(SimulationError, match="ms ago, and is not committed"):
        Story(0, ("r", [Row("commit", "r", "beside")])).run()
