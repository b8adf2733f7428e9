"""``kadence groups``: consumer groups, their members, lag and committed offsets."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from kadence.errors import BrokerError
from kadence.lag import lag
from kadence.protocol import error_codes as ec
from kadence.work.frontier import done_above
from kadence_cli.common import (
    CommandError,
    add_actions,
    add_client_options,
    add_command,
    add_row_options,
    client_config,
    print_json,
    print_rows,
    say,
)
from kadence_cli.names import chosen, matching, partitions, spelled
from kadence_cli.parts import Parts
from kadence_cli.reach import reached
from kadence_cli.where import FORMS, Where, offsets, ranges, read_where, refuse_outside, tell_presumed
from kadence_cli.why import options as why

if TYPE_CHECKING:
    from kadence import Admin

__all__ = ["add", "run"]

_STATES = (
    "Empty",
    "Stable",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)
_DESCRIPTION = """\
List and describe consumer groups, show their lag and its reasons, move their
committed offsets, or delete them."""

_EXAMPLES = """\
  kadence groups list 'orders*' --state empty
  kadence groups describe report
  kadence groups why 'orders*'
  kadence groups why report --for 60 --json | jq -r .reason
  kadence groups reset report --topic flights --to earliest --dry-run
  kadence groups reset report --topic flights --to -2h
  kadence groups forget report --topic flights
  kadence groups delete report"""

_TYPES = frozenset({"consumer", "classic", ""})
"""Types of groups whose members have partitions and commit offsets; "": brokers before 3.8 do not send the type."""
_GROUPS = {
    "GROUP": "name of a group",
    "PATTERN": "names with * ? [abc], in quotes; default: all",
    "GROUP|PATTERN": "a name, or names with * ? [abc], in quotes",
}


def add(commands: Any) -> None:
    """The command line of ``kadence groups``."""
    parser = add_command(
        commands,
        "groups",
        "consumer groups, their lag, their offsets",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    actions = add_actions(parser)

    def action(
        name: str, summary: str, function: Any, groups: str | int, metavar: str = "GROUP", more: str = ""
    ) -> argparse.ArgumentParser:
        description = f"{summary[0].upper()}{summary[1:]}.{more}"
        sub = add_command(actions, name, summary, description=description)
        sub.add_argument("groups", nargs=groups, metavar=metavar, help=_GROUPS[metavar])
        add_row_options(sub)
        add_client_options(sub)
        sub.set_defaults(run=run, action_function=function)
        return sub

    listing = action("list", "list groups and their state", _list, "*", "PATTERN")
    listing.add_argument(
        "--state",
        metavar="STATE",
        type=_state,
        action="append",
        help="only groups in this state, e.g. empty or stable; repeatable",
    )
    action("describe", "show state, members and their partitions", _describe, "+", "GROUP|PATTERN")
    action(
        "lag",
        "show offsets, lag, and records that are done above the committed offset",
        _lag,
        "+",
        "GROUP|PATTERN",
    )
    asking = action("why", "say why groups lag", None, "+", "GROUP|PATTERN", why.DESCRIPTION)
    why.add_options(asking)
    asking.set_defaults(run=why.run)
    reset = action(
        "reset", "move the committed offsets of a group without live members", _reset, 1, more=f"\n\n{FORMS}"
    )
    reset.add_argument(
        "--topic",
        action="append",
        required=True,
        metavar="TOPIC[:0,1,…]",
        help="a topic, or some of its partitions; repeatable",
    )
    reset.add_argument(
        "--to", required=True, type=read_where, metavar="WHERE", help="the new place of the offsets"
    )
    reset.add_argument("--dry-run", action="store_true", help="show the offsets without moving them")
    forget = action("forget", "delete the offsets that a group committed for a topic", _forget, 1)
    forget.add_argument(
        "--topic",
        action="append",
        required=True,
        metavar="TOPIC[:0,1,…]",
        help="a topic, or some of its partitions; repeatable",
    )
    action("delete", "delete groups that have no members, and their offsets", _delete, "+")


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    with reached(client_config(arguments), arguments) as admin:
        parts = Parts(
            arguments.command,
            "group",
            ec.GROUP_ID_NOT_FOUND,
            lambda: {each.group_id: each.group_type for each in admin.list_groups()},
            _TYPES,
        )
        arguments.action_function(admin, arguments, parts)
    return parts.status


def _state(text: str) -> str:
    state = text.replace("-", "").lower()
    if state not in (known := [each.lower() for each in _STATES]):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a state of a group: give one of {', '.join(known)}"
        )
    return state


def _show(rows: list[dict[str, Any]], arguments: argparse.Namespace, *columns: str) -> None:
    print_rows(rows, as_json=arguments.json, wide=arguments.wide, columns=columns)


def _names(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    return chosen(arguments.groups, lambda: _listed(admin), "group")


def _listed(admin: Admin) -> list[str]:
    """Groups that have partitions and committed offsets: a pattern matches only these."""
    return [group.group_id for group in admin.list_groups() if group.group_type in _TYPES]


def _list(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    listed = {group.group_id: group for group in admin.list_groups()}
    states = arguments.state
    rows = [
        {
            "group": name,
            "state": listed[name].state,
            "type": listed[name].group_type,
            "protocol": listed[name].protocol_type,
        }
        for name in matching(listed, arguments.groups)
        if not states or listed[name].state.lower() in states
    ]
    _show(rows, arguments, "group", "state", "type", "protocol")


def _describe(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    rows: list[dict[str, Any]] = []
    names = _names(admin, arguments)
    for name, group in parts.done(admin.describe_consumer_groups(names, raise_errors=False)).items():
        about = {
            "group": name,
            "state": group.state,
            "assignor": group.assignor,
            "coordinator": group.coordinator,
        }
        rows += [
            {
                **about,
                "member": member.member_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": [spelled(tp) for tp in sorted(member.assignment)],
            }
            for member in group.members
        ]
        if not group.members:
            rows.append({**about, "member": None, "client": None, "host": None, "partitions": []})
    columns = ("group", "state", "assignor", "member", "client", "host", "partitions")
    _show(rows, arguments, *(() if arguments.wide else columns))


def _lag(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    rows = []
    described = parts.done(admin.describe_consumer_groups(_names(admin, arguments), raise_errors=False))
    committed = parts.done(admin.list_offsets_of_groups(described, raise_errors=False))
    owners = {
        name: {tp: member.client_id for member in group.members for tp in member.assignment}
        for name, group in described.items()
    }
    known = {name: sorted(committed[name].keys() | owners[name].keys()) for name in committed}
    everything = sorted({tp for of_group in known.values() for tp in of_group})
    # First: it must not be beyond an end offset that was looked up before it.
    stable = admin.list_offsets(
        dict.fromkeys(everything, "latest"), isolation_level="read_committed", raise_errors=False
    )
    ends = admin.list_offsets(dict.fromkeys(everything, "latest"), raise_errors=False)
    for name, tp in ((name, tp) for name, of_group in known.items() for tp in of_group):
        at, end, last_stable = committed[name].get(tp), ends.get(tp), stable.get(tp)
        rows.append(
            {
                "group": name,
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": None if at is None else at.offset,
                "last_stable": None if last_stable is None else last_stable.offset,
                "end": None if end is None else end.offset,
                "lag": lag(None if end is None else end.offset, None if at is None else at.offset),
                "above": 0 if at is None else done_above(at.offset, at.metadata),
                "member": owners[name].get(tp),
            }
        )
    _show(rows, arguments)
    for name in (name for name, of_group in known.items() if not of_group):
        say(f"group {name!r} has committed nothing, and no member of it has partitions")


def _reset(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    (group,) = arguments.groups
    where: Where = arguments.to
    _refuse_unless_idle(admin, group, parts)
    chosen_partitions = [tp for word in arguments.topic for tp in partitions(admin, word)]
    before = admin.list_consumer_group_offsets(group)
    held = ranges(admin, chosen_partitions)
    refuse_outside(where, held)
    tell_presumed(where, "--to")
    after = offsets(admin, where, held, client_config(arguments, "ConsumerConfig"))
    if not arguments.dry_run:
        admin.alter_consumer_group_offsets(group, after)
    rows = [
        {
            "group": group,
            "topic": tp.topic,
            "partition": tp.partition,
            "from": before[tp].offset if tp in before else None,
            "to": after[tp],
        }
        for tp in chosen_partitions
    ]
    _show(rows, arguments)
    if arguments.dry_run:
        say("nothing was moved (--dry-run)")


def _refuse_unless_idle(admin: Admin, group: str, parts: Parts) -> None:
    """Refuse a group whose offsets brokers do not change, also in a dry run.

    Raises:
        CommandError: the group has members, or is of another type.
    """
    described = admin.describe_consumer_groups(group, raise_errors=False)
    if (found := described.get(group)) is not None:
        if found.members or found.state not in ("Empty", "Dead"):
            raise CommandError(
                f"group {group!r} has live members (it is in state {found.state}); stop its consumers first"
            )
        return
    error = described.errors[group]
    if not (isinstance(error, BrokerError) and error.code == ec.GROUP_ID_NOT_FOUND):
        raise error
    # Offsets of a group that does not exist may be set: that creates it.
    if (of_type := parts.type_of(group)) is not None and not parts.is_wanted(of_type):
        raise CommandError(parts.of_another_type(group, of_type))


def _forget(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    (group,) = arguments.groups
    committed = admin.list_consumer_group_offsets(group)
    wanted = [tp for word in arguments.topic for tp in partitions(admin, word) if tp in committed]
    admin.delete_consumer_group_offsets(group, wanted)
    _show(
        [
            {"group": group, "topic": tp.topic, "partition": tp.partition, "deleted": committed[tp].offset}
            for tp in wanted
        ],
        arguments,
        "group",
        "topic",
        "partition",
        "deleted",
    )
    if not wanted:
        say(f"group {group!r} has committed nothing there")


def _delete(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    for name in parts.done(admin.delete_consumer_groups(arguments.groups, raise_errors=False)):
        if arguments.json:
            print_json({"group": name})
        else:
            say(f"{name} deleted")
