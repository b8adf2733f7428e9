"""``kadence topics``: what topics there are, and changes to them."""

from __future__ import annotations

import argparse
from typing import Any

from kadence.cli.common import (
    CommandError,
    add_client_options,
    add_command,
    client_config,
    print_rows,
    read_settings,
    say,
)

__all__ = ["add", "run"]

_DESCRIPTION = """\
List, describe, create, grow or delete topics. On a terminal prints a table, in a pipe JSON lines."""

_EXAMPLES = """\
  kadence topics list
  kadence topics describe flights                      partitions, leaders, first and next offset
  kadence topics create flights --partitions 6 --config retention.ms=86400000
  kadence topics grow flights --partitions 12
  kadence topics delete flights
  kadence topics list | jq -r .topic"""


def add(commands: Any) -> None:
    """The command line of ``kadence topics``."""
    parser = add_command(
        commands, "topics", "list and change topics", description=_DESCRIPTION, examples=_EXAMPLES
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, summary: str, function: Any, topics: str | None) -> argparse.ArgumentParser:
        sub: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary)
        if topics is not None:
            sub.add_argument("topics", nargs=topics, metavar="TOPIC")
        sub.add_argument("--json", action="store_true", help="JSON lines on a terminal, too")
        add_client_options(sub)
        sub.set_defaults(run=run, action_function=function)
        return sub

    listing = action("list", "topics and how many partitions they have", _list, None)
    listing.add_argument("--internal", action="store_true", help="Kafka's own topics, too")
    action("describe", "each partition: leader, replicas, first and next offset", _describe, "+")
    create = action("create", "create topics", _create, "+")
    create.add_argument("--partitions", type=int, default=-1, help="default: what the broker is set to")
    create.add_argument(
        "--replication-factor", type=int, default=-1, help="default: what the broker is set to"
    )
    create.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="repeatable")
    grow = action("grow", "give topics more partitions (new records of a key may go elsewhere)", _grow, "+")
    grow.add_argument("--partitions", type=int, required=True, help="how many there shall be")
    action("delete", "delete topics and all their records", _delete, "+")


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    from kadence import Admin

    with Admin(client_config(arguments)) as admin:
        arguments.action_function(admin, arguments)
    return 0


def _list(admin: Any, arguments: argparse.Namespace) -> None:
    rows = [
        {"topic": name, "partitions": len(topic.partitions), "internal": topic.is_internal}
        for name, topic in admin.list_topics(internal=arguments.internal).items()
    ]
    print_rows(rows, as_json=arguments.json, columns=("topic", "partitions"))


def _describe(admin: Any, arguments: argparse.Namespace) -> None:
    from kadence import TopicPartition

    rows = []
    for name, topic in admin.describe_topics(arguments.topics).items():
        partitions = [TopicPartition(name, info.partition) for info in topic.partitions]
        first = admin.list_offsets(dict.fromkeys(partitions, "earliest"), raise_errors=False)
        last = admin.list_offsets(dict.fromkeys(partitions, "latest"), raise_errors=False)
        for tp, info in zip(partitions, topic.partitions, strict=True):
            rows.append(
                {
                    "topic": name,
                    "partition": info.partition,
                    "leader": info.leader,
                    "replicas": list(info.replicas),
                    "in_sync": list(info.in_sync_replicas),
                    "first_offset": first[tp].offset if tp in first else None,
                    "next_offset": last[tp].offset if tp in last else None,
                }
            )
    print_rows(rows, as_json=arguments.json)


def _create(admin: Any, arguments: argparse.Namespace) -> None:
    from kadence.admin import NewTopic

    for name, number in (
        ("partitions", arguments.partitions),
        ("replication-factor", arguments.replication_factor),
    ):
        if number == 0 or number < -1:
            raise CommandError(f"--{name} must be at least 1, not {number}")
    configs = read_settings(arguments.config)
    made = admin.create_topics(
        [
            NewTopic(name, arguments.partitions, arguments.replication_factor, configs)
            for name in arguments.topics
        ]
    )
    print_rows(
        [{"topic": name, "partitions": topic.partitions} for name, topic in made.items()], as_json=True
    )


def _grow(admin: Any, arguments: argparse.Namespace) -> None:
    totals = admin.create_partitions(dict.fromkeys(arguments.topics, arguments.partitions))
    print_rows([{"topic": name, "partitions": total} for name, total in totals.items()], as_json=True)


def _delete(admin: Any, arguments: argparse.Namespace) -> None:
    for name in admin.delete_topics(arguments.topics):
        say(f"{name} deleted")
