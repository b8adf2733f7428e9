"""Outputs of transactional programs, and the invariant that each record has its output exactly once.

The value of an output names its record (`output_of`). After any crash, readers of committed records see no output
twice, and no output of a record that was not committed. Once a group has committed a record's offset, they see its
output: the two were committed together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kadence.types import TopicPartition
from kadence_broker.storage import Isolation
from kadence_testing.simulation.scheduler import SimulationError
from kadence_testing.simulation.transactions import readable, records_of

if TYPE_CHECKING:
    from kadence.records import Record
    from kadence_broker.core import BrokerCore

__all__ = ["Outputs", "output_of"]

_Place = tuple[TopicPartition, int]


def output_of(record: Record) -> bytes:
    """The value of a record's output: the record's partition and offset, and its own value."""
    return b"%s %d %d %s" % (record.topic.encode(), record.partition, record.offset, record.value or b"")


class Outputs:
    """The groups that write outputs, with their topics; compares the logs with the groups' committed offsets.

    A topic of outputs belongs to one group, and has no other records.
    """

    def __init__(self) -> None:
        self._topics: dict[tuple[str, str], set[str]] = {}

    def expect(self, group_id: str, topics: Iterable[str], into: str) -> None:
        """A program of the group writes an output of each record of these topics to ``into``."""
        self._topics.setdefault((group_id, into), set()).update(topics)

    def are_complete(self, core: BrokerCore) -> bool:
        """Whether all groups have committed up to the log ends, without open transactions."""
        return all(
            _is_settled(core, into)
            and all(
                _committed(core, group_id, partition) >= core.partition(*partition).end_offset
                for topic in topics
                for partition in _partitions(core, topic)
            )
            for (group_id, into), topics in self._topics.items()
        )

    def check(self, core: BrokerCore, deleted: Mapping[TopicPartition, int]) -> None:
        """Compare the logs, as readers of committed records see them, with the groups' committed offsets."""
        for (group_id, into), topics in self._topics.items():
            made = Counter(
                _source(bytes(record.value or b""))
                for partition in _partitions(core, into)
                for record in records_of(core.partition(*partition), 0, Isolation.COMMITTED)
            )
            for (partition, offset), count in made.items():
                if count > 1:
                    raise SimulationError(
                        f"the output of {partition} offset {offset} is committed {count} times in {into!r}"
                    )
            for partition in (each for topic in sorted(topics) for each in _partitions(core, topic)):
                _compare(core, group_id, into, partition, made, deleted.get(partition, 0))


def _compare(
    core: BrokerCore, group_id: str, into: str, partition: TopicPartition, made: Counter[_Place], start: int
) -> None:
    """One partition that is read."""
    there = readable(core.partition(*partition), start, Isolation.COMMITTED)
    for source, offset in made:
        if source == partition and offset >= start and offset not in there:
            raise SimulationError(
                f"{into!r} has an output of {partition} offset {offset}, which no reader of committed records gets"
            )
    if not _is_settled(core, into):
        # The offsets of a transaction may be committed a moment before its records.
        return
    committed = _committed(core, group_id, partition)
    for offset in sorted(there):
        if offset < committed and (partition, offset) not in made:
            raise SimulationError(
                f"group {group_id!r} committed {partition} up to {committed}, and {into!r} has no output of the record "
                f"at {offset}"
            )


def _source(value: bytes) -> _Place:
    """The partition and offset of an output's record."""
    topic, partition, offset, _ = value.split(b" ", 3)
    return TopicPartition(topic.decode(), int(partition)), int(offset)


def _partitions(core: BrokerCore, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(len(core.cluster.topics[topic].partitions))]


def _is_settled(core: BrokerCore, topic: str) -> bool:
    """Whether the partition has no open transaction."""
    logs = (core.partition(*partition) for partition in _partitions(core, topic))
    return all(log.last_stable_offset == log.end_offset for log in logs)


def _committed(core: BrokerCore, group_id: str, partition: TopicPartition) -> int:
    found = core.coordination.coordinator.offsets.get(group_id, *partition)
    return 0 if found is None else found.offset
