"""Completions that the parser does not have: files, places, and names of topics, groups and transactions."""

from __future__ import annotations

import argparse
import contextlib
import threading
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kadence.errors import KafkaError
from kadence.printable import printable
from kadence_cli.common import CommandError, client_config
from kadence_cli.reach import quiet

if TYPE_CHECKING:
    from kadence import Admin

__all__ = ["offered"]

PATIENCE_S: Final = 0.7
"""How long to wait for the brokers (seconds): the user waits meanwhile.

The start of the interpreter takes about 0.25 s before."""

_FILES: Final = ("FILE", "DIR")
_PLACES: Final = ("earliest", "latest", "today", "yesterday")
_KINDS: Final = {
    "TOPIC": "topics",
    "TOPIC|PATTERN": "topics",
    "TOPIC[:0,1,…]": "topics",
    "TOPIC:PARTITION": "partitions",
    "GROUP": "groups",
    "GROUP|PATTERN": "groups",
    "ID": "transactions",
    "ID|PATTERN": "transactions",
}
"""The kind of names for each parameter name in the help."""


def offered(
    prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **asked: Any
) -> Iterable[str]:
    """The completions of a parameter, for `argcomplete`; none if the brokers do not answer at once.

    Args:
        parsed_args: the arguments before it, as far as they could be parsed. They may name the cluster.
    """
    if action.metavar in _FILES:
        found: list[str] = import_module("argcomplete.completers").FilesCompleter()(prefix)
        return found
    if action.metavar == "WHERE":
        return _PLACES
    kind = _kind(action, parsed_args)
    if not kind:
        return ()
    given = getattr(parsed_args, action.dest, None) or ()
    # A terminal would interpret control characters.
    return [
        name for name in _names(kind, prefix, parsed_args) if name not in given and name == printable(name)
    ]


def _kind(action: argparse.Action, parsed_args: argparse.Namespace) -> str:
    command = getattr(parsed_args, "command", "")
    if (command, getattr(parsed_args, "action", "")) == ("topics", "create"):
        # The names of existing topics do not help here.
        return ""
    return command if action.metavar == "PATTERN" else _KINDS.get(str(action.metavar), "")


def _names(kind: str, prefix: str, parsed_args: argparse.Namespace) -> list[str]:
    found: list[str] = []
    # A daemon: a DNS lookup, or the end of a connection, may take longer than the user waits.
    asking = threading.Thread(target=_ask, args=(kind, prefix, parsed_args, found), daemon=True)
    asking.start()
    asking.join(PATIENCE_S)
    return sorted(found)


def _ask(kind: str, prefix: str, parsed_args: argparse.Namespace, found: list[str]) -> None:
    """Complete nothing if the line or a file is wrong: the command itself reports that."""
    # ConfigError is a KafkaError, UsageError a CommandError.
    with contextlib.suppress(KafkaError, CommandError, OSError), quiet():
        from kadence import Admin

        with Admin({"client.id": "kadence-completion", **client_config(parsed_args)}) as admin:
            found += _asked(admin, kind, prefix)


def _asked(admin: Admin, kind: str, prefix: str) -> Iterable[str]:
    if kind == "groups":
        return [group.group_id for group in admin.list_groups(timeout=PATIENCE_S)]
    if kind == "transactions":
        return [each.transactional_id for each in admin.list_transactions(timeout=PATIENCE_S)]
    # Kafka's own topics begin so, and are rarely wanted.
    topics = admin.list_topics(internal=prefix.startswith("_"), timeout=PATIENCE_S)
    if kind == "topics" and ":" not in prefix:
        return topics
    return [f"{name}:{info.partition}" for name, topic in topics.items() for info in topic.partitions]
