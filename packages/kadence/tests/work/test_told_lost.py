"""A handler that stops because its partition goes has not done its record, also where it ends within ``drain``."""

from __future__ import annotations

import threading
from typing import Any, Final

import pytest
from tests.patience import PATIENCE, until
from tests.work.worlds import Member, Real, Simulated, World, become

from kadence import Record
from kadence.work import Context, ProducerRecord

_VALUES: Final = [b"0", b"1", b"2", b"3"]
"""A record for each partition."""

_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "alone": {"workers": 4},
    # Another worker has what a busy machine brings after the wait for a batch.
    "batches": {"workers": 4, "batch": (4, 0.2)},
    "halves": {"workers": 4, "batch": (4, 0.2), "halve": True},
    "transactions": {"workers": 4, "transactional_id": "first"},
}


class Handlers:
    """Those of two members. The first one's wait until their partition goes, or the second one has begun.

    Args:
        how: how a handler ends that learns that its partition goes.

    Attributes:
        begun: values at the first member. stopped: values whose handlers ended early. handled: the others.
    """

    def __init__(self, how: str) -> None:
        self.how = how
        self.begun: set[bytes] = set()
        self.stopped: set[bytes] = set()
        self.handled: list[bytes] = []
        self._is_shared = False
        self._lock = threading.Lock()

    def of_first(self, given: Any, context: Context) -> Any:
        values = self._begin(given)
        until(lambda: context.lost or self._is_shared)
        return self._end(values, is_lost=context.lost)

    def of_first_yielding(self, given: Any, context: Context) -> Any:
        """It is asked for its records when it has returned."""
        yield from self.of_first(given, context) or ()

    async def of_first_awaited(self, given: Any, context: Context) -> Any:
        values = self._begin(given)
        await become(lambda: context.lost or self._is_shared)
        return self._end(values, is_lost=context.lost)

    async def of_first_awaited_yielding(self, given: Any, context: Context) -> Any:
        for each in await self.of_first_awaited(given, context) or ():
            yield each

    def of_second(self, record: Record[Any, Any]) -> list[ProducerRecord]:
        self._is_shared = True
        return self._note([record.value])

    def _begin(self, given: Any) -> list[bytes]:
        values = [record.value for record in (given if isinstance(given, list) else [given])]
        with self._lock:
            self.begun.update(values)
        return values

    def _end(self, values: list[bytes], *, is_lost: bool) -> list[ProducerRecord] | None:
        if not is_lost:
            return self._note(values)
        with self._lock:
            self.stopped.update(values)
        if self.how == "raises":
            raise RuntimeError("the partition goes")
        return (
            [ProducerRecord("out", b"half of " + value) for value in values]
            if self.how in ("sends", "yields")
            else None
        )

    def _note(self, values: list[bytes]) -> list[ProducerRecord]:
        with self._lock:
            self.handled.extend(values)
        return [ProducerRecord("out", value) for value in values]


def is_handed_over(world: World, handlers: Handlers, handler: Any, settings: Any, workers: str) -> None:
    """The first member has all records in its hand when the second one comes."""
    world.send("orders", [{"value": value, "partition": each} for each, value in enumerate(_VALUES)])
    is_transactional = "transactional_id" in _SETTINGS[workers]
    if is_transactional:
        settings = {**settings, "isolation_level": "read_committed"}
    first: Member = world.member(**settings)
    of_first = first.processes(handler, drain=PATIENCE, dead_letter="dead", **_SETTINGS[workers])
    world.until(lambda: len(handlers.begun) == len(_VALUES))
    second = world.member(**settings)
    of_second = second.processes(
        handlers.of_second, **({"transactional_id": "second"} if is_transactional else {})
    )
    world.until(lambda: len(handlers.handled) == len(_VALUES))
    first.stop()
    second.stop()
    of_first.result()
    of_second.result()
    first.close()
    second.close()
    assert handlers.stopped
    assert sorted(handlers.handled) == _VALUES
    assert sorted(record.value for record in world.read("out")) == _VALUES
    assert not world.read("dead")
    assert {each: at for each, (at, _) in world.committed("orders").items()} == dict.fromkeys(range(4), 1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("how", ["returns", "raises", "sends", "yields"])
@pytest.mark.parametrize("workers", _SETTINGS)
def test_whoever_was_told_that_a_partition_goes_has_done_nothing(
    simulated: Simulated, workers: str, how: str, protocol: str
) -> None:
    """Else the commit before the partition goes would say that its record is done, and nobody would do it."""
    handlers = Handlers(how)
    handler = handlers.of_first_awaited_yielding if how == "yields" else handlers.of_first_awaited
    is_handed_over(simulated, handlers, handler, {"group_protocol": protocol}, workers)


@pytest.mark.parametrize(
    ("workers", "how"),
    [("alone", "returns"), ("alone", "yields"), ("halves", "raises"), ("transactions", "sends")],
)
def test_whoever_was_told_so_on_a_thread_has_done_nothing(real: Real, workers: str, how: str) -> None:
    handlers = Handlers(how)
    handler = handlers.of_first_yielding if how == "yields" else handlers.of_first
    is_handed_over(real, handlers, handler, {}, workers)
