"""Asks the brokers about one group, and looks up the evidence for what the looks have shown. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kadence.cli.top.local import by_member, processes
from kadence.cli.transactions import hanging, known_to_coordinators
from kadence.cli.why.looks import Evidence, Look, OpenTransaction, PartitionLook, SeenRecord
from kadence.cli.why.watching import Watch
from kadence.clock import wall_ms
from kadence.errors import KafkaError
from kadence.types import OffsetAndMetadata, TopicPartition
from kadence.work.frontier import decode

if TYPE_CHECKING:
    from kadence.admin import Admin, ProducerState

__all__ = ["PATIENCE_S", "look_at", "look_up"]

PATIENCE_S: Final = 5.0
"""How long one question may take."""

_RECORDS: Final = 5
"""How many records are looked up: a member that is silent has a thousand partitions that stand still."""


def look_at(admin: Admin, group: str) -> Look:
    """One look.

    Raises:
        KafkaError: the group cannot be described, or the brokers do not answer.
    """
    described = admin.describe_consumer_groups([group], timeout=PATIENCE_S)[group]
    committed = admin.list_consumer_group_offsets(group, raise_errors=False, timeout=PATIENCE_S)
    owned = {tp for member in described.members for tp in member.assignment}
    wanted = sorted(committed.keys() | owned)
    troubles = _troubles(admin, wanted)
    ask = [tp for tp in wanted if tp not in troubles]
    # First: it must not be beyond an end that was looked up before it.
    stable = admin.list_offsets(
        dict.fromkeys(ask, "latest"), isolation_level="read_committed", raise_errors=False, timeout=PATIENCE_S
    )
    held = admin.log_ranges(ask, raise_errors=False, timeout=PATIENCE_S)
    troubles.update({tp: _words(error) for tp, error in held.errors.items()})
    partitions = {}
    for tp in wanted:
        first, end = held.get(tp, (None, None))
        at = stable.get(tp)
        partitions[tp] = PartitionLook(
            committed[tp].offset if tp in committed else None,
            first,
            None if at is None else at.offset,
            end,
            _above(committed.get(tp)),
            troubles.get(tp, ""),
        )
    return Look(described, partitions)


def _above(at: OffsetAndMetadata | None) -> int:
    if at is None or not at.metadata:
        return 0
    return sum(end - first for first, end in decode(at.offset, at.metadata))


def _troubles(admin: Admin, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    """Partitions that cannot be asked: a question to them would wait for a leader."""
    partitions = list(wanted)
    names = sorted({tp.topic for tp in partitions})
    if not names:
        return {}
    topics = admin.describe_topics(names, raise_errors=False, timeout=PATIENCE_S)
    leaders = {
        TopicPartition(topic.name, info.partition): info
        for topic in topics.values()
        for info in topic.partitions
    }
    troubles = {}
    for tp in partitions:
        if tp.topic in topics.errors:
            troubles[tp] = _words(topics.errors[tp.topic])
        elif tp not in leaders:
            troubles[tp] = "the topic has no such partition any more"
        elif leaders[tp].leader is None:
            replicas = ", ".join(map(str, leaders[tp].replicas))
            troubles[tp] = f"it has no leader; its replicas are on {replicas or 'no broker'}"
    return troubles


def _words(error: KafkaError) -> str:
    why = error.__cause__ if isinstance(error.__cause__, KafkaError) else error
    return " ".join(str(why).split())


# ---------------------------------------------------------------- evidence


def look_up(admin: Admin, config: Mapping[str, Any], watch: Watch) -> Evidence:
    """Whose transactions hold up the group, which records it stands at, and what processes of this machine tell.

    What cannot be looked up is left out: a reason without all its evidence is still one.
    """
    return Evidence(
        _transactions(admin, watch.held_by_transactions),
        _records(config, dict(list(watch.held_by_records.items())[:_RECORDS])),
        by_member(processes()),
    )


def _transactions(admin: Admin, wanted: list[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
    if not wanted:
        return {}
    try:
        producers = admin.describe_producers(wanted, raise_errors=False, timeout=PATIENCE_S)
        first = {tp: each for tp, here in producers.items() if (each := _first_open(here)) is not None}
        ids = {each.producer_id for each in first.values()}
        listed, described = known_to_coordinators(admin, ids, PATIENCE_S)
    except KafkaError:
        return {}
    hang = {
        each.partition
        for each in hanging({tp: [each] for tp, each in first.items()}, listed, described, wall_ms(), 0)
    }
    name_of = {each.producer_id: each.transactional_id for each in listed}
    found = {}
    for tp, each in first.items():
        known = described.get(name_of.get(each.producer_id, ""))
        is_hanging = tp in hang
        found[tp] = OpenTransaction(
            each.producer_id,
            each.transaction_start or 0,
            name_of.get(each.producer_id),
            is_hanging,
            each.last_timestamp if is_hanging or known is None else known.started_ms,
            None if known is None else known.timeout_ms,
        )
    return found


def _first_open(producers: Iterable[ProducerState]) -> ProducerState | None:
    """The one whose transaction begins first, and so is where the last stable offset stands."""
    is_open = [each for each in producers if each.transaction_start is not None]
    return min(is_open, key=lambda each: each.transaction_start or 0, default=None)


def _records(
    config: Mapping[str, Any], wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, SeenRecord]:
    from kadence import Consumer

    if not wanted:
        return {}
    settings = {"client.id": "kadence-why", **config, "auto.offset.reset": "earliest", "max.poll.records": 1}
    found: dict[TopicPartition, SeenRecord] = {}
    try:
        with Consumer(settings) as consumer:
            for tp, offset in wanted.items():
                consumer.assign([tp])
                consumer.seek(tp, offset)
                for record in consumer.poll(PATIENCE_S):
                    size = len(record.key or b"") + len(record.value or b"")
                    found[tp] = SeenRecord(record.offset, size, record.key, record.timestamp)
    except KafkaError:
        pass
    return found
