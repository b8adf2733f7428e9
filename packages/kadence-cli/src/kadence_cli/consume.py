"""``kadence consume``: records of topics to lines of stdout, or to a file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from kadence.errors import IllegalStateError, OffsetOutOfRangeError
from kadence.lag import lag
from kadence.lazy_dataclasses import dataclass
from kadence.printable import plural, printable, printable_json
from kadence_cli.common import (
    CommandError,
    UsageError,
    add_client_options,
    add_command,
    client_config,
    json_text,
    say,
    text_of,
)
from kadence_cli.consume_share import check_share, run_share
from kadence_cli.export import deserializer, write_table
from kadence_cli.files import LINES, TABLES, form_of, whole_file
from kadence_cli.glance import Glance
from kadence_cli.losses import Losses, whole
from kadence_cli.names import partitions
from kadence_cli.reach import admin_settings, reached
from kadence_cli.values import KINDS, JsonText, add_registry_option, registry_of
from kadence_cli.where import FORMS, Where, offsets, ranges, read_where, tell_presumed

if TYPE_CHECKING:
    from kadence import Admin, Consumer, Record, TopicPartition

__all__ = ["add", "as_record", "run"]

_DESCRIPTION = f"""\
Read records and print each as one line. With --group the command joins the
group: it begins at the committed offsets (at --from if there are none), and
commits offsets of records that it has printed. With --share it joins a share
group (a queue): it accepts each record after its line is written, and releases
the others when it ends.
Formats of a line:
  records  an object: topic, partition, offset, timestamp, key, value; also
           headers, if there are any, and from a queue delivery_count. Bytes
           that are not UTF-8 are {{"base64": "…"}}. `kadence produce` takes it
  json     the same, but a value that is JSON is shown as JSON
  values   the value alone, with its line breaks; null as an empty line. On a
           terminal control characters are shown as \\x1b, unless --raw is given
With -o, --format or the file's name decides its kind: .parquet, .arrow and
.csv have columns, .jsonl has such lines. The file appears when it is complete.
It has committed records, up to the first open transaction of each partition,
unless you set isolation.level=read_uncommitted. stdout shows records of open
and aborted transactions, too, unless you set isolation.level=read_committed
(for --share, the group has a setting).
If brokers delete records (retention) before a command without a group has read
them, stderr names their offsets, and the status is 1; -o then writes no file.
With -e or --to the status is 0 at the end, and 1 if --timeout ends it before.

{FORMS}"""

_FROM_START: Final = Where("earliest")
"""The default of --from: this object, so that it differs from an ``earliest`` that is given."""

_PATIENCE_S: Final = 60.0
_QUIET_S: Final = 5.0
"""The wait before a message that other members have all partitions: this member may get some soon."""

_EXAMPLES = """\
  kadence consume flights                      all, then wait for more
  kadence consume flights:0,2 -e --from -10    the last ten offsets of both
  kadence consume flights --from 2026-11-22T10:00Z --to 2026-11-22T11:00Z
  kadence consume flights -e --format values | jq .dep_delay
  kadence consume flights --group report --stats 5 > flights.jsonl
  kadence consume jobs --share workers -n 10   ten records of a queue
  kadence consume flights --from -1h -o hour.parquet
  kadence consume orders --value avro"""


def add(commands: Any, summary: str) -> None:
    """The command line of ``kadence consume``."""
    parser = add_command(commands, "consume", summary, description=_DESCRIPTION, examples=_EXAMPLES)
    parser.add_argument(
        "topics", nargs="+", metavar="TOPIC[:0,1,…]", help="a topic, or some of its partitions"
    )
    parser.add_argument("-g", "--group", metavar="GROUP", help="read as a member of this consumer group")
    parser.add_argument(
        "--share",
        metavar="GROUP",
        help="read as a member of this share group; -n and --timeout end it",
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="WHERE",
        type=read_where,
        default=_FROM_START,
        help="where to begin; with --group only earliest or latest (default: earliest)",
    )
    parser.add_argument(
        "--to",
        dest="end",
        metavar="WHERE",
        type=read_where,
        help="stop before this place, or at the present end if that is earlier (not in a group)",
    )
    parser.add_argument("-n", "--max-records", type=int, metavar="N", help="stop after N records")
    parser.add_argument(
        "-e",
        "--exit-at-end",
        action="store_true",
        help="stop where the partitions end when the command starts",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="S",
        help="stop when no record came for S seconds (default with -o: 60)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the records to this file, up to the present end or --to"
    )
    parser.add_argument(
        "--format",
        choices=("records", "json", "values", *TABLES),
        help="format of lines (default: records), or of the -o file (default: by its name)",
    )
    parser.add_argument(
        "--value",
        choices=KINDS,
        help="decode values by their schemas in a registry (Confluent's wire format), as JSON or, in tables, columns",
    )
    add_registry_option(parser)
    parser.add_argument(
        "--raw",
        action="store_true",
        help="with --format values: write control characters unchanged to a terminal",
    )
    parser.add_argument(
        "--stats",
        type=float,
        metavar="S",
        help="show on stderr, every S seconds, each partition's position and lag, and why it is not fetched",
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The ranges to read, looked up when the command began.

    Attributes:
        ends: where to stop in each partition; empty: never. With a group, those of all partitions.
    """

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]

    @property
    def total(self) -> int:
        """The number of offsets in the ranges."""
        return sum(lag(self.ends[tp], start) for tp, start in self.starts.items())


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    from kadence import Consumer
    from kadence.config import ConsumerConfig

    form = _check(arguments)
    if arguments.share:
        return run_share(arguments, _line_of(arguments), _json_values(arguments))
    if arguments.output is not None and arguments.timeout is None:
        # A file is written completely or not at all, so it needs an end.
        arguments.timeout = _PATIENCE_S
    config = {
        **({"isolation.level": "read_committed"} if arguments.output else {}),
        **client_config(arguments, "ConsumerConfig", with_registry=bool(arguments.value)),
    }
    if arguments.group:
        config["group.id"] = arguments.group
        if arguments.start is _FROM_START:
            config.setdefault("auto.offset.reset", "earliest")
        else:
            config["auto.offset.reset"] = arguments.start.kind
    else:
        # The start is looked up, and records deleted behind it are reported: see `Losses`.
        config["auto.offset.reset"] = "none"
    if arguments.value and form in TABLES:
        config["value.deserializer"] = deserializer(arguments, config, form)
    elif arguments.value:
        config["value.deserializer"] = _json_values(arguments)(config)
    # Errors in the settings are reported before those of the network.
    ConsumerConfig.parse(config)
    with reached(admin_settings(config), arguments) as admin:
        plan = _plan(admin, arguments, config.get("isolation.level", "read_uncommitted"))
    losses = Losses()
    with Consumer(config) as consumer:
        _begin(consumer, arguments, plan)
        if arguments.output is None:
            count = _print_all(consumer, arguments, plan, sys.stdout.buffer, losses)
        else:
            count = _save_all(consumer, arguments, plan, form)
    say(plural(count, "record") + (f" to {arguments.output}" if arguments.output else ""))
    return losses.status


def _json_values(arguments: argparse.Namespace) -> Callable[[dict[str, Any]], Any]:
    """Makes the deserialiser of values that have a schema, of the settings; None without --value."""
    return lambda config: (
        JsonText(arguments.value, registry_of(arguments, config)) if arguments.value else None
    )


def _check(arguments: argparse.Namespace) -> str:
    """The output format: `LINES`, or one of `TABLES`."""
    form = LINES
    if arguments.share:
        check_share(arguments)
    if arguments.output is not None:
        if arguments.group:
            raise UsageError("-o reads without a group; give --from and --to")
        form = form_of(arguments.output, arguments.format)
        if form in TABLES and arguments.stats is not None:
            raise UsageError("--stats is for lines")
    elif arguments.format in TABLES:
        raise UsageError(f"--format {arguments.format} is for a file: give -o FILE")
    _check_others(arguments)
    return form


def _check_others(arguments: argparse.Namespace) -> None:
    if arguments.stats is not None and not arguments.stats > 0:
        raise UsageError(f"--stats takes a number of seconds above 0, not {arguments.stats:g}")
    if arguments.max_records is not None and arguments.max_records < 1:
        raise UsageError(f"--max-records must be at least 1, not {arguments.max_records}")
    if arguments.timeout is not None and not arguments.timeout > 0:
        raise UsageError(f"--timeout takes a number of seconds above 0, not {arguments.timeout:g}")
    if arguments.raw and arguments.format != "values":
        raise UsageError("--raw is for --format values; the other formats are JSON")
    if arguments.end is not None and arguments.exit_at_end:
        raise UsageError("--to and --exit-at-end both say where to stop; give one of them")
    if not arguments.group:
        return
    if arguments.start.kind not in ("earliest", "latest"):
        raise UsageError(
            "with --group, --from takes earliest or latest only: a group begins where it committed "
            "(`kadence groups reset` moves that)"
        )
    if arguments.end is not None:
        raise UsageError(
            "--to does not work with --group; --exit-at-end stops at the offsets that are last now"
        )
    if any(":" in word for word in arguments.topics):
        raise UsageError("with --group the group assigns the partitions; name the topic alone")


def _plan(admin: Admin, arguments: argparse.Namespace, isolation_level: str) -> _Plan:
    """Look up everything that depends on when the command began."""
    wanted = partitions(admin, *arguments.topics)
    is_ended = arguments.exit_at_end or (arguments.output is not None and arguments.end is None)
    end = Where("latest") if is_ended else arguments.end
    tell_presumed(arguments.start, "--from")
    tell_presumed(end, "--to")
    held = ranges(admin, wanted, isolation_level)
    settings = {**client_config(arguments, "ConsumerConfig"), "isolation.level": isolation_level}
    starts = offsets(admin, arguments.start, held, settings)
    return _Plan(starts, {} if end is None else offsets(admin, end, held, settings))


def _begin(consumer: Consumer, arguments: argparse.Namespace, plan: _Plan) -> None:
    """Subscribe or assign."""
    if arguments.group:
        consumer.subscribe(arguments.topics)
    elif plan.ends:
        consumer.assign({tp: (min(start, plan.ends[tp]), plan.ends[tp]) for tp, start in plan.starts.items()})
    else:
        consumer.assign(plan.starts)


def _save_all(consumer: Consumer, arguments: argparse.Namespace, plan: _Plan, form: str) -> int:
    with whole_file(arguments.output) as file, whole(arguments.output):
        if form in TABLES:
            return write_table(consumer, file, form, arguments, plan.total)
        count = _print_all(consumer, arguments, plan, file)
        is_cut = arguments.max_records is not None and count >= arguments.max_records
        if not is_cut and not _is_at_end(consumer, plan):
            raise CommandError("no more records came, and the end is not reached")
        return count


def _print_all(
    consumer: Consumer,
    arguments: argparse.Namespace,
    plan: _Plan,
    out: BinaryIO,
    losses: Losses | None = None,
) -> int:
    """Write lines until the end; returns how many.

    Args:
        losses: notes records that are deleted meanwhile, and an end that is not reached. None: these are errors.
    """
    write, line_of = out.write, _line_of(arguments)
    wait = 0.5 if arguments.timeout is None else min(0.5, arguments.timeout)
    count = 0
    idle = 0.0
    glance = None if arguments.stats is None else Glance(consumer, arguments.stats)
    while arguments.max_records is None or count < arguments.max_records:
        most = None if arguments.max_records is None else min(500, arguments.max_records - count)
        if arguments.group:
            # A poll may commit the records of the one before it.
            out.flush()
        try:
            records = consumer.poll(0, max_records=most)
            if not records:
                # Without a group only before a wait: full buffers make a pipe fast.
                out.flush()
                records = consumer.poll(wait, max_records=most)
        except OffsetOutOfRangeError as error:
            if losses is None:
                raise
            losses.pass_over(consumer, error)
            continue
        for record in records:
            write(line_of(record))
        count += len(records)
        if glance is not None:
            glance.look(count)
        if records:
            idle = 0.0
            continue
        idle += wait
        if plan.ends and _is_at_end(consumer, plan):
            break
        if plan.ends and idle - wait < _QUIET_S <= idle and not consumer.assignment():
            say(
                "other members of the group have all partitions; it ends when they have committed what is there now"
            )
        if arguments.timeout is not None and idle >= arguments.timeout:
            if plan.ends and losses is not None:
                losses.status = 1
                say(f"no record came for {arguments.timeout:g} s, and the end is not reached")
            break
    out.flush()
    if glance is not None:
        glance.end(count)
    return count


def _is_at_end(consumer: Consumer, plan: _Plan) -> bool:
    """Whether all ranges are read, or this member of a group has none left to read."""
    ends = plan.ends
    if assigned := consumer.assignment():
        done = consumer.finished()
        try:
            return all(tp in done or consumer.position(tp) >= ends.get(tp, 0) for tp in assigned)
        except IllegalStateError:
            # A rebalance has taken a partition meanwhile: the next poll shows what is left.
            return False
    # Other members have the partitions, or this one is still joining.
    committed = consumer.committed(ends)
    return all(
        (plan.starts[tp] if (at := committed.get(tp)) is None else at.offset) >= end
        for tp, end in ends.items()
    )


def _line_of(arguments: argparse.Namespace) -> Callable[[Record], bytes]:
    form = arguments.format or "records"
    is_shown = arguments.output is None and sys.stdout.isatty()
    if form == "values" and is_shown and not arguments.raw:
        return _printable_value
    return _LINES["json" if arguments.value and form == "records" else form]


def _value(record: Record) -> bytes:
    return (record.value or b"") + b"\n"


def _printable_value(record: Record) -> bytes:
    return printable((record.value or b"").decode(errors="backslashreplace")).encode() + b"\n"


_ON_ONE_LINE: Final = str.maketrans("\t\n\r", "   ")
"""JSON has these characters between values only; in its strings they are escaped."""


def _as_json(record: Record) -> bytes:
    """The record with its JSON value unchanged: parsing and writing it again would round its numbers."""
    text = text_of(record.value)
    if isinstance(text, str):
        try:
            # NaN and 1e999 are not JSON, half of a surrogate pair is not UTF-8, and nesting has a limit.
            json_text({"value": json.loads(text)}).encode()
        except (ValueError, RecursionError):
            pass
        else:
            return _object(record, printable_json(text.translate(_ON_ONE_LINE)))
    return as_record(record)


def as_record(record: Record) -> bytes:
    """A line of ``--format records``, which is the default."""
    return _object(record, json_text(text_of(record.value)))


def _object(record: Record, value: str) -> bytes:
    """One line about the record; ``value`` is JSON, with control characters escaped."""
    place = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": text_of(record.key),
    }
    if record.delivery_count is not None:
        place["delivery_count"] = record.delivery_count
    end = "}"
    if record.headers:
        headers = json_text([[name, text_of(data)] for name, data in record.headers])
        end = f',"headers":{headers}}}'
    return f'{json_text(place)[:-1]},"value":{value}{end}\n'.encode()


_LINES: Final[dict[str, Callable[[Record], bytes]]] = {
    "records": as_record,
    "json": _as_json,
    "values": _value,
}
