"""``kadence dead-letters``: lists, shows, replays and deletes dead letter records."""

from __future__ import annotations

import argparse
from typing import Any

from kadence_cli.common import add_actions, add_client_options, add_command, add_row_options, client_config
from kadence_cli.letter_actions import drop_letters, list_letters, replay_letters, show_letters
from kadence_cli.losses import Losses
from kadence_cli.reach import admin_settings, reached
from kadence_cli.where import FORMS, read_where

__all__ = ["add", "run"]

_DESCRIPTION = """\
List the records of a dead letter topic, show them, send them back, or delete
them. process(), consumers with deserialization.errors=dead-letter and
pipelines write such records."""

_EXAMPLES = """\
  kadence dead-letters list orders.dead
  kadence dead-letters show orders.dead:0 --offset 12
  kadence dead-letters replay orders.dead --error TimeoutError --dry-run
  kadence dead-letters replay orders.dead:0 --offset 12 --to orders.test
  kadence dead-letters replay orders.dead --all
  kadence dead-letters drop orders.dead --before -30d --dry-run"""

_REPLAY = """

It sends each record, without the headers about its last error, to its original
topic and partition; if that partition is gone, and with --to, the key chooses
one. The header kadence.replay.timestamp has the original timestamp. The dead
letter records stay: a second replay sends them again. It does not send, but
names, records of which a part was too large for the dead letter topic and,
without --to, records whose topic is unknown or gone."""

_DROP = """

Kafka cannot delete single records: this deletes all dead letter records before
WHERE, replayed or not. It cannot be undone.

"""


def add(commands: Any, summary: str) -> None:
    """The command line of ``kadence dead-letters``."""
    parser = add_command(
        commands,
        "dead-letters",
        summary,
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    actions = add_actions(parser)

    def action(name: str, summary: str, function: Any, more: str = "") -> argparse.ArgumentParser:
        sub = add_command(actions, name, summary, description=f"{summary[0].upper()}{summary[1:]}.{more}")
        sub.add_argument(
            "topics",
            nargs="+",
            metavar="TOPIC[:0,1,…]",
            help="a dead letter topic, or some of its partitions",
        )
        add_row_options(sub)
        add_client_options(sub)
        sub.set_defaults(run=run, action_function=function)
        return sub

    def choice(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--offset",
            type=int,
            action="append",
            default=[],
            metavar="N",
            help="only records at this offset of the dead letter topic; repeatable",
        )
        sub.add_argument(
            "--error",
            action="append",
            default=[],
            metavar="CLASS",
            help="only records with this class of exception, e.g. TimeoutError; repeatable",
        )
        sub.add_argument(
            "--origin",
            action="append",
            default=[],
            metavar="TOPIC",
            help="only records that came from this topic; repeatable",
        )

    choice(action("list", "count dead letter records by origin and error", list_letters))
    show = action("show", "show dead letter records: key, value, headers, error", show_letters)
    choice(show)
    show.add_argument("-n", "--max-records", type=int, metavar="N", help="stop after N records")
    replay = action("replay", "send dead letter records back to their topics", replay_letters, _REPLAY)
    choice(replay)
    replay.add_argument("--all", action="store_true", help="all records of these partitions")
    replay.add_argument("--to", metavar="TOPIC", help="send them to this topic instead")
    replay.add_argument(
        "--dry-run", action="store_true", help="show what would be sent where, and send nothing"
    )
    drop = action("drop", "delete the oldest dead letter records", drop_letters, f"{_DROP}{FORMS}")
    drop.add_argument(
        "--before",
        required=True,
        type=read_where,
        metavar="WHERE",
        help="delete the records before this place",
    )
    drop.add_argument("--dry-run", action="store_true", help="show how many it would delete, and delete none")


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    arguments.losses = Losses()
    with reached(admin_settings(client_config(arguments)), arguments) as admin:
        status: int = arguments.action_function(admin, arguments) or arguments.losses.status
    return status
