"""The actions of ``kadence groups`` on offsets: their lag, and how they are moved and deleted."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kadence.errors import BrokerError
from kadence.lag import lag
from kadence.protocol import error_codes as ec
from kadence_cli.common import CommandError, UsageError, client_config, print_rows, say
from kadence_cli.group_types import SHARE, Description, Place, described, is_share, places, places_again
from kadence_cli.names import partitions
from kadence_cli.names import ranges as in_short
from kadence_cli.parts import Parts
from kadence_cli.where import Where, offsets, ranges, refuse_outside, tell_presumed

if TYPE_CHECKING:
    from kadence import Admin
    from kadence.types import TopicPartition

__all__ = ["forget", "lags", "reset"]


def _show(rows: list[dict[str, Any]], arguments: argparse.Namespace, *columns: str) -> None:
    print_rows(rows, as_json=arguments.json, wide=arguments.wide, columns=columns)


def lags(admin: Admin, wanted: list[str], arguments: argparse.Namespace, parts: Parts) -> None:
    """``kadence groups lag``: a row for each partition of each group."""
    groups = parts.done(described(admin, wanted))
    found = parts.done(places(admin, groups))
    owners = {name: _owners(groups[name]) for name in found}
    known = {name: sorted(found[name].keys() | owners[name].keys()) for name in found}
    everything = sorted({tp for of_group in known.values() for tp in of_group})
    # First: it must not be beyond an end offset that was looked up before it.
    stable = admin.list_offsets(
        dict.fromkeys(everything, "latest"), isolation_level="read_committed", raise_errors=False
    )
    ends = admin.list_offsets(dict.fromkeys(everything, "latest"), raise_errors=False)
    now = parts.done(places_again(admin, {name: groups[name] for name in known}, found))
    rows = []
    for name, tp in ((each, tp) for each in now for tp in known[each]):
        at, end, last_stable = now[name].get(tp, Place(None)), ends.get(tp), stable.get(tp)
        is_queue = is_share(groups[name])
        end_offset = None if end is None else end.offset
        rows.append(
            {
                "group": name,
                "type": groups[name].group_type,
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": None if is_queue else at.offset,
                "start": at.offset if is_queue else None,
                "last_stable": None if last_stable is None else last_stable.offset,
                "end": end_offset,
                "lag": lag(end_offset, at.offset) if at.waiting is None else at.waiting,
                "above": at.above(end_offset),
                "member": ", ".join(owners[name].get(tp, ())) or None,
            }
        )
    _show(rows, arguments, *_that_tell(rows))
    for name, of_group in known.items():
        _tell_nothing(groups[name], name, of_group, now.get(name, {}))


def _owners(group: Description) -> dict[TopicPartition, list[str]]:
    """The members that have each partition: several in a share group."""
    owners: dict[TopicPartition, list[str]] = {}
    for member in sorted(group.members, key=lambda each: (each.client_id, each.member_id)):
        for tp in member.assignment:
            owners.setdefault(tp, []).append(member.client_id)
    return owners


def _that_tell(rows: list[dict[str, Any]]) -> list[str]:
    """Columns of a table: without the offset that no group in it has, and the type if all have the same."""
    if not rows:
        return []
    are_queues = {row["type"] == SHARE for row in rows}
    left_out = {"type"} if len({row["type"] for row in rows}) == 1 else set()
    left_out |= {"start"} if True not in are_queues else {"committed"} if False not in are_queues else set()
    return [name for name in rows[0] if name not in left_out]


def _tell_nothing(
    group: Description, name: str, known: Iterable[TopicPartition], found: Mapping[TopicPartition, Place]
) -> None:
    """Say what a group has no offsets of, if that is worth saying."""
    nowhere = [tp for tp in known if found.get(tp, Place(None)).offset is None]
    if not is_share(group):
        if not known:
            say(f"group {name!r} has committed nothing, and no member of it has partitions")
    elif nowhere:
        say(
            f"share group {name!r} has no place yet in {in_short(nowhere)}: it begins by share.auto.offset.reset, and "
            "anew after each restart until a record is done; `kadence groups reset` sets it"
        )
    elif not known:
        say(f"share group {name!r} has no place in any partition, and no member of it has partitions")


def reset(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    """``kadence groups reset``."""
    (group,) = arguments.groups
    where: Where = arguments.to
    is_queue = _type_of_idle(admin, group, parts, arguments.type) == SHARE
    chosen_partitions = partitions(admin, *arguments.topic)
    before: dict[TopicPartition, int | None]
    if is_queue:
        # A broker before 4.1 has no share groups, and says so here.
        before = {tp: at.start_offset for tp, at in admin.list_share_group_offsets(group).items()}
    else:
        before = {tp: at.offset for tp, at in admin.list_consumer_group_offsets(group).items()}
    held = ranges(admin, chosen_partitions)
    refuse_outside(where, held)
    tell_presumed(where, "--to")
    after = offsets(admin, where, held, client_config(arguments, "ConsumerConfig"))
    if not arguments.dry_run and is_queue:
        admin.alter_share_group_offsets(group, after)
    elif not arguments.dry_run:
        admin.alter_consumer_group_offsets(group, after)
    rows = [
        {
            "group": group,
            "topic": tp.topic,
            "partition": tp.partition,
            "from": before.get(tp),
            "to": after[tp],
        }
        for tp in chosen_partitions
    ]
    _show(rows, arguments)
    if arguments.dry_run:
        say("nothing was moved (--dry-run)")


def _type_of_idle(admin: Admin, group: str, parts: Parts, wanted: str | None) -> str:
    """The type of a group whose offsets are to be moved, also in a dry run; ``wanted`` if there is none.

    Raises:
        CommandError: the group has members, or is of another type than wanted, or of one that has no offsets.
    """
    found = described(admin, [group])
    if (known := found.get(group)) is not None:
        if wanted is not None and is_share(known) != (wanted == SHARE):
            raise CommandError(
                f"{group!r} is a {known.group_type} group; delete it first, or choose another name"
            )
        if known.members or known.state not in ("Empty", "Dead"):
            raise CommandError(
                f"group {group!r} has live members (it is in state {known.state}); stop its consumers first"
            )
        return known.group_type
    error = found.errors[group]
    if not (isinstance(error, BrokerError) and error.code == ec.GROUP_ID_NOT_FOUND):
        raise error
    # Offsets of a group that does not exist may be set: that creates it.
    if (of_type := parts.type_of(group)) is not None and not parts.is_wanted(of_type):
        raise CommandError(parts.of_another_type(group, of_type))
    return wanted or "consumer"


def forget(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    """``kadence groups forget``."""
    (group,) = arguments.groups
    wanted = partitions(admin, *arguments.topic)
    known = parts.done(described(admin, [group])).get(group)
    if known is None:
        return
    deleted: dict[TopicPartition, int | None]
    if is_share(known):
        if any(":" in word for word in arguments.topic):
            raise UsageError(
                f"{group!r} is a share group: it forgets a topic as a whole; name it without ':'"
            )
        of_group = admin.list_share_group_offsets(group)
        deleted = {tp: of_group[tp].start_offset for tp in wanted if tp in of_group}
        if deleted:
            admin.delete_share_group_offsets(group, sorted({tp.topic for tp in deleted}))
    else:
        committed = admin.list_consumer_group_offsets(group)
        deleted = {tp: committed[tp].offset for tp in wanted if tp in committed}
        admin.delete_consumer_group_offsets(group, list(deleted))
    rows = [
        {"group": group, "topic": tp.topic, "partition": tp.partition, "deleted": at}
        for tp, at in deleted.items()
    ]
    _show(rows, arguments, "group", "topic", "partition", "deleted")
    if not deleted:
        say(f"group {group!r} has committed nothing there")
