"""``kadence consume --share GROUP``: records of a queue (KIP-932) to stdout, each accepted when it is written."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from shlex import quote
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from kadence.printable import plural
from kadence_cli.common import UsageError, client_config, say
from kadence_cli.reach import admin_settings, reached

if TYPE_CHECKING:
    from kadence import Admin, Record, ShareConsumer

__all__ = ["check_share", "run_share"]

_RESET: Final = "share.auto.offset.reset"

_NOT_WITH: Final = {
    "group": "--group and --share are two kinds of groups; give one of them",
    "end": "--to does not work with --share: a queue has no order; -n and --timeout say when to stop",
    "exit_at_end": "--exit-at-end does not work with --share: a queue has no order; -n and --timeout say when to stop",
    "output": "-o reads without a group; give --from and --to",
    "stats": "--stats does not work with --share; `kadence top` shows the group",
}


def check_share(arguments: argparse.Namespace) -> None:
    """Refuse options that a queue cannot have.

    Raises:
        UsageError: names one.
    """
    for name, told in _NOT_WITH.items():
        if getattr(arguments, name):
            raise UsageError(told)
    if arguments.start.kind != "earliest":
        raise UsageError(
            "--from does not work with --share: the group has its place (`kadence groups reset` moves that)"
        )
    if any(":" in word for word in arguments.topics):
        raise UsageError("with --share the group assigns the partitions; name the topic alone")


def run_share(
    arguments: argparse.Namespace,
    line_of: Callable[[Record], bytes],
    deserializer: Callable[[dict[str, Any]], Any],
) -> int:
    """Print the records until the end; the exit status.

    Args:
        line_of: makes the line of a record. deserializer: of values, from the settings; None for bytes.
    """
    from kadence import ShareConsumer
    from kadence.config import ShareConsumerConfig

    config = client_config(arguments, "ShareConsumerConfig", with_registry=bool(arguments.value))
    config["group.id"] = arguments.share
    # What a record becomes is said after it was written, and so sent at the end, too.
    config["share.acknowledgement.mode"] = "explicit"
    if arguments.max_records is not None:
        # More would count as delivered.
        config.setdefault("share.acquire.mode", "record_limit")
        config.setdefault("max.poll.records", min(500, arguments.max_records))
    if (made := deserializer(config)) is not None:
        config["value.deserializer"] = made
    ShareConsumerConfig.parse(config)
    with reached(admin_settings(config), arguments) as admin:
        _tell_place(admin, arguments.share, arguments.topics)
    with ShareConsumer(config) as consumer:
        consumer.subscribe(arguments.topics)
        count = _print_all(consumer, arguments, line_of, sys.stdout.buffer)
    say(plural(count, "record"))
    return 0


def _tell_place(admin: Admin, group: str, topics: list[str]) -> None:
    """Say where a group that has no place yet begins: under ``latest`` it gets nothing of what is there."""
    from kadence.admin import ConfigResource
    from kadence.errors import KafkaError

    resource = ConfigResource("group", group)
    try:
        settings = admin.describe_configs(resource)[resource]
        offsets = admin.list_share_group_offsets(group)
    except KafkaError:
        # The consumer says what is wrong, if anything is.
        return
    reset = settings[_RESET].value if _RESET in settings else None
    is_new = all(at.start_offset is None for tp, at in offsets.items() if tp.topic in topics)
    if is_new and reset == "latest":
        of_topics = " ".join(f"--topic {quote(topic)}" for topic in topics)
        say(
            f"group {group!r} has no place in {', '.join(topics)} yet, and {_RESET} is latest: it gets what is written "
            f"from now on; `kadence groups reset {quote(group)} --type share {of_topics} --to earliest` sets its place "
            "while it has no members"
        )


def _print_all(
    consumer: ShareConsumer[Any, Any],
    arguments: argparse.Namespace,
    line_of: Callable[[Record], bytes],
    out: BinaryIO,
) -> int:
    wait = 0.5 if arguments.timeout is None else min(0.5, arguments.timeout)
    count, idle = 0, 0.0
    while arguments.max_records is None or count < arguments.max_records:
        most = None if arguments.max_records is None else arguments.max_records - count
        records = consumer.poll(wait, max_records=most)
        if not records:
            idle += wait
            if arguments.timeout is not None and idle >= arguments.timeout:
                break
            continue
        idle = 0.0
        out.writelines(line_of(record) for record in records)
        # A record whose line may not have arrived comes again.
        out.flush()
        consumer.acknowledge(records)
        count += len(records)
    for tp, error in consumer.commit().items():
        if error is not None:
            say(f"kadence consume: {tp}: its records were printed, and come again: {error}")
    return count
