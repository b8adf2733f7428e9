"""``kadence checkpoint``: shows the Spark checkpoint of a streaming query, and prepares it for Spark's connector."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kadence.printable import printable
from kadence_cli.common import (
    CommandError,
    add_actions,
    add_command,
    moment,
    print_json,
    print_rows,
    say,
)
from kadence_cli.names import spelled

if TYPE_CHECKING:
    from kadence_spark.checkpoints import Batch, Checkpoint

__all__ = ["add"]

_DESCRIPTION = """\
Look at the checkpoint of a streaming query that reads Kafka with Kadence or
with Spark's own connector, and prepare it for the connector. DIR is a local
directory: copy a checkpoint from another file system, and back after
to-connector."""

_EXAMPLES = """\
  kadence checkpoint to-connector out/checkpoint"""


def add(commands: Any, summary: str) -> None:
    """The command line of ``kadence checkpoint``."""
    parser = add_command(commands, "checkpoint", summary, description=_DESCRIPTION, examples=_EXAMPLES)
    actions = add_actions(parser)
    show = add_command(
        actions,
        "show",
        "show how far a query is",
        description="Show how far a query is: its last batch, whether the sink has it, and the\n"
        "next offset of each partition.",
    )
    show.add_argument("--json", action="store_true", help="print one JSON object, even on a terminal")
    back = add_command(
        actions,
        "to-connector",
        "write a checkpoint's offsets as Spark's connector reads them",
        description="Write a checkpoint's offsets as Spark's connector reads them, so that a query\n"
        'of Kadence can continue with format("kafka"). Stop the query first. Kadence can\n'
        "continue with the checkpoint, too.",
    )
    for sub, function in ((show, _show), (back, _to_connector)):
        sub.add_argument("directory", metavar="DIR", help="the query's checkpointLocation")
        sub.set_defaults(run=run, action_function=function)


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    status: int = arguments.action_function(arguments)
    return status


def _local(text: str) -> Path:
    parts = urlsplit(text)
    if parts.scheme and parts.scheme != "file":
        raise CommandError(
            f"{text} is not on this machine; copy the directory here (hadoop fs -get), and back afterwards"
        )
    return Path(unquote(parts.path)) if parts.scheme else Path(text)


# ---------------------------------------------------------------- show


def _show(arguments: argparse.Namespace) -> int:
    from kadence_spark.checkpoints import Checkpoint

    found = Checkpoint.read(_local(arguments.directory))
    if arguments.json or not sys.stdout.isatty():
        print_json(_document(found))
    else:
        _in_words(found)
    return 0


def _document(found: Checkpoint) -> dict[str, Any]:
    committed = found.last if found.last.is_committed else found.before
    return {
        "query": found.query,
        "committed_batch": None if committed is None else committed.number,
        "pending_batch": None if found.last.is_committed else found.last.number,
        "began": _time(found.last),
        "connector_reads_it": found.is_for_connector,
        "sources": [
            {"other": source.text}
            if source.point is None
            else {
                "offsets": _shape(source.point.next),
                "starts": _shape(source.point.first),
                "topic_ids": dict(source.point.ids),
            }
            for source in found.last.sources
        ],
    }


def _shape(offsets: Any) -> dict[str, dict[str, int]]:
    from kadence_spark.source.offsets import to_shape

    return to_shape(offsets)


def _time(batch: Batch) -> str | None:
    return moment(batch.began_ms, "milliseconds")


def _in_words(found: Checkpoint) -> None:
    last = found.last
    print(f"query {found.query or 'with an id that cannot be read'}")
    print(f"batch {last.number:,}, begun at {_time(last) or 'an unknown time'}")
    if last.is_committed:
        print("it is in the sink")
    else:
        print("it is not known to be in the sink: the next start repeats it")
    if found.is_for_connector:
        print('Spark\'s connector, format("kafka"), can go on from here')
    else:
        print('Spark\'s connector, format("kafka"), can go on after `kadence checkpoint to-connector`')
    for place, source in enumerate(last.sources):
        if source.point is None:
            print(f"source {place}, not of Kafka: {printable(source.text)}")
            continue
        starts, ids = source.point.first, source.point.ids
        rows = [
            {
                "partition": spelled(partition),
                "begins": starts.get(partition, ""),
                "next offset": offset,
                "topic id": ids.get(partition.topic, ""),
            }
            for partition, offset in sorted(source.point.next.items())
        ]
        print(
            f"source {place}, of Kafka: where the batch ends, and where it begins if it is a partition's first"
        )
        print_rows(rows, as_json=False, wide=True)


# ---------------------------------------------------------------- to-connector


def _to_connector(arguments: argparse.Namespace) -> int:
    from kadence_spark.checkpoints import rewrite_for_connector

    directory = _local(arguments.directory)
    written = rewrite_for_connector(directory)
    if written:
        names = " and ".join(f"offsets/{batch.number}" for batch in written)
        say(f'{directory}: {names} rewritten; format("kafka") can continue from here')
    else:
        say(f'{directory}: nothing to do, format("kafka") can continue from here')
    return 0
