"""A handler that stops because its partition goes has not done its record, also where it ends within ``drain``."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Final

import pytest
from tests.consumer.support import Cluster, Shell
from tests.patience import PATIENCE, until
from tests.work.test_process import committed, member, read

from kadence import Producer, Record
from kadence.work import Context, ProducerRecord

_VALUES: Final = [b"0", b"1", b"2", b"3"]
"""A record for each partition."""

_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "threads": {"workers": 4},
    "coroutines": {"workers": 4},
    "batches": {"workers": 1, "batch": (4, 0.2)},
    "halves": {"workers": 1, "batch": (4, 0.2), "halve": True},
    "transactions": {"workers": 4, "transactional_id": "first"},
}


class Handlers:
    """Those of two members. The first one's wait until their partition goes, or the second one has begun.

    Args:
        how: how a handler ends that learns that its partition goes.

    Attributes:
        have_begun: all records are at the first member. stopped: values whose handlers ended early.
        handled: the others.
    """

    def __init__(self, first: Any, second: Any, how: str) -> None:
        self.first, self.second = first, second
        self.how = how
        self.have_begun, self.is_shared = threading.Event(), threading.Event()
        self.stopped: set[bytes] = set()
        self.handled: list[bytes] = []
        self._begun: set[bytes] = set()
        self._lock = threading.Lock()

    def of_first(self, given: Any, context: Context) -> Any:
        values = self._begin(given)
        until(lambda: context.lost or self.is_shared.is_set())
        return self._end(values, is_lost=context.lost)

    def of_first_yielding(self, given: Any, context: Context) -> Any:
        """It is asked for its records when it has returned."""
        yield from self.of_first(given, context) or ()

    async def of_first_awaited(self, given: Any, context: Context) -> Any:
        values = self._begin(given)
        while not (context.lost or self.is_shared.is_set()):  # noqa: ASYNC110 - what it waits for is no event
            await asyncio.sleep(0.01)
        return self._end(values, is_lost=context.lost)

    async def of_first_awaited_yielding(self, given: Any, context: Context) -> Any:
        for each in await self.of_first_awaited(given, context) or ():
            yield each

    def of_second(self, record: Record[Any, Any]) -> list[ProducerRecord]:
        self.is_shared.set()
        return self._note([record.value])

    def _begin(self, given: Any) -> list[bytes]:
        values = [record.value for record in (given if isinstance(given, list) else [given])]
        with self._lock:
            self._begun.update(values)
            if len(self._begun) == len(_VALUES):
                self.have_begun.set()
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
            if len(self.handled) == len(_VALUES):
                self.first.stop()
                self.second.stop()
        return [ProducerRecord("out", value) for value in values]


@pytest.mark.parametrize("how", ["returns", "raises", "sends", "yields"])
@pytest.mark.parametrize("workers", _SETTINGS)
def test_whoever_was_told_that_a_partition_goes_has_done_nothing(
    cluster: Cluster, workers: str, how: str
) -> None:
    """Else the commit before the partition goes would say that its record is done, and nobody would do it."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for partition, value in enumerate(_VALUES):
            producer.send("orders", value, partition=partition)
    is_transactional = workers == "transactions"
    settings = {"isolation_level": "read_committed"} if is_transactional else {}
    shell = Shell("threads")
    first, second = member(cluster, shell, **settings), member(cluster, shell, **settings)
    handlers = Handlers(first, second, how)
    handler = {
        (False, False): handlers.of_first,
        (False, True): handlers.of_first_yielding,
        (True, False): handlers.of_first_awaited,
        (True, True): handlers.of_first_awaited_yielding,
    }[workers == "coroutines", how == "yields"]

    def work_on_first() -> None:
        try:
            first.process(handler, drain=PATIENCE, dead_letter="dead", **_SETTINGS[workers])
        finally:
            second.stop()

    running = threading.Thread(target=work_on_first)
    running.start()
    assert handlers.have_begun.wait(PATIENCE)
    second.process(handlers.of_second, **({"transactional_id": "second"} if is_transactional else {}))
    running.join(PATIENCE)
    first.close()
    second.close()
    assert handlers.stopped
    assert sorted(handlers.handled) == _VALUES
    assert sorted(record.value for record in read(cluster, "out")) == _VALUES
    assert not read(cluster, "dead")
    assert {partition: at for partition, (at, _) in committed(cluster).items()} == dict.fromkeys(range(4), 1)
