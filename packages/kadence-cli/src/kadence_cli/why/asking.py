"""Asks the brokers about groups, and looks up evidence for the results of looks. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kadence.admin import ConfigEntry, ConfigResource, DeadLetterQueue
from kadence.admin.values import Outcomes
from kadence.clock import SystemClock, wall_ms
from kadence.errors import BrokerError, KafkaError
from kadence.lazy_dataclasses import replace
from kadence.protocol import error_codes as ec
from kadence.types import TopicPartition
from kadence_cli.group_types import Place, described, is_share, places, places_again
from kadence_cli.top.local import by_member, processes
from kadence_cli.transactions import hanging, known_to_coordinators
from kadence_cli.why.holds import held_back
from kadence_cli.why.looks import Cause, Evidence, Look, OpenTransaction, PartitionLook, SeenRecord
from kadence_cli.why.watching import Watch

if TYPE_CHECKING:
    from kadence.admin import Admin, ProducerState

__all__ = ["PATIENCE_S", "look_at", "look_at_all", "look_up"]

PATIENCE_S: Final = 5.0
"""The timeout of one call (seconds)."""

_PARTITIONS: Final = 200
"""In how many partitions a record is looked up, because thousands may stand still."""

_PARTITION_BYTES: Final = 16 << 10
"""The fetch size of a partition: one record of it is needed."""


def look_at(admin: Admin, group: str) -> Look:
    """One look at one group.

    Raises:
        KafkaError: the group cannot be described, or the brokers do not answer.
    """
    looks = look_at_all(admin, [group])
    looks.raise_errors()
    return looks[group]


def look_at_all(admin: Admin, groups: Sequence[str]) -> Outcomes[str, Look]:
    """One look at several groups, with as many requests as for one; and the errors of groups that cannot be described.

    Raises:
        KafkaError: the brokers do not answer.
    """
    groups_ = described(admin, groups, PATIENCE_S)
    found = places(admin, groups_, PATIENCE_S)
    owned = {
        name: {tp for member in group.members for tp in member.assignment} for name, group in groups_.items()
    }
    wanted = {name: sorted(found[name].keys() | owned[name]) for name in found}
    known = _known(admin, sorted({tp for of_group in wanted.values() for tp in of_group}))
    found = places_again(admin, {name: groups_[name] for name in found}, found, PATIENCE_S)
    looks = {
        name: Look(
            groups_[name],
            {tp: _at(known[tp], found[name].get(tp, Place(None))) for tp in wanted[name]},
        )
        for name in found
    }
    return Outcomes(looks, groups_.errors | found.errors)


def _at(known: PartitionLook, place: Place) -> PartitionLook:
    return replace(known, committed=place.offset, above=place.above(known.end), waiting=place.waiting)


def _known(admin: Admin, wanted: list[TopicPartition]) -> dict[TopicPartition, PartitionLook]:
    """The offset ranges of partitions."""
    troubles = _troubles(admin, wanted)
    ask = [tp for tp in wanted if tp not in troubles]
    # First: it must not be beyond an end offset that was looked up before it.
    stable = admin.list_offsets(
        dict.fromkeys(ask, "latest"), isolation_level="read_committed", raise_errors=False, timeout=PATIENCE_S
    )
    held = admin.log_ranges(ask, raise_errors=False, timeout=PATIENCE_S)
    troubles.update({tp: (_words(error), _cause(error)) for tp, error in held.errors.items()})
    partitions = {}
    for tp in wanted:
        first, end = held.get(tp, (None, None))
        at = stable.get(tp)
        partitions[tp] = PartitionLook(
            None, first, None if at is None else at.offset, end, 0, *troubles.get(tp, ())
        )
    return partitions


def _troubles(admin: Admin, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[str, Cause]]:
    """Partitions without a leader or that do not exist: a request would wait for a leader."""
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
    troubles: dict[TopicPartition, tuple[str, Cause]] = {}
    for tp in partitions:
        if tp.topic in topics.errors:
            error = topics.errors[tp.topic]
            troubles[tp] = _words(error), _cause(error)
        elif tp not in leaders:
            troubles[tp] = "the topic has no such partition any more", "no-topic"
        elif leaders[tp].leader is None:
            replicas = ", ".join(map(str, leaders[tp].replicas))
            troubles[tp] = f"it has no leader; its replicas are on {replicas or 'no broker'}", "no-leader"
    return troubles


def _cause(error: KafkaError) -> Cause:
    code = error.code if isinstance(error, BrokerError) else None
    if code == ec.UNKNOWN_TOPIC_OR_PARTITION:
        return "no-topic"
    return "not-allowed" if code == ec.TOPIC_AUTHORIZATION_FAILED else "no-leader"


def _words(error: KafkaError) -> str:
    why = error.__cause__ if isinstance(error.__cause__, KafkaError) else error
    return " ".join(str(why).split())


# ---------------------------------------------------------------- evidence


def look_up(admin: Admin, config: Mapping[str, Any], watch: Watch) -> Evidence:
    """The transactions that hold up the group, the records at its positions, and published states on this machine.

    Failed look-ups are left out: a reason is valid without all its evidence.
    """
    records, read_up = _records(config, watch)
    settings, dead_letters = _settings(admin, watch)
    return Evidence(
        _transactions(admin, held_back(watch, read_up)),
        records,
        by_member(processes()),
        read_up,
        settings,
        dead_letters,
    )


def _settings(admin: Admin, watch: Watch) -> tuple[Mapping[str, ConfigEntry], DeadLetterQueue | None]:
    """The settings of a share group, or of a group without members that may have been meant for one."""
    is_queue = is_share(watch.description)
    if not is_queue and watch.description.members:
        return {}, None
    group = ConfigResource("group", watch.group)
    try:
        settings = admin.describe_configs(group, raise_errors=False, timeout=PATIENCE_S).get(group, {})
        if not is_queue:
            return settings, None
        queues = admin.describe_dead_letter_queues(watch.group, raise_errors=False, timeout=PATIENCE_S)
    except KafkaError:
        return {}, None
    return settings, queues.get(watch.group)


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
    """The producer of the first open transaction, which determines the last stable offset."""
    is_open = [each for each in producers if each.transaction_start is not None]
    return min(is_open, key=lambda each: each.transaction_start or 0, default=None)


def _records(
    config: Mapping[str, Any], watch: Watch
) -> tuple[dict[TopicPartition, SeenRecord], frozenset[TopicPartition]]:
    """The records at unmoved offsets, and the partitions that have none up to the last stable offset."""
    stable: dict[TopicPartition, tuple[int, int]] = {}
    open_: dict[TopicPartition, tuple[int, int]] = {}
    for tp, unmoved in list((watch.held_by_records | watch.left_unread).items())[:_PARTITIONS]:
        each = watch.partitions[tp]
        # What was deleted cannot be looked up.
        offset = max(unmoved, each.first or 0)
        if each.stable is not None and offset < each.stable:
            stable[tp] = offset, each.stable
        elif each.end is not None and offset < each.end:
            # The group reads uncommitted records, and has committed it.
            open_[tp] = offset, each.end
    found, read_up = _first_records(config, stable, "read_committed")
    return found | _first_records(config, open_, "read_uncommitted")[0], read_up


def _first_records(
    config: Mapping[str, Any], wanted: Mapping[TopicPartition, tuple[int, int]], isolation_level: str
) -> tuple[dict[TopicPartition, SeenRecord], frozenset[TopicPartition]]:
    """The first record of each range, and the ranges that were read to their ends and have none."""
    from kadence import Consumer

    found: dict[TopicPartition, SeenRecord] = {}
    if not wanted:
        return found, frozenset()
    settings = {
        "client.id": "kadence-why",
        "max.partition.fetch.bytes": _PARTITION_BYTES,
        **config,
        "auto.offset.reset": "earliest",
        "isolation.level": isolation_level,
    }
    clock = SystemClock()
    until = clock.now_ms() + int(PATIENCE_S * 1000)
    read_up: frozenset[TopicPartition] = frozenset()
    try:
        with Consumer(settings) as consumer:
            consumer.assign(wanted)
            while len(found) + len(read_up) < len(wanted) and clock.now_ms() < until:
                for record in consumer.poll(0.5, max_records=1):
                    tp = TopicPartition(record.topic, record.partition)
                    size = len(record.key or b"") + len(record.value or b"")
                    found[tp] = SeenRecord(record.offset, size, record.key, record.timestamp)
                    consumer.pause([tp])
                read_up = consumer.finished() - found.keys()
    except KafkaError:
        pass
    return found, read_up
