"""Records of a partition, and the stack of its owner, as lines for the screen."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, Final

from kadence.errors import KafkaError
from kadence.lazy_dataclasses import dataclass
from kadence.printable import printable
from kadence.types import TopicPartition
from kadence_cli.consume import as_record
from kadence_cli.figures import clock_time, duration
from kadence_cli.names import spelled
from kadence_cli.top.local import Process
from kadence_cli.top.rows import Column, Row

__all__ = ["LINES", "MOST", "Records", "command", "commands_fit", "read", "record_rows", "stack_rows"]

MOST: Final = 20
"""How many records are shown."""

LINES: Final = (Column("", 0),)

_PATIENCE_S: Final = 5.0

_LETTERS: Final = 2000
"""The most characters of one record; the command shows all."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a partition from an offset on.

    Attributes:
        lines: as ``kadence consume`` prints them. trouble: why there are none; empty if there are.
    """

    partition: TopicPartition
    start: int
    lines: tuple[str, ...] = ()
    trouble: str = ""


def read(config: Mapping[str, Any], partition: TopicPartition, start: int) -> Records:
    """Read records, without a group and without commits."""
    from kadence import Consumer

    settings = {"client.id": "kadence-top", **config, "auto.offset.reset": "earliest"}
    try:
        with Consumer(settings) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, start)
            found = list(consumer.poll(_PATIENCE_S, max_records=MOST))
    except KafkaError as error:
        return Records(partition, start, trouble=" ".join(str(error).split()))
    if not found:
        return Records(partition, start, trouble=f"no record came within {_PATIENCE_S:g} s")
    return Records(partition, start, tuple(as_record(each).decode().rstrip("\n") for each in found))


def command(partition: TopicPartition, start: int) -> str:
    """The shell command for the same records, on the default cluster."""
    return f"kadence consume {quote(spelled(partition))} --from {start} -n {MOST}"


def record_rows(found: Records | None, said: str, width: int) -> list[Row]:
    """The command, and the records below it, wrapped."""
    lines = [(line.removeprefix("   "), "busy") for line in commands_fit([f"   $ {said}"], width)]
    if found is None:
        lines.append(("reading …", ""))
    elif found.trouble:
        lines.append((printable(found.trouble), "bad"))
    else:
        for each in found.lines:
            text = each if len(each) <= _LETTERS else f"{each[:_LETTERS]} … (the command shows all)"
            first, *rest = _wrapped(text, width)
            lines += [(first, "ok"), *((line, "") for line in rest)]
    return _rows(lines)


def commands_fit(lines: Sequence[str], width: int) -> list[str]:
    """Lines of a page; a command wider than the screen is continued as in a shell."""
    made: list[str] = []
    for line in lines:
        if len(line) <= width or not line.startswith("   $ "):
            made.append(line)
            continue
        *first, last = textwrap.wrap(
            line, width - 2, subsequent_indent=" " * 7, break_long_words=False, break_on_hyphens=False
        )
        made += [*(f"{each} \\" for each in first), last]
    return made


def stack_rows(process: Process | None, width: int) -> list[Row]:
    """The reports of a process's stalls, the latest first: unprocessed records, and the stack."""
    if process is None:
        said = "the owner publishes no state on this machine: kadence.publish_state(consumer)"
        return _rows([(line, "") for line in _wrapped(said, width)])
    lines: list[tuple[str, str]] = []
    for stall in reversed(process.state.get("stalls", ())):
        ended = stall["ended"]
        length = "not ended yet" if ended is None else f"for {duration(ended - stall['since'])}"
        head = f"stall since {clock_time(stall['since'])}, {length}, thread {stall['thread']}"
        lines += [(line, "bad" if ended is None else "busy") for line in _wrapped(head, width)]
        if stall["records"]:
            lines += [(line, "") for line in _wrapped(f"in hand: {stall['records']}", width)]
        for row in stall["stack"].splitlines():
            lines += [(line, "") for line in _wrapped(row, width)]
    return _rows(lines or [(process.trouble or "it has not stalled: it was polled in time", "ok")])


def _wrapped(text: str, width: int) -> list[str]:
    text = printable(text)
    indent = text[: len(text) - len(text.lstrip())]
    return textwrap.wrap(text, width, subsequent_indent=f"{indent}  ", break_on_hyphens=False) or [""]


def _rows(lines: list[tuple[str, str]]) -> list[Row]:
    return [Row(number, (line,), (number,), mark, spans=True) for number, (line, mark) in enumerate(lines)]
