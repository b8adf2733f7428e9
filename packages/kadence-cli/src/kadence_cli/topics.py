"""``kadence topics``: lists topics and their settings, and changes them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kadence.protocol import error_codes as ec
from kadence_cli.common import (
    UsageError,
    add_actions,
    add_client_options,
    add_command,
    add_row_options,
    client_config,
    print_deleted,
    print_rows,
    read_settings,
    say,
)
from kadence_cli.names import chosen, matching, partitions
from kadence_cli.parts import Parts
from kadence_cli.reach import reached
from kadence_cli.where import FORMS, offsets, ranges, read_where, refuse_outside, tell_presumed

if TYPE_CHECKING:
    from kadence import Admin, TopicPartition

__all__ = ["add", "run"]

_DESCRIPTION = """\
List, describe, create, change or delete topics."""

_EXAMPLES = """\
  kadence topics list 'orders*'
  kadence topics describe flights            leaders, replicas, offsets
  kadence topics create flights --partitions 6 --config retention.ms=86400000
  kadence topics grow flights --partitions 12
  kadence topics config flights --set retention.ms=3600000
  kadence topics delete-records flights --before -7d --dry-run
  kadence topics delete flights"""


def add(commands: Any, summary: str) -> None:
    """The command line of ``kadence topics``."""
    parser = add_command(
        commands,
        "topics",
        summary,
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    actions = add_actions(parser)

    def action(
        name: str, summary: str, function: Any, topics: str, metavar: str = "TOPIC", more: str = ""
    ) -> argparse.ArgumentParser:
        sub = add_command(actions, name, summary, description=f"{summary[0].upper()}{summary[1:]}.{more}")
        sub.add_argument("topics", nargs=topics, metavar=metavar, help=_TOPICS[metavar])
        add_row_options(sub)
        add_client_options(sub)
        sub.set_defaults(run=run, action_function=function)
        return sub

    listing = action("list", "list topics and how many partitions they have", _list, "*", "PATTERN")
    listing.add_argument("--internal", action="store_true", help="list Kafka's own topics, too")
    action("describe", "show each partition: leader, replicas, offsets", _describe, "+", "TOPIC|PATTERN")
    create = action("create", "create topics", _create, "+")
    create.add_argument(
        "--partitions", type=int, default=-1, metavar="N", help="number of partitions (default: the broker's)"
    )
    create.add_argument(
        "--replication-factor",
        type=int,
        default=-1,
        metavar="N",
        help="replicas of each partition (default: the broker's)",
    )
    create.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the topics; repeatable",
    )
    grow = action(
        "grow", "add partitions to topics; new records of a key may go to another partition", _grow, "+"
    )
    grow.add_argument("--partitions", type=int, required=True, metavar="N", help="the new total number")
    config = action("config", "show or change the settings of topics", _config, "+", "TOPIC|PATTERN")
    config.add_argument("--all", action="store_true", help="show settings with Kafka's default value, too")
    config.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting; repeatable"
    )
    config.add_argument(
        "--unset",
        action="append",
        default=[],
        metavar="KEY",
        help="remove a setting, so that its default applies; repeatable",
    )
    trim = action(
        "delete-records",
        "delete the oldest records of topics; it cannot be undone",
        _delete_records,
        "+",
        "TOPIC[:0,1,…]",
        f"\n\n{FORMS}",
    )
    trim.add_argument(
        "--before",
        required=True,
        type=read_where,
        metavar="WHERE",
        help="delete the records before this place",
    )
    trim.add_argument("--dry-run", action="store_true", help="show the offsets without deleting anything")
    action("delete", "delete topics and all their records", _delete, "+")


_TOPICS = {
    "TOPIC": "name of a topic",
    "PATTERN": "names with * ? [abc], in quotes; default: all",
    "TOPIC[:0,1,…]": "a topic, or some of its partitions",
    "TOPIC|PATTERN": "a name, or names with * ? [abc], in quotes",
}


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    with reached(client_config(arguments), arguments) as admin:
        parts = Parts(
            arguments.command,
            "topic",
            ec.UNKNOWN_TOPIC_OR_PARTITION,
            lambda: dict.fromkeys(admin.list_topics(internal=True), ""),
        )
        arguments.action_function(admin, arguments, parts)
    return parts.status


def _show(rows: list[dict[str, Any]], arguments: argparse.Namespace, *columns: str) -> None:
    print_rows(rows, as_json=arguments.json, wide=arguments.wide, columns=columns)


def _names(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    return chosen(arguments.topics, lambda: list(admin.list_topics(internal=True)), "topic")


def _list(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    topics = admin.list_topics(internal=arguments.internal)
    rows = [
        {"topic": name, "partitions": len(topics[name].partitions), "internal": topics[name].is_internal}
        for name in matching(topics, arguments.topics)
    ]
    _show(rows, arguments, "topic", "partitions")


def _describe(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    from kadence import TopicPartition

    described = parts.done(admin.describe_topics(_names(admin, arguments), raise_errors=False))
    everything = [
        TopicPartition(name, each.partition) for name, topic in described.items() for each in topic.partitions
    ]
    # First: it must not be beyond an end offset that was looked up before it.
    stable = admin.list_offsets(
        dict.fromkeys(everything, "latest"), isolation_level="read_committed", raise_errors=False
    )
    held = admin.log_ranges(everything, raise_errors=False)
    rows = []
    for name, topic in described.items():
        for info in topic.partitions:
            tp = TopicPartition(name, info.partition)
            first, end = held.get(tp, (None, None))
            last_stable = stable.get(tp)
            rows.append(
                {
                    "topic": name,
                    "partition": info.partition,
                    "leader": info.leader,
                    "replicas": list(info.replicas),
                    "in_sync": list(info.in_sync_replicas),
                    "first_offset": first,
                    "last_stable": None if last_stable is None else last_stable.offset,
                    "next_offset": end,
                }
            )
    _show(rows, arguments, *(() if arguments.wide else _that_tell(rows)))


def _that_tell(rows: list[dict[str, Any]]) -> list[str]:
    """Columns for a width of 80: with an open transaction, the last stable offset replaces the least useful column."""
    is_open = any(row["last_stable"] != row["next_offset"] for row in rows)
    is_lagging = any(len(row["in_sync"]) < len(row["replicas"]) for row in rows)
    left_out = "last_stable" if not is_open else "first_offset" if is_lagging else "replicas"
    return [name for name in rows[0] if name != left_out] if rows else []


def _create(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    from kadence.admin import NewTopic

    for name, number in (
        ("partitions", arguments.partitions),
        ("replication-factor", arguments.replication_factor),
    ):
        if number == 0 or number < -1:
            raise UsageError(f"--{name} must be at least 1, not {number}")
    configs = read_settings(arguments.config, "--config")
    wanted = [
        NewTopic(name, arguments.partitions, arguments.replication_factor, configs)
        for name in arguments.topics
    ]
    made = parts.done(admin.create_topics(wanted, raise_errors=False))
    _show([{"topic": name, "partitions": topic.partitions} for name, topic in made.items()], arguments)


def _grow(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    totals = parts.done(
        admin.create_partitions(dict.fromkeys(arguments.topics, arguments.partitions), raise_errors=False)
    )
    _show([{"topic": name, "partitions": total} for name, total in totals.items()], arguments)


def _config(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    from kadence.admin import ConfigResource

    wanted = [ConfigResource("topic", name) for name in _names(admin, arguments)]
    changes: dict[str, str | None] = {
        **read_settings(arguments.set, "--set"),
        **dict.fromkeys(arguments.unset),
    }
    if changes:
        wanted = list(
            parts.done(admin.incremental_alter_configs(dict.fromkeys(wanted, changes), raise_errors=False))
        )
    rows = [
        {"topic": resource.name, "key": key, "value": entry.value, "default": entry.is_default}
        for resource, entries in parts.done(admin.describe_configs(wanted, raise_errors=False)).items()
        for key, entry in sorted(entries.items())
        if arguments.all or not entry.is_default
    ]
    _show(rows, arguments, "topic", "key", "value", "default")


def _delete_records(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    chosen_partitions = partitions(admin, *arguments.topics)
    held = ranges(admin, chosen_partitions)
    refuse_outside(arguments.before, held)
    tell_presumed(arguments.before, "--before")
    before = offsets(admin, arguments.before, held, client_config(arguments, "ConsumerConfig"))
    first: Mapping[TopicPartition, int] = {tp: each.first for tp, each in held.items()}
    if not arguments.dry_run:
        first = parts.done(admin.delete_records(before, raise_errors=False))
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "deleted_below": before[tp],
            "first_offset": first[tp],
            "next_offset": held[tp].end,
        }
        for tp in chosen_partitions
        if tp in first
    ]
    _show(rows, arguments, "topic", "partition", "deleted_below", "first_offset", "next_offset")
    if arguments.dry_run:
        say("nothing was deleted (--dry-run)")


def _delete(admin: Admin, arguments: argparse.Namespace, parts: Parts) -> None:
    print_deleted("topic", parts.done(admin.delete_topics(arguments.topics, raise_errors=False)), arguments)
