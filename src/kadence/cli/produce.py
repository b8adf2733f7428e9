"""``kadence produce``: lines of stdin to records of a topic."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from kadence.cli.common import (
    CommandError,
    UsageError,
    add_client_options,
    add_command,
    bytes_of,
    client_config,
    counted,
    print_json,
    say,
)
from kadence.cli.reach import admin_settings, reached

__all__ = ["add", "run"]

_DESCRIPTION = """\
Read records from stdin, one per line, and write them to a topic. The status is
0 only when the broker acknowledged every record. Formats of a line:
  records  an object with value and, if wanted, key, headers, partition,
           timestamp: what `kadence consume` prints. A string is UTF-8 text,
           {"base64": "…"} is bytes, null is null, anything else is written
           as JSON.
  json     any JSON document, which becomes the value as it stands;
           --key FIELD takes the key from it
  lines    the line is the value; with --separator TEXT it is KEY TEXT VALUE"""

_EXAMPLES = """\
  seq 5 | kadence produce numbers --format lines
  echo 'UA:late' | kadence produce flights --format lines --separator :
  echo '{"key":"UA","value":{"delay":12}}' | kadence produce flights
  kadence produce flights --format json --key carrier < flights.jsonl
  kadence consume flights -e | kadence produce copy -X compression.type=zstd
  kadence produce flights --offsets < records.jsonl"""


class _Line(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = []  # noqa: RUF012 - never changed
    partition: int | None = None
    timestamp: int | None = None


def add(commands: Any) -> None:
    """The command line of ``kadence produce``."""
    parser = add_command(
        commands, "produce", "write records from stdin", description=_DESCRIPTION, examples=_EXAMPLES
    )
    parser.add_argument("topic", metavar="TOPIC", help="the topic to write to")
    parser.add_argument(
        "--format", choices=("records", "json", "lines"), default="records", help="default: %(default)s"
    )
    parser.add_argument("--key", metavar="FIELD", help="with --format json: the field whose value is the key")
    parser.add_argument(
        "--separator", metavar="TEXT", help="with --format lines: the text between key and value"
    )
    parser.add_argument(
        "--offsets", action="store_true", help="print topic, partition and offset of each record"
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    from kadence import KafkaError, Producer
    from kadence.config import ProducerConfig
    from kadence.producer import RecordFuture

    if arguments.key and arguments.format != "json":
        raise UsageError("--key needs --format json")
    if arguments.separator is not None and (arguments.format != "lines" or not arguments.separator):
        raise UsageError("--separator needs --format lines, and a text such as ':'")
    config = client_config(arguments)
    # What is wrong with the settings is told before what is wrong with the network.
    ProducerConfig.parse(config)
    with reached(admin_settings(config)):
        pass
    pending: list[RecordFuture] = []
    delivered = failed = 0

    def settle() -> None:
        nonlocal delivered, failed
        for future in pending:
            try:
                place = future.result()
            except KafkaError as error:
                failed += 1
                if failed <= 10:
                    say(f"kadence produce: not delivered: {error}")
                continue
            delivered += 1
            if arguments.offsets:
                print_json(place._asdict())
        pending.clear()

    with Producer(config) as producer:
        for line in _lines(arguments.format, arguments.key, arguments.separator):
            pending.append(
                producer.send(
                    arguments.topic,
                    line.value,
                    line.key,
                    headers=line.headers,
                    partition=line.partition,
                    timestamp=line.timestamp,
                )
            )
            if len(pending) >= 50_000 or (arguments.offsets and sys.stdin.isatty()):
                settle()
        producer.flush()
        settle()
    say(
        f"{counted(delivered, 'record')} delivered to {arguments.topic}"
        + (f", {failed:,} not" if failed else "")
    )
    return 1 if failed else 0


def _lines(form: str, key_field: str | None, separator: str | None) -> Iterator[_Line]:
    for number, raw in enumerate(sys.stdin.buffer, 1):
        line = raw.rstrip(b"\r\n")
        if form == "lines":
            yield _Line(line) if separator is None else _separated(number, line, separator)
            continue
        if not line.strip():
            continue
        try:
            document = _json(line)
            if form == "records":
                yield _record(document)
            else:
                yield _Line(line, _key(document, key_field) if key_field else None)
        except (ValueError, TypeError) as error:
            shown = line[:60].decode(errors="replace")
            raise CommandError(
                f"line {number}: {error}; it begins {shown!r} (--format {form}, see --help)"
            ) from None


def _json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON ({error.msg} at column {error.colno})") from None
    except RecursionError:
        raise ValueError("this JSON is nested too deeply") from None


def _separated(number: int, line: bytes, separator: str) -> _Line:
    key, found, value = line.partition(separator.encode())
    if not found:
        raise CommandError(f"line {number}: no {separator!r} between a key and a value")
    return _Line(value, key)


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
    "key",
    "value",
    "headers",
}


def _record(document: Any) -> _Line:
    if not isinstance(document, dict) or "value" not in document:
        raise ValueError('a record is an object with "value"')
    unknown = document.keys() - _KNOWN
    if unknown:
        raise ValueError(f"unknown field {min(unknown)!r} of a record")
    # A record that was read somewhere has an offset: there its partition is where it was, not where it goes.
    partition = None if "offset" in document else document.get("partition")
    timestamp = document.get("timestamp")
    for name, number in (("partition", partition), ("timestamp", timestamp)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
            raise ValueError(f"{name} must be a whole number")
    headers = document.get("headers") or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return _Line(
        bytes_of(document["value"]),
        bytes_of(document.get("key")),
        [(name, bytes_of(data)) for name, data in pairs],
        partition,
        timestamp,
    )
