"""The command line of ``kadence groups``. What its actions need is loaded when they run."""

from __future__ import annotations

import argparse
from typing import Any

from kadence_cli.common import add_actions, add_client_options, add_command, add_row_options
from kadence_cli.where import FORMS, read_where
from kadence_cli.why import options as why

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
List, describe, change or delete consumer groups and share groups (queues), and
show why they lag."""

_EXAMPLES = """\
  kadence groups list 'orders*' --state empty
  kadence groups describe report
  kadence groups why report --for 60 --json | jq -r .reason
  kadence groups reset report --topic flights --to -2h --dry-run
  kadence groups reset jobs --type share --topic flights --to latest
  kadence groups config jobs --set share.auto.offset.reset=earliest
  kadence groups forget report --topic flights"""

_TYPES = ("consumer", "classic", "share", "streams")
_LAG = """

A share group has a start offset in place of a committed one; records below it
are not delivered any more. Its lag counts the records that are neither
accepted nor archived. It has no start offset and no lag until a first record
is done, or until `groups reset`. `above` counts records above the committed
offset that process() has done; of a share group, those done above its start."""

_RESET = f"""

It creates a group that does not exist yet. A share group gets all records from
the new offset on, also those that were done.

{FORMS}"""

_CONFIG = """

A group may be configured before it exists. The command refuses a dead letter
topic of a share group that brokers would not write to, or that the group
reads."""

_FORGET = """

No member may be subscribed to the topic. A share group must have no members,
and forgets whole topics only."""

_GROUPS = {
    "GROUP": "name of a group",
    "PATTERN": "names with * ? [abc], in quotes; default: all",
    "GROUP|PATTERN": "a name, or names with * ? [abc], in quotes",
}


def add(commands: Any, summary: str) -> None:
    """The command line of ``kadence groups``."""
    parser = add_command(
        commands,
        "groups",
        summary,
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    actions = add_actions(parser)

    def action(
        name: str, summary: str, groups: str | int, metavar: str = "GROUP", more: str = ""
    ) -> argparse.ArgumentParser:
        description = f"{summary[0].upper()}{summary[1:]}.{more}"
        sub = add_command(actions, name, summary, description=description)
        sub.add_argument("groups", nargs=groups, metavar=metavar, help=_GROUPS[metavar])
        add_row_options(sub)
        add_client_options(sub)
        sub.set_defaults(run=run)
        return sub

    listing = action("list", "list groups, their type and state", "*", "PATTERN")
    listing.add_argument(
        "--state",
        metavar="STATE",
        type=_state,
        action="append",
        help="only groups in this state, e.g. empty or stable; repeatable",
    )
    listing.add_argument(
        "--type",
        metavar="TYPE",
        choices=_TYPES,
        action="append",
        help="only groups of this type: consumer, classic, share or streams; repeatable",
    )
    action("describe", "show state, members and their partitions", "+", "GROUP|PATTERN")
    action(
        "lag",
        "show offsets and lag",
        "+",
        "GROUP|PATTERN",
        _LAG,
    )
    asking = action("why", "say why groups lag", "+", "GROUP|PATTERN", why.DESCRIPTION)
    why.add_options(asking)
    asking.set_defaults(run=why.run)
    reset = action("reset", "move the offsets of a group without live members", 1, more=_RESET)
    _add_topics(reset)
    reset.add_argument(
        "--to", required=True, type=read_where, metavar="WHERE", help="where to move the offsets"
    )
    reset.add_argument(
        "--type",
        choices=("consumer", "share"),
        help="the type of a group that it creates (default: consumer)",
    )
    reset.add_argument("--dry-run", action="store_true", help="show the offsets without moving them")
    _add_topics(action("forget", "delete the offsets of a group for a topic", 1, more=_FORGET))
    config = action("config", "show or change the settings of groups", "+", "GROUP|PATTERN", _CONFIG)
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
    action("delete", "delete groups that have no members, and their offsets", "+")


def _add_topics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topic",
        action="append",
        required=True,
        metavar="TOPIC[:0,1,…]",
        help="a topic, or some of its partitions; repeatable",
    )


def _state(text: str) -> str:
    state = text.replace("-", "").lower()
    if state not in (known := [each.lower() for each in _STATES]):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a state of a group: give one of {', '.join(known)}"
        )
    return state


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    from kadence_cli import group_actions

    return group_actions.run(arguments)
