"""Reasons why a share group (a queue, KIP-932) stands still. Pure.

Which member holds which records, and how often they were delivered, is known to the leaders of the partitions alone:
no request of an admin client asks for it. So a reason names what may be the case, and how long that can last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Final

from kadence.admin import ConfigEntry, MemberDescription
from kadence.printable import plural
from kadence.types import TopicPartition
from kadence_cli.figures import duration
from kadence_cli.names import ranges, spelled
from kadence_cli.why.finding import NAMED, Finding, Harm, names_of, one_of, stood, waiting
from kadence_cli.why.holds import consume, record_details, shown, stalled_at
from kadence_cli.why.looks import Evidence, PartitionLook, SeenRecord
from kadence_cli.why.watching import Watch, named

__all__ = ["no_place", "nothing_done", "open_records", "reads_committed", "unassigned"]

_LOCKS: Final = "share.partition.max.record.locks"
_LOCK_MS: Final = "share.record.lock.duration.ms"
_DELIVERIES: Final = "share.delivery.count.limit"
_RESET: Final = "share.auto.offset.reset"

_LATEST: Final = (
    "records from before the first fetch are given to nobody, nor those that are written while no member is there, or "
    "during a restart, until a first record is accepted"
)
_BY_TIME: Final = "after each restart it begins anew by that time, until a first record is accepted"
_UNSEEN: Final = (
    "who holds the records, and how often they were delivered, cannot be seen from outside: only the leader of the "
    "partition knows"
)


def _number(settings: Mapping[str, ConfigEntry], key: str, default: int) -> int:
    entry = settings.get(key)
    return int(entry.value) if entry is not None and entry.value and entry.value.isdecimal() else default


def reads_committed(evidence: Evidence) -> bool:
    """Whether the group is given committed records only: it is the group's setting, and not the member's."""
    entry = evidence.settings.get("share.isolation.level")
    return entry is not None and entry.value == "read_committed"


def _window(evidence: Evidence) -> int:
    """How many offsets from the start offset on can be held or done."""
    return _number(evidence.settings, _LOCKS, 2_000)


def _patience(evidence: Evidence) -> str:
    """How long a record that fails, or that nobody acknowledges, holds its place."""
    times = _number(evidence.settings, _DELIVERIES, 5)
    letters = evidence.dead_letters
    then = f"goes to {letters.topic}" if letters and letters.topic and not letters.faults else "is archived"
    return (
        f"a record that fails is delivered up to {times} times, at last alone, and held for "
        f"{duration(_lock_ms(evidence) / 1000)} each time unless it is renewed; then it {then}"
    )


def no_place(watch: Watch, evidence: Evidence) -> Iterator[Finding]:
    """Partitions in which nothing was ever done: the group begins there anew, by its reset strategy."""
    nowhere = [tp for tp in watch.partitions if watch.has_no_place(tp)]
    if not nowhere:
        return
    entry = evidence.settings.get(_RESET)
    reset = (entry.value if entry is not None else None) or "latest"
    members = [each for each in watch.description.members if each.assignment.intersection(nowhere)]
    came = sum(watch.never_committed[tp] for tp in nowhere)
    group = quote(watch.group)
    if reset == "earliest":
        # Readers of committed records have got none of these.
        given = [tp for tp in nowhere if not (reads_committed(evidence) and watch.begins_open(tp))]
        if members := [each for each in members if each.assignment.intersection(given)]:
            yield from _first_records(watch, evidence, given, members)
        return
    topic = one_of(nowhere).topic
    yield Finding(
        "no-place",
        Harm.STOPS if members else Harm.LOSES,
        f"the group has no place in {ranges(nowhere)}: it has accepted nothing there, and {_RESET} is {reset}",
        (
            _LATEST if reset == "latest" else _BY_TIME,
            f"{plural(came, 'offset')} came there in {duration(watch.span_ms / 1000)}",
            *(("its members may hold records that they have not acknowledged",) if members else ()),
            "set its place while it has no members; or set the strategy before the first member comes",
        ),
        (
            f"kadence groups reset {group} --topic {topic} --to earliest --dry-run",
            f"kadence groups config {group} --set {_RESET}=earliest",
        ),
        tuple(nowhere),
        tuple(map(named, members)),
        details=(("reset", reset), ("came", came)),
    )


def _first_records(
    watch: Watch, evidence: Evidence, nowhere: list[TopicPartition], members: Sequence[MemberDescription]
) -> Iterator[Finding]:
    yield Finding(
        "nothing-done",
        Harm.STOPS,
        f"no first record of {ranges(nowhere)} was accepted, released or rejected",
        (
            f"{_have(members, nowhere)}, for {duration(watch.span_ms / 1000)} at least",
            *_stalls(evidence, members),
            _patience(evidence),
            _UNSEEN,
        ),
        (f"kadence groups describe {quote(watch.group)}", consume(one_of(nowhere), "earliest")),
        tuple(nowhere),
        tuple(map(named, members)),
        sum(_records(watch.partitions[tp]) for tp in nowhere),
    )


def _records(each: PartitionLook) -> int:
    return 0 if each.end is None or each.first is None else each.end - each.first


def _have(members: Sequence[MemberDescription], partitions: Sequence[TopicPartition]) -> str:
    verb, them = "has" if len(members) == 1 else "have", "it" if len(partitions) == 1 else "them"
    return f"{names_of(members)} {verb} {them}"


def _stalls(evidence: Evidence, members: Sequence[MemberDescription]) -> tuple[str, ...]:
    return tuple(
        f"{named(each)} does not poll: it is {at}" for each in members if (at := stalled_at(evidence, each))
    )[:NAMED]


def nothing_done(watch: Watch, evidence: Evidence, now_ms: int) -> Iterator[Finding]:
    """Partitions with members and lag where no record was done in all the time. One reason for those of one member."""
    by_members: dict[tuple[MemberDescription, ...], list[TopicPartition]] = {}
    for tp in watch.held_by_records:
        if tp not in evidence.read_up and not watch.works_off(tp) and not _is_full(watch, evidence, tp):
            members = tuple(each for each in _members(watch, tp) if watch.has_stayed(each))
            if members:
                by_members.setdefault(members, []).append(tp)
    for members, still in by_members.items():
        yield _nothing(watch, evidence, members, still, now_ms)


def _is_full(watch: Watch, evidence: Evidence, tp: TopicPartition) -> bool:
    """Whether what is done above the start offset fills the window, so that only released records are given out."""
    return watch.partitions[tp].above + 1 >= _window(evidence)


def _oldest(watch: Watch, tp: TopicPartition, seen: SeenRecord | None, now_ms: int) -> str:
    """Where the oldest record is that is not done. A start offset is stored as it was before the last change."""
    look = watch.partitions[tp]
    offset = look.committed or 0
    if look.above:
        return f"{spelled(tp)}: the oldest that is not done is at one of the offsets {offset} to {offset + look.above}"
    return f"{spelled(tp)} starts at offset {offset}" + (f": {shown(seen, now_ms)}" if seen else "")


def _longer(watch: Watch, evidence: Evidence) -> tuple[str, ...]:
    """Advice to look for longer than a record is held without harm."""
    lock_ms = _lock_ms(evidence)
    if watch.span_ms > lock_ms:
        return ()
    return (f"one record's work may take as long as this look: --for {2 * lock_ms // 1000} tells more",)


def _lock_ms(evidence: Evidence) -> int:
    return _number(evidence.settings, _LOCK_MS, 30_000)


def _members(watch: Watch, tp: TopicPartition) -> list[MemberDescription]:
    return [each for each in watch.description.members if tp in each.assignment]


def _nothing(
    watch: Watch,
    evidence: Evidence,
    members: Sequence[MemberDescription],
    still: list[TopicPartition],
    now_ms: int,
) -> Finding:
    tp = max(still, key=watch.lag_of)
    held = sum(watch.lag_of(each) for each in still)
    offset, locks = watch.partitions[tp].committed or 0, _window(evidence)
    seen = evidence.records.get(tp)
    causes = (
        f"up to {locks:,} records of a partition can be held, all of them by one member: the others then get none"
        if watch.lag_of(tp) >= locks and len(members) > 1
        else "its members hold the records and work, are blocked, or do not fetch"
    )
    return Finding(
        "nothing-done",
        Harm.STOPS,
        f"no record of {ranges(still)} was done for {stood(watch, min(still, key=watch.stands_for))}",
        (
            f"{_have(members, still)}; {waiting(held)}",
            *_stalls(evidence, members),
            _oldest(watch, tp, seen, now_ms),
            causes,
            *_longer(watch, evidence),
            _patience(evidence),
            _UNSEEN,
        ),
        (consume(tp, offset), f"kadence groups describe {quote(watch.group)}"),
        tuple(still),
        tuple(map(named, members)),
        held,
        record_details(offset, seen),
    )


def open_records(watch: Watch, evidence: Evidence, now_ms: int) -> Iterator[Finding]:
    """Start offsets that do not move, while records above them are done: a long work, or one that fails."""
    locks = _window(evidence)
    for tp, offset in watch.held_by_records.items():
        look = watch.partitions[tp]
        is_full = _is_full(watch, evidence, tp)
        is_passed_over = watch.works_off(tp) and watch.was_passed_over(tp)
        if not look.above or tp in evidence.read_up or not (is_full or is_passed_over):
            continue
        seen = evidence.records.get(tp)
        long = watch.has_always_stood(tp) or watch.stands_for(tp) > _lock_ms(evidence)
        yield Finding(
            "window-full" if is_full else "open-record",
            Harm.STOPS if is_full else Harm.SLOWS if long else Harm.PASSES,
            f"{spelled(tp)} gives out nothing new: {look.above:,} records from offset {offset} on are done, not all"
            if is_full
            else f"the record of {spelled(tp)} at offset {offset} is not done, and {look.above:,} above it are",
            (
                f"the start offset has stood at it for {stood(watch, tp)}",
                *((f"its record is {shown(seen, now_ms)}",) if seen else ()),
                *(
                    (f"{_LOCKS} is {locks:,}: so many offsets from the start on, and no more",)
                    if is_full
                    else ()
                ),
                f"its work takes long, or it fails: {_patience(evidence)}",
                _UNSEEN,
            ),
            (consume(tp, offset), f"kadence groups describe {quote(watch.group)}"),
            (tp,),
            tuple(map(named, _members(watch, tp))),
            watch.lag_of(tp),
            record_details(offset, seen),
        )


def unassigned(watch: Watch) -> Iterator[Finding]:
    """Members that have been there for long and have no partition: each of a queue's members gets some."""
    idle = [each for each in watch.description.members if not each.assignment and watch.has_stayed(each)]
    if not idle:
        return
    topics = sorted(set().union(*(each.subscription or () for each in idle)))
    yield Finding(
        "no-partitions",
        Harm.STOPS,
        f"{names_of(idle)} {'has' if len(idle) == 1 else 'have'} no partitions",
        (
            f"subscribed to {', '.join(topics[:NAMED]) or 'nothing'}",
            "the topic does not exist, this login may not describe it, or its partitions are not initialised yet",
        ),
        (f"kadence topics describe {quote(topics[0])}" if topics else "kadence topics list",),
        members=tuple(map(named, idle)),
    )
