"""A program for simulations of queues: a share consumer around your handler (KIP-932)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kadence.errors import KafkaError, KafkaTimeoutError
from kadence.records import Record
from kadence.share.acknowledgements import AcknowledgeType
from kadence.share.async_share_consumer import AsyncShareConsumer
from kadence.types import TopicPartition

if TYPE_CHECKING:
    from kadence_testing.simulation.simulation import Main, Program

__all__ = ["QueueHandler", "queue_member"]

QueueHandler = Callable[["Program", Record], Awaitable[AcknowledgeType | None]]
"""A coroutine function that processes one record in a program, and says what becomes of it; None: it is accepted."""

_POLL_S: Final = 1.0
_PAUSE_S: Final = 5.0


def queue_member(
    group_id: str,
    topics: Iterable[str],
    handler: QueueHandler,
    config: Mapping[str, Any] | None = None,
    *,
    commits: bool = False,
) -> Main:
    """A program that reads topics in a share group, record by record, until `Program.stop`.

    It reports the records that it gets, and those whose acceptance the broker has confirmed, to the simulation's
    history. A handler that raises ends its program.

    Args:
        handler: processes one record, and returns an `AcknowledgeType`, or None to accept it.
        config: Kafka's dotted keys. ``share.acknowledgement.mode`` is explicit unless it says otherwise; with implicit
            the handler returns None.
        commits: whether it calls commit() after the records of each poll. If not, the next poll acknowledges.
    """
    names = list(topics)

    async def main(program: Program) -> None:
        settings = {
            "bootstrap.servers": program.bootstrap_servers,
            "group.id": group_id,
            "share.acknowledgement.mode": "explicit",
            **(config or {}),
        }
        while not program.stopping.is_set():
            try:
                await read(program, settings)
            except KafkaTimeoutError:
                # The program was frozen while it closed its consumer. Wait, as a supervisor does.
                await program.sleep(_PAUSE_S)

    async def read(program: Program, settings: Mapping[str, Any]) -> None:
        is_explicit = settings["share.acknowledgement.mode"] == "explicit"
        async with AsyncShareConsumer(settings) as consumer:
            said = _Said(program, group_id)
            consumer.set_acknowledgement_commit_callback(said.ended)
            await consumer.subscribe(names)
            while not program.stopping.is_set():
                records = await consumer.poll(_POLL_S)
                for record in records:
                    program.took(consumer, record)
                for record in records:
                    kind = await handler(program, record) or AcknowledgeType.ACCEPT
                    said.says(record, kind)
                    if is_explicit:
                        consumer.acknowledge(record, kind)
                if commits and records:
                    await consumer.commit()

    return main


class _Said:
    """What a program has said of records and has not heard the end of."""

    def __init__(self, program: Program, group_id: str) -> None:
        self._program = program
        self._group_id = group_id
        self._kinds: defaultdict[tuple[TopicPartition, int], list[AcknowledgeType]] = defaultdict(list)

    def says(self, record: Record, kind: AcknowledgeType) -> None:
        self._kinds[TopicPartition(record.topic, record.partition), record.offset].append(kind)

    def ended(self, partition: TopicPartition, offsets: frozenset[int], error: KafkaError | None) -> None:
        for offset in offsets:
            kinds = self._kinds.pop((partition, offset), [])
            # Of several deliveries it is not known which this is about.
            if error is None and kinds == [AcknowledgeType.ACCEPT]:
                self._program.has_accepted(self._group_id, partition, offset)
