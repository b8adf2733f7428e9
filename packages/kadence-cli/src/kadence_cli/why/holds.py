"""Finds what holds up single partitions: an open transaction, a record, or a silent member. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from shlex import quote
from typing import Any, Final

from kadence.admin import MemberDescription
from kadence.lazy_dataclasses import replace
from kadence.printable import plural
from kadence.types import TopicPartition
from kadence_cli.common import moment, text_of
from kadence_cli.figures import duration
from kadence_cli.group_types import is_share
from kadence_cli.names import ranges, spelled
from kadence_cli.top.rows import where
from kadence_cli.why.finding import NAMED, Finding, Harm, stood, waiting
from kadence_cli.why.looks import Evidence, OpenTransaction, SeenRecord
from kadence_cli.why.watching import Watch, named

__all__ = [
    "consume",
    "held_back",
    "never_committed",
    "record_details",
    "shown",
    "stalled_at",
    "standing",
    "transactions",
]

_BUSY: Final = "other partitions of that member move, and lag: it may be slow, and not have come to this one"


def held_back(watch: Watch, read_up: Collection[TopicPartition]) -> list[TopicPartition]:
    """Partitions that an open transaction holds up: the group has read all records before it."""
    stood = watch.held_by_records
    begins = watch.partitions if is_share(watch.description) else ()
    return [
        *watch.held_by_transactions,
        *(tp for tp in begins if watch.begins_open(tp)),
        *(tp for tp in stood if tp in read_up and _is_open(watch, tp)),
    ]


def _is_open(watch: Watch, tp: TopicPartition) -> bool:
    each = watch.partitions[tp]
    return each.stable is not None and each.end is not None and each.stable < each.end


def _behind(watch: Watch, tp: TopicPartition) -> int:
    """How many offsets wait behind the last stable one."""
    each = watch.partitions[tp]
    return (each.end or 0) - (each.stable or 0)


def transactions(watch: Watch, evidence: Evidence, now_ms: int) -> Iterator[Finding]:
    """One finding for each open transaction that holds up the group, with all its partitions."""
    by_owner: dict[tuple[str | None, int], dict[TopicPartition, OpenTransaction]] = {}
    unknown: list[TopicPartition] = []
    for tp in held_back(watch, evidence.read_up):
        each = evidence.transactions.get(tp)
        if each is None:
            unknown.append(tp)
        else:
            by_owner.setdefault((each.transactional_id, each.producer_id), {})[tp] = each
    for found in by_owner.values():
        yield _transaction(watch, found, now_ms)
    if unknown:
        held = sum(_behind(watch, tp) for tp in unknown)
        yield Finding(
            "open-transaction",
            Harm.STOPS,
            "an open transaction holds back what readers of committed records may see",
            (*(_from_stable(watch, tp) for tp in unknown[:NAMED]), "whose it is could not be looked up"),
            ("kadence transactions list --state ongoing", "kadence transactions hanging"),
            tuple(unknown),
            held=held,
        )


def _transaction(watch: Watch, found: dict[TopicPartition, OpenTransaction], now_ms: int) -> Finding:
    tp, one = next(iter(found.items()))
    name = one.transactional_id
    age = None if one.started_ms is None else max(0.0, (now_ms - one.started_ms) / 1000)
    if one.is_hanging:
        wrote = "" if age is None else f", who wrote last {duration(age)} ago, at {moment(one.started_ms)}"
        whose = f"it hangs: no coordinator will end it. It is of producer {one.producer_id}{wrote}"
        commands: tuple[str, ...] = (
            f"kadence transactions hanging {spelled(tp)} --older-than 0",
            *(
                f"kadence transactions abort {spelled(at)} --start-offset {each.start_offset}"
                for at, each in found.items()
            ),
        )
        ends = "no timeout ends it (if this login may describe all transactional ids: of others it looks the same)"
    else:
        since = "" if age is None else f" for {duration(age)}, since {moment(one.started_ms)}"
        whose = f"producer {one.producer_id} has it open{since}"
        known = quote(name or "")
        commands = (f"kadence transactions describe {known}", f"kadence transactions fence {known}")
        limit = None if one.timeout_ms is None else one.timeout_ms / 1000
        ends = f"its coordinator aborts it after {duration(limit)}; fence it only if its producer is dead"
    return Finding(
        "open-transaction",
        Harm.STOPS,
        f"an open transaction{f' of {name}' if name else ''} holds back readers of committed records",
        (whose, *(_from_stable(watch, at) for at in list(found)[:NAMED]), ends),
        commands,
        tuple(found),
        held=sum(_behind(watch, at) for at in found),
        details=(
            ("transactional_id", name),
            ("producer_id", one.producer_id),
            ("start_offset", one.start_offset),
            ("started", moment(one.started_ms)),
            ("hangs", one.is_hanging),
        ),
    )


def _from_stable(watch: Watch, tp: TopicPartition) -> str:
    each = watch.partitions[tp]
    return f"{spelled(tp)}: it begins at {each.stable}, and {waiting(_behind(watch, tp), 'offset')} behind it"


def standing(watch: Watch, evidence: Evidence, now_ms: int) -> Iterator[Finding]:
    """Unmoved positions: a member with only unmoved ones is silent; otherwise a record holds them up.

    A new member is not judged by positions that had not moved before it joined.
    """
    stood = {tp: offset for tp, offset in watch.held_by_records.items() if tp not in evidence.read_up}
    if not stood or watch.is_rebalancing:
        return
    for member in filter(watch.has_stayed, watch.description.members):
        lagging = [tp for tp in sorted(member.assignment) if tp in stood or watch.lag_of(tp)]
        still = [tp for tp in lagging if tp in stood]
        surely = [tp for tp in still if watch.partitions[tp].above]
        rest = [tp for tp in still if tp not in surely]
        moving = [tp for tp in lagging if tp not in stood]
        stalled = stalled_at(evidence, member)
        by_record = surely
        if rest and (stalled or len(rest) > NAMED or (len(rest) > 1 and not moving)):
            seen = evidence.records.get(rest[0])
            yield _silent(watch, member, rest, stalled, seen, now_ms, moves=bool(moving or surely))
        else:
            by_record = still
        is_slow = not all(watch.history.progress(tp).keeps_up for tp in moving)
        for tp in by_record:
            found = _stuck(watch, member, tp, stood[tp], evidence.records.get(tp), now_ms)
            is_unsure = is_slow and tp not in surely
            yield replace(found, evidence=(*found.evidence, _BUSY)) if is_unsure else found


def never_committed(watch: Watch, evidence: Evidence) -> Iterator[Finding]:
    """Partitions that a member has had for long without any commit: it may be busy with its first record."""
    written = watch.never_committed
    if not written or watch.is_rebalancing:
        return
    is_new = all(each.committed is None for each in watch.partitions.values())
    for member in watch.description.members:
        mine = [tp for tp in sorted(member.assignment) if tp in written]
        stalled = stalled_at(evidence, member)
        came = [tp for tp in mine if written[tp]]
        if not mine or not (came or stalled or is_new):
            continue
        seconds = duration(watch.span_ms / 1000)
        does_harm = bool(came or stalled)
        told = came or mine
        yield Finding(
            "never-committed",
            Harm.STOPS if does_harm else Harm.PASSES,
            f"{named(member)} ({member.host.removeprefix('/')}) has never committed an offset of {ranges(told)}",
            (
                f"{plural(sum(written[tp] for tp in told), 'offset')} came there in {seconds}",
                *((f"it does not poll: it is {stalled}",) if stalled else ()),
                "it stands at its first record, begins with the latest where none came, or keeps its offsets elsewhere",
            ),
            (
                f"kadence top {quote(watch.group)}",
                consume(told[0], "earliest"),
            ),
            tuple(told),
            (named(member),),
            sum(written[tp] for tp in told),
        )


def stalled_at(evidence: Evidence, member: MemberDescription) -> str:
    """The stack of the member's process, if it publishes its state on this machine and does not poll."""
    here = evidence.processes.get(member.member_id)
    stalls = here.state.get("stalls", ()) if here else ()
    return next((where(each["stack"]) for each in stalls if each["ended"] is None), "")


def _silent(
    watch: Watch,
    member: MemberDescription,
    still: list[TopicPartition],
    stalled: str,
    seen: SeenRecord | None,
    now_ms: int,
    *,
    moves: bool,
) -> Finding:
    held = sum(watch.lag_of(tp) for tp in still)
    latest = min(still, key=watch.stands_for)
    others = sum(1 for each in watch.description.members if each is not member and _moves(watch, each))
    does = f"makes no progress in {len(still)} of its partitions" if moves else "commits nothing"
    return Finding(
        "silent-member",
        Harm.STOPS,
        f"{named(member)} ({member.host.removeprefix('/')}) is in the group and {does}",
        (
            f"{ranges(still)}: no committed offset has moved for {stood(watch, latest)}; {waiting(held)}",
            *((f"it does not poll: it is {stalled}",) if stalled else ()),
            *((f"{spelled(still[0])} stands at {shown(seen, now_ms)}",) if seen else ()),
            f"{plural(others, 'other member')} {'moves' if others == 1 else 'move'}",
            "it is busy, blocked, or commits less often: look longer with --for 120",
        ),
        (
            f"kadence top {quote(watch.group)}",
            consume(still[0], watch.partitions[still[0]].committed),
        ),
        tuple(still),
        (named(member),),
        held,
    )


def _moves(watch: Watch, member: MemberDescription) -> bool:
    return any(tp in watch.history.partitions and not watch.has_stood(tp) for tp in member.assignment)


def _stuck(
    watch: Watch,
    member: MemberDescription,
    tp: TopicPartition,
    offset: int,
    seen: SeenRecord | None,
    now_ms: int,
) -> Finding:
    look = watch.partitions[tp]
    lines = [f"the committed offset has stood at it for {stood(watch, tp)}"]
    if seen is not None:
        lines.append(f"its record is {shown(seen, now_ms)}")
    if look.above:
        lines.append(
            f"{plural(look.above, 'record')} above it are done: it is this record, and not the member"
        )
    lines.append(
        f"{named(member)} ({member.host.removeprefix('/')}) has it; {waiting(watch.lag_of(tp), 'offset')}"
    )
    return Finding(
        "stuck-record",
        Harm.STOPS,
        f"{spelled(tp)} stands at offset {offset}",
        tuple(lines),
        (
            consume(tp, offset),
            f"kadence top {quote(watch.group)}",
        ),
        (tp,),
        (named(member),),
        watch.lag_of(tp),
        record_details(offset, seen),
    )


def consume(tp: TopicPartition, place: int | str | None) -> str:
    """The command that shows the record at a place."""
    return f"kadence consume {spelled(tp)} --from {place} -n 1"


def record_details(offset: int, seen: SeenRecord | None) -> tuple[tuple[str, Any], ...]:
    """The numbers of the record at an offset."""
    return (
        ("offset", offset),
        ("size", None if seen is None else seen.size),
        ("key", None if seen is None else text_of(seen.key)),
        ("timestamp", None if seen is None else moment(seen.timestamp_ms)),
    )


def shown(seen: SeenRecord, now_ms: int) -> str:
    """A record in words, without its value."""
    age = duration(max(0, now_ms - seen.timestamp_ms) / 1000)
    return f"offset {seen.offset}: {plural(seen.size, 'byte')}, key {_key(seen)}, {age} old"


def _key(seen: SeenRecord) -> str:
    if seen.key is None:
        return "none"
    text = repr(seen.key.decode(errors="replace"))
    return text if len(text) <= 40 else f"{text[:39]}…"
