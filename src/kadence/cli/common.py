"""What the commands share: connection options, -X, JSON lines, and a table or a line of progress for people."""

from __future__ import annotations

import argparse
import base64
import binascii
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

__all__ = [
    "CommandError",
    "add_client_options",
    "add_command",
    "bytes_of",
    "client_config",
    "print_json",
    "print_rows",
    "read_settings",
    "say",
    "text_of",
]

_DEFAULT_SERVERS = "localhost:9092"


class CommandError(Exception):
    """The command cannot do what it was asked; the message is for the person who asked."""


def say(message: str) -> None:
    """A line for people, on stderr: stdout is for data."""
    print(message, file=sys.stderr, flush=True)


# ---------------------------------------------------------------- options


def add_command(
    commands: Any, name: str, summary: str, *, description: str, examples: str
) -> argparse.ArgumentParser:
    """One subcommand, whose help ends with examples."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog="examples:\n" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """-b and -X."""
    parser.add_argument(
        "-b",
        "--bootstrap-servers",
        metavar="HOST:PORT[,…]",
        default=os.environ.get("KADENCE_BOOTSTRAP_SERVERS", _DEFAULT_SERVERS),
        help="brokers to ask first (default: $KADENCE_BOOTSTRAP_SERVERS, else localhost:9092)",
    )
    add_settings_option(parser, "a client setting by Kafka's name, e.g. -X security.protocol=SSL; repeatable")


def add_settings_option(parser: argparse.ArgumentParser, text: str) -> None:
    """-X key=value."""
    parser.add_argument("-X", dest="settings", metavar="KEY=VALUE", action="append", default=[], help=text)


def read_settings(pairs: Iterable[str]) -> dict[str, str]:
    """``key=value`` pairs as a mapping."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise CommandError(f"-X takes KEY=VALUE, e.g. -X client.id=me, not {pair!r}")
        settings[key.strip()] = value.strip()
    return settings


def client_config(arguments: argparse.Namespace) -> dict[str, Any]:
    """The configuration that -b and -X make."""
    return {"bootstrap.servers": arguments.bootstrap_servers, **read_settings(arguments.settings)}


# ---------------------------------------------------------------- data


def text_of(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as JSON: a string where they are UTF-8, else ``{"base64": …}``, so that nothing is lost."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def bytes_of(value: Any) -> bytes | None:
    """The reverse of `text_of`; any other JSON value becomes its compact text.

    Raises:
        ValueError: what ``base64`` names is not base64.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError) as error:
            raise ValueError(f"not base64: {value['base64']!r}") from error
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def print_json(document: Mapping[str, Any], stream: IO[str] | None = None) -> None:
    """One JSON line."""
    print(json.dumps(document, ensure_ascii=False, separators=(",", ":")), file=stream or sys.stdout)


# ---------------------------------------------------------------- for people


def print_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, columns: Sequence[str] = ()) -> None:
    """Rows as JSON lines; as a table where stdout is a terminal and nobody asked for JSON."""
    if as_json or not sys.stdout.isatty():
        for row in rows:
            print_json(row)
        return
    print_table(rows, columns or list(rows[0]) if rows else columns, sys.stdout)


def print_table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], stream: IO[str], *, title: str = ""
) -> None:
    """A table: rich's where it is installed, else plain columns."""
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print_plain_table(cells, columns, stream, title=title)
        return
    table = Table(title=title or None, title_justify="left", header_style="bold")
    for index, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row.get(column), int | float) for row in rows)
        table.add_column(column, justify="right" if is_number else "left", no_wrap=index == 0)
    for line in cells:
        table.add_row(*line)
    Console(file=stream, highlight=False, markup=False).print(table)


def print_plain_table(
    cells: Sequence[Sequence[str]], columns: Sequence[str], stream: IO[str], *, title: str = ""
) -> None:
    """The table without rich."""
    lines = [list(columns), *[list(line) for line in cells]]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    if title:
        print(title, file=stream)
    for line in lines:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip(),
            file=stream,
        )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
