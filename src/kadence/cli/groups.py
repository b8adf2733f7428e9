"""``kadence groups``: who consumes what, how far behind, and from where next time."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from kadence.cli.common import CommandError, add_client_options, add_command, client_config, print_rows, say

if TYPE_CHECKING:
    from kadence import Admin, TopicPartition

__all__ = ["add", "run"]

_DESCRIPTION = """\
List and describe consumer groups, show their lag, move their offsets, delete them. On a terminal prints a table, in
a pipe JSON lines."""

_EXAMPLES = """\
  kadence groups list
  kadence groups describe report                       its state, members and what each owns
  kadence groups lag report                            committed, end and lag of each partition
  kadence groups lag report | jq -s 'map(.lag) | add'  the lag of all together
  kadence groups reset report --topic flights --to earliest --dry-run
  kadence groups reset report --topic flights:0,3 --to 1200
  kadence groups delete report"""


def add(commands: Any) -> None:
    """The command line of ``kadence groups``."""
    parser = add_command(
        commands, "groups", "consumer groups and their lag", description=_DESCRIPTION, examples=_EXAMPLES
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, summary: str, function: Any, groups: str | int | None) -> argparse.ArgumentParser:
        sub: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary)
        if groups is not None:
            sub.add_argument("groups", nargs=groups, metavar="GROUP")
        sub.add_argument("--json", action="store_true", help="JSON lines on a terminal, too")
        add_client_options(sub)
        sub.set_defaults(run=run, action_function=function)
        return sub

    action("list", "all groups", _list, None)
    action("describe", "state, members and what each owns", _describe, "+")
    action("lag", "committed offset, end and lag of each partition", _lag, "+")
    reset = action("reset", "move the committed offsets of a group without live members", _reset, 1)
    reset.add_argument(
        "--topic",
        action="append",
        required=True,
        metavar="TOPIC[:0,1,…]",
        help="all partitions, or some; repeatable",
    )
    reset.add_argument(
        "--to",
        required=True,
        metavar="WHERE",
        help="earliest, latest, an offset, or time:MS (ms since 1970, UTC)",
    )
    reset.add_argument("--dry-run", action="store_true", help="show the offsets without moving them")
    action("delete", "delete groups without members, and their offsets", _delete, "+")


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    from kadence import Admin

    with Admin(client_config(arguments)) as admin:
        arguments.action_function(admin, arguments)
    return 0


def _list(admin: Admin, arguments: argparse.Namespace) -> None:
    rows = [
        {
            "group": group.group_id,
            "state": group.state,
            "type": group.group_type,
            "protocol": group.protocol_type,
        }
        for group in admin.list_groups()
    ]
    print_rows(rows, as_json=arguments.json)


def _describe(admin: Admin, arguments: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    for name, group in admin.describe_groups(arguments.groups).items():
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
                "partitions": [str(tp) for tp in sorted(member.assignment)],
            }
            for member in group.members
        ]
        if not group.members:
            rows.append({**about, "member": None, "client": None, "host": None, "partitions": []})
    print_rows(rows, as_json=arguments.json)


def _lag(admin: Admin, arguments: argparse.Namespace) -> None:
    rows = []
    for name in arguments.groups:
        group = admin.describe_groups([name])[name]
        owners = {tp: member.client_id for member in group.members for tp in member.assignment}
        committed = admin.group_offsets(name)
        partitions = sorted(committed.keys() | owners.keys())
        ends = admin.list_offsets(dict.fromkeys(partitions, "latest"), raise_errors=False)
        for tp in partitions:
            at, end = committed.get(tp), ends.get(tp)
            rows.append(
                {
                    "group": name,
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "committed": None if at is None else at.offset,
                    "end": None if end is None else end.offset,
                    "lag": None if at is None or end is None else max(0, end.offset - at.offset),
                    "member": owners.get(tp),
                }
            )
    print_rows(rows, as_json=arguments.json)


def _reset(admin: Admin, arguments: argparse.Namespace) -> None:
    (group,) = arguments.groups
    partitions = [tp for text in arguments.topic for tp in _partitions(admin, text)]
    before = admin.group_offsets(group)
    after = _targets(admin, partitions, arguments.to)
    if not arguments.dry_run:
        admin.alter_group_offsets(group, after)
    rows = [
        {
            "group": group,
            "topic": tp.topic,
            "partition": tp.partition,
            "from": before[tp].offset if tp in before else None,
            "to": after[tp],
        }
        for tp in partitions
    ]
    print_rows(rows, as_json=arguments.json)
    if arguments.dry_run:
        say("nothing was moved (--dry-run)")


def _partitions(admin: Admin, text: str) -> list[TopicPartition]:
    from kadence import TopicPartition

    name, _, numbers = text.partition(":")
    if numbers:
        if not all(number.isdigit() for number in numbers.split(",")):
            raise CommandError(f"--topic takes TOPIC or TOPIC:0,1,2, not {text!r}")
        return [TopicPartition(name, int(number)) for number in numbers.split(",")]
    return [TopicPartition(name, info.partition) for info in admin.describe_topics([name])[name].partitions]


def _targets(admin: Admin, partitions: list[TopicPartition], where: str) -> dict[TopicPartition, int]:
    ends = {tp: at.offset for tp, at in admin.list_offsets(dict.fromkeys(partitions, "latest")).items() if at}
    if where == "latest":
        return ends
    firsts = {
        tp: at.offset for tp, at in admin.list_offsets(dict.fromkeys(partitions, "earliest")).items() if at
    }
    if where == "earliest":
        return firsts
    if where.isdigit():
        for tp in partitions:
            if not firsts[tp] <= int(where) <= ends[tp]:
                raise CommandError(f"{tp} has offsets {firsts[tp]} to {ends[tp]}; {where} is outside")
        return dict.fromkeys(partitions, int(where))
    kind, _, moment = where.partition(":")
    if kind == "time" and moment.isdigit():
        found = admin.list_offsets(dict.fromkeys(partitions, int(moment)))
        return {tp: ends[tp] if (at := found[tp]) is None else at.offset for tp in partitions}
    raise CommandError(f"--to takes earliest, latest, an offset or time:MS, not {where!r}")


def _delete(admin: Admin, arguments: argparse.Namespace) -> None:
    for name in admin.delete_groups(arguments.groups):
        say(f"{name} deleted")
