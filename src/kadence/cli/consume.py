"""``kadence consume``: records of topics to lines of stdout."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from kadence.cli.common import CommandError, add_client_options, add_command, client_config, say, text_of
from kadence.cli.glance import Glance

if TYPE_CHECKING:
    from kadence import Consumer, Record, TopicPartition

__all__ = ["add", "run"]

_DESCRIPTION = """\
Read records and print each as one line. Without --group all partitions are read from --from on; with --group this
process is a member: partitions are shared, offsets are committed, and --from matters only where none are.
Commits take only what was printed. Formats of a line:
  records  an object: topic, partition, offset, timestamp, key, value, headers. Text is a string; bytes that are not
           UTF-8 are {"base64": "…"}; null is null. `kadence produce` reads it back.
  json     the same, with a value that is JSON shown as JSON
  values   the value alone, as it is"""

_EXAMPLES = """\
  kadence consume flights                              all there is, then wait for more; Ctrl-C ends it
  kadence consume flights --exit-at-end | wc -l        all there is
  kadence consume flights -n 3 --from latest           the next three
  kadence consume flights -e --from 1700000000000      since a time (ms since 1970, UTC)
  kadence consume flights -e --format values | jq .dep_delay
  kadence consume flights --group report --stats 5 -X max.poll.records=50 >flights.jsonl"""


def add(commands: Any) -> None:
    """The command line of ``kadence consume``."""
    parser = add_command(commands, "consume", "print records", description=_DESCRIPTION, examples=_EXAMPLES)
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("-g", "--group", help="read as a member of this consumer group")
    parser.add_argument(
        "--from",
        dest="start",
        metavar="WHERE",
        default="earliest",
        help="earliest, latest, or a time in ms since 1970 (not with --group); default: %(default)s",
    )
    parser.add_argument("-n", "--max-records", type=int, metavar="N", help="end after so many records")
    parser.add_argument(
        "-e", "--exit-at-end", action="store_true", help="end at what is the end at the start"
    )
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="end when nothing came for so long")
    parser.add_argument(
        "--format", choices=("records", "json", "values"), default="records", help="default: %(default)s"
    )
    parser.add_argument(
        "--stats",
        type=float,
        metavar="SECONDS",
        help="now and then, and at the end, show on stderr where each partition is, its lag, why it is not fetched",
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    from kadence import Consumer

    if arguments.start not in ("earliest", "latest") and not arguments.start.isdigit():
        raise CommandError(f"--from takes earliest, latest or a time in ms, not {arguments.start!r}")
    if arguments.stats is not None and not arguments.stats > 0:
        raise CommandError(f"--stats takes a number of seconds above 0, not {arguments.stats:g}")
    if arguments.group and arguments.start.isdigit():
        raise CommandError("--from TIME needs no --group: a group starts where it committed")
    config = {
        "auto.offset.reset": "latest" if arguments.start == "latest" else "earliest",
        **client_config(arguments),
    }
    if arguments.group:
        config["group.id"] = arguments.group
    with Consumer(config) as consumer:
        ends = _begin(consumer, arguments)
        count = _print_all(consumer, arguments, ends)
    say(f"{count} records")
    return 0


def _begin(consumer: Consumer, arguments: argparse.Namespace) -> dict[TopicPartition, int]:
    """Subscribe or assign; the end of each partition, as it is now."""
    from kadence import TopicPartition

    partitions = []
    for topic in arguments.topics:
        infos = consumer.partitions_for(topic)
        if not infos:
            raise CommandError(
                f"topic {topic!r} does not exist at {arguments.bootstrap_servers}; `kadence topics list` shows all"
            )
        partitions += [TopicPartition(topic, info.partition) for info in infos]
    ends = consumer.end_offsets(partitions) if arguments.exit_at_end else {}
    if arguments.group:
        consumer.subscribe(arguments.topics)
        return ends
    if arguments.exit_at_end:
        starts = _starts(consumer, arguments.start, ends)
        # A record may have come since the ends were looked up, and be what a time leads to.
        consumer.assign({tp: (min(starts[tp], end), end) for tp, end in ends.items()})
        return ends
    consumer.assign(partitions)
    if arguments.start.isdigit():
        found = consumer.offsets_for_times(dict.fromkeys(partitions, int(arguments.start)))
        for tp, at in found.items():
            if at is None:
                consumer.seek_to_end([tp])
            else:
                consumer.seek(tp, at.offset)
    return ends


def _starts(consumer: Consumer, where: str, ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """What --from means in each partition."""
    if where == "latest":
        return ends
    if where == "earliest":
        return consumer.beginning_offsets(ends)
    found = consumer.offsets_for_times(dict.fromkeys(ends, int(where)))
    return {tp: ends[tp] if at is None else at.offset for tp, at in found.items()}


def _print_all(consumer: Consumer, arguments: argparse.Namespace, ends: dict[TopicPartition, int]) -> int:
    write = sys.stdout.buffer.write
    wait = 0.5 if arguments.timeout is None else min(0.5, arguments.timeout)
    count = 0
    idle = 0.0
    glance = None if arguments.stats is None else Glance(consumer, arguments.stats)
    while arguments.max_records is None or count < arguments.max_records:
        left = -1 if arguments.max_records is None else arguments.max_records - count
        records = consumer.poll(wait, max_records=min(500, left) if left > 0 else None)
        for record in records:
            write(_line(record, arguments.format))
        count += len(records)
        if glance is not None:
            glance.look(count)
        if records:
            idle = 0.0
            continue
        # Only now: while there is more, full buffers are what makes a pipe fast.
        sys.stdout.buffer.flush()
        idle += wait
        if arguments.exit_at_end and _is_at_end(consumer, ends):
            break
        if arguments.timeout is not None and idle >= arguments.timeout:
            break
    sys.stdout.buffer.flush()
    if glance is not None:
        glance.end(count)
    return count


def _is_at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Whether all ranges are done, or this member of a group has nothing left before the ends."""
    assigned = consumer.assignment()
    done = consumer.finished()
    return bool(assigned) and all(tp in done or consumer.position(tp) >= ends.get(tp, 0) for tp in assigned)


def _line(record: Record, form: str) -> bytes:
    if form == "values":
        return (record.value or b"") + b"\n"
    value: Any = text_of(record.value)
    if form == "json" and isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            pass
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": text_of(record.key),
        "value": value,
    }
    if record.headers:
        document["headers"] = [[name, text_of(data)] for name, data in record.headers]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
