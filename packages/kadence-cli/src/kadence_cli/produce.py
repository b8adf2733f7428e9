"""``kadence produce``: lines of stdin, or a file, to records of a topic."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from kadence.errors import ConfigError, KafkaError, KafkaTimeoutError, RowsNotWrittenError, TransportError
from kadence.printable import plural
from kadence_cli.common import (
    CommandError,
    UsageError,
    add_client_options,
    add_command,
    bytes_of,
    client_config,
    number_of,
    print_json,
    say,
    whole_number_of,
)
from kadence_cli.files import LINES, TABLES, form_of
from kadence_cli.importing import Rows
from kadence_cli.reach import admin_settings, reached
from kadence_cli.values import KINDS, add_registry_option, registry_of, value_serializer

if TYPE_CHECKING:
    from kadence.producer import ArrowDelivery, Producer, RecordFuture

__all__ = ["add", "run"]

_DESCRIPTION = """\
Read records from stdin, one per line, and write them to a topic. Status 0
means that brokers have acknowledged all records (with acks=0: that they were
sent). Formats of a line:
  records  an object with value and, if wanted, key, headers, partition and
           timestamp, such as the output of `kadence consume` (if it has an
           offset, its partition is ignored). A string is written as UTF-8,
           {"base64": "…"} as bytes, null as null, any other value as JSON
  json     a JSON document, which becomes the value unchanged
  lines    the line is the value; with --separator TEXT the part before the
           first TEXT is the key
-i reads a file instead; --format or its name says which kind it is. If a
.parquet, .arrow or .csv file has a column value, its columns are the fields of
records, as `kadence consume -o` writes them. Otherwise each row becomes a JSON
document.
With --value-schema a value must be null, or JSON that fits the schema."""

_EXAMPLES = """\
  seq 5 | kadence produce numbers --format lines
  echo 'UA:late' | kadence produce flights --format lines --separator :
  echo '{"key":"UA","value":{"delay":12}}' | kadence produce flights
  kadence produce flights --format json --key carrier < flights.jsonl
  kadence consume flights -e | kadence produce copy -X compression.type=zstd
  kadence produce flights -i flights.csv --key carrier
  kadence produce orders --value-schema order.avsc < orders.jsonl"""


class _Line(NamedTuple):
    """A record. value: bytes, or with a schema the parsed JSON. number: of its line or row, from 1."""

    value: Any
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = []  # noqa: RUF012 - never changed
    partition: int | None = None
    timestamp: int | None = None
    number: int = 0


def add(commands: Any, summary: str) -> None:
    """The command line of ``kadence produce``."""
    parser = add_command(commands, "produce", summary, description=_DESCRIPTION, examples=_EXAMPLES)
    parser.add_argument("topic", metavar="TOPIC", help="the topic to write to")
    parser.add_argument("-i", "--input", metavar="FILE", help="read this file, not stdin")
    parser.add_argument(
        "--format",
        choices=("records", "json", "lines", *TABLES),
        help="format of lines (default: records), or of the -i file (default: by its name)",
    )
    parser.add_argument(
        "--key",
        metavar="FIELD",
        help="the field (with --format json) or column (of a file) whose value is the key",
    )
    parser.add_argument(
        "--separator", metavar="TEXT", help="with --format lines: the text between key and value"
    )
    parser.add_argument(
        "--value-schema",
        metavar="FILE",
        help="write values with the schema in this file (for --value protobuf a descriptor set), and register it",
    )
    parser.add_argument("--value", choices=KINDS, help="the kind of schema in --value-schema (default: avro)")
    parser.add_argument(
        "--value-message", metavar="NAME", help="with --value protobuf: the message type (default: the first)"
    )
    add_registry_option(parser)
    parser.add_argument(
        "--offsets",
        action="store_true",
        help="print topic, partition, offset and timestamp of each delivered record",
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    from kadence import Producer
    from kadence.config import ProducerConfig

    form = LINES if arguments.input is None else form_of(arguments.input, arguments.format)
    if arguments.input is None and arguments.format in TABLES:
        raise UsageError(f"--format {arguments.format} is for a file: give -i FILE")
    if arguments.key and form == LINES and arguments.format != "json":
        raise UsageError("--key needs --format json, or -i and a file with columns")
    if arguments.separator is not None and (arguments.format != "lines" or not arguments.separator):
        raise UsageError("--separator needs --format lines, and a text such as ':'")
    config = client_config(arguments, "ProducerConfig", with_registry=bool(arguments.value_schema))
    if arguments.value_schema:
        config["value.serializer"] = value_serializer(
            arguments.value or "avro",
            arguments.value_schema,
            arguments.value_message,
            registry_of(arguments, config),
        )
    elif arguments.value or arguments.value_message:
        raise UsageError("--value and --value-message need --value-schema FILE")
    # Errors in the settings are reported before those of the network.
    ProducerConfig.parse(config)
    with reached(admin_settings(config), arguments):
        pass
    typed = bool(arguments.value_schema)
    account = _Account(arguments.offsets)
    with Producer(config) as producer:
        rows = None if form == LINES else Rows(arguments.input, form, arguments.key, typed=typed)
        with account.told_of(producer, arguments.topic):
            if rows is None:
                _send_all(producer, arguments, account, _lines_of(arguments, typed=typed), "line")
            elif typed or arguments.offsets:
                lines = (_Line(**parts, number=number) for number, parts in enumerate(rows.records(), 1))
                _send_all(producer, arguments, account, lines, "row")
            else:
                _send_tables(producer, arguments, account, rows)
    say(
        f"{plural(account.delivered, 'record')} delivered to {arguments.topic}"
        + (f", {account.failed:,} not" if account.failed else "")
    )
    return 1 if account.failed else 0


class _Account:
    """The sent records and their outcomes."""

    def __init__(self, shows_offsets: bool) -> None:
        self.delivered = self.failed = 0
        self._shows_offsets = shows_offsets
        self._pending: list[RecordFuture | tuple[int, ArrowDelivery]] = []

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, sent: RecordFuture | tuple[int, ArrowDelivery]) -> None:
        """A record, or a table with the number of its first row."""
        self._pending.append(sent)

    def settle(self) -> None:
        """Wait for all added records."""
        for sent in self._pending:
            if isinstance(sent, tuple):
                self._settle_table(*sent)
            else:
                self._settle_record(sent)
        self._pending.clear()

    @contextlib.contextmanager
    def told_of(self, producer: Producer, topic: str) -> Iterator[None]:
        """A context at whose end all records are settled. An error gets a note with the counts of delivered records."""
        try:
            yield
        except (KafkaError, CommandError, OSError) as error:
            producer.flush()
            self.settle()
            if self.delivered or self.failed:
                error.add_note(
                    f"{plural(self.delivered, 'record')} before it delivered to {topic}"
                    + (f", {self.failed:,} not" if self.failed else "")
                    + "; it and what follows was not sent"
                )
            raise
        producer.flush()
        self.settle()

    def _settle_record(self, future: RecordFuture) -> None:
        try:
            place = future.result()
        except KafkaError as error:
            self._fails(1, str(error))
            return
        self.delivered += 1
        if self._shows_offsets:
            print_json(place._asdict())

    def _settle_table(self, row: int, delivery: ArrowDelivery) -> None:
        try:
            self.delivered += delivery.result().rows
        except RowsNotWrittenError as error:
            self.delivered += error.written.rows
            lost = sorted(number for numbers in error.failed.values() for number in numbers)
            self._fails(len(lost), f"row {row + lost[0]:,}: {error.__cause__}", len(lost))

    def _fails(self, count: int, why: str, rows: int = 1) -> None:
        if self.failed < 10:
            more = f" (and {rows - 1:,} more rows)" if rows > 1 else ""
            say(f"kadence produce: not delivered: {why}{more}")
        self.failed += count


def _send_all(
    producer: Producer, arguments: argparse.Namespace, account: _Account, lines: Iterable[_Line], what: str
) -> None:
    """Send the records. An error names the record by ``what`` and its number."""
    for line in lines:
        try:
            sent = producer.send(
                arguments.topic,
                line.value,
                line.key,
                headers=line.headers,
                partition=line.partition,
                timestamp=line.timestamp,
            )
        except (ConfigError, KafkaTimeoutError, TransportError) as error:
            error.add_note(f"it is of {what} {line.number:,}")
            raise
        except (KafkaError, ValueError, TypeError) as error:
            raise CommandError(f"{what} {line.number:,}: {error}") from error
        account.add(sent)
        is_typed_in = arguments.input is None and sys.stdin.isatty()
        if len(account) >= 50_000 or (arguments.offsets and is_typed_in):
            account.settle()


def _send_tables(producer: Producer, arguments: argparse.Namespace, account: _Account, rows: Rows) -> None:
    for first, table in rows.tables():
        try:
            account.add((first, producer.send_arrow(table, arguments.topic)))
        except KafkaError as error:
            error.add_note(f"row 0 of it is row {first:,} of {arguments.input}")
            raise
        if len(account) >= 8:
            account.settle()


def _lines_of(arguments: argparse.Namespace, *, typed: bool) -> Iterator[_Line]:
    form = arguments.format or "records"
    if arguments.input is None:
        yield from _lines(sys.stdin.buffer, form, arguments.key, arguments.separator, typed=typed)
        return
    with Path(arguments.input).open("rb") as file:
        yield from _lines(file, form, arguments.key, arguments.separator, typed=typed)


def _lines(
    source: BinaryIO, form: str, key_field: str | None, separator: str | None, *, typed: bool
) -> Iterator[_Line]:
    for number, raw in enumerate(source, 1):
        line = raw.rstrip(b"\r\n")
        if form == "lines":
            made = _Line(line, number=number) if separator is None else _separated(number, line, separator)
            yield made._replace(value=made.value.decode(errors="replace")) if typed else made
            continue
        if not line.strip():
            continue
        try:
            document = _json(line, typed=typed)
            if form == "records":
                made = _record(document, typed=typed)._replace(number=number)
            else:
                key = _key(document, key_field) if key_field else None
                made = _Line(document if typed else line, key, number=number)
        except (ValueError, TypeError) as error:
            shown = line[:60].decode(errors="replace")
            raise CommandError(
                f"line {number}: {error}; it begins {shown!r} (--format {form} takes JSON, --format lines any text)"
            ) from None
        yield made


def _json(line: bytes, *, typed: bool) -> Any:
    """The parsed document. Without a schema, numbers keep their text, and NaN and infinities are refused."""
    try:
        if typed:
            return json.loads(line)
        return json.loads(line, parse_float=number_of, parse_int=whole_number_of, parse_constant=_no_json)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON ({error.msg} at column {error.colno})") from None
    except RecursionError:
        raise ValueError("this JSON is nested too deeply") from None


def _no_json(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _separated(number: int, line: bytes, separator: str) -> _Line:
    key, found, value = line.partition(separator.encode())
    if not found:
        raise CommandError(f"line {number}: no {separator!r} between a key and a value")
    return _Line(value, key, number=number)


def _key(document: Any, field: str) -> bytes | None:
    if not isinstance(document, dict) or field not in document:
        raise ValueError(f"no field {field!r} for the key")
    return bytes_of(document[field])


_KNOWN = {
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "leader_epoch",
    "delivery_count",
    "key",
    "value",
    "headers",
}


def _record(document: Any, *, typed: bool) -> _Line:
    if not isinstance(document, dict) or "value" not in document:
        raise ValueError('a record is an object with "value"')
    unknown = document.keys() - _KNOWN
    if unknown:
        raise ValueError(f"unknown field {min(unknown)!r} of a record")
    # A record with an offset was read from another topic, so its partition is ignored.
    partition = None if "offset" in document else document.get("partition")
    timestamp = document.get("timestamp")
    for name, number in (("partition", partition), ("timestamp", timestamp)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
            raise ValueError(f"{name} must be a whole number")
    headers = document.get("headers") or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    if any(
        not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str) for pair in pairs
    ):
        raise ValueError('headers are pairs of a name and a value, [["name", "value"]], or an object')
    return _Line(
        document["value"] if typed else bytes_of(document["value"]),
        bytes_of(document.get("key")),
        [(name, bytes_of(data)) for name, data in pairs],
        partition,
        timestamp,
    )
