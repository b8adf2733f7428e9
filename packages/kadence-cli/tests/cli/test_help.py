"""The help of every command and action, and the width of what they print."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator

import pytest
from tests.cli.conftest import Run

from kadence import Consumer
from kadence_broker import Broker
from kadence_cli.main import make_parser
from kadence_cli.where import times_joined


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from parsers(each)


ALL = list(parsers(make_parser()))
COMMANDS = [each for each in ALL if each.prog.count(" ") == 1]


@pytest.mark.parametrize("columns", ["80", "200"])
@pytest.mark.parametrize("parser", ALL, ids=lambda parser: parser.prog)
def test_help_fits_79_columns(
    parser: argparse.ArgumentParser, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert [line for line in parser.format_help().splitlines() if len(line) > 79] == []


@pytest.mark.parametrize("parser", ALL, ids=lambda parser: parser.prog)
def test_every_argument_is_explained(parser: argparse.ArgumentParser) -> None:
    actions = [each for each in parser._actions if not isinstance(each, argparse._SubParsersAction)]
    assert [each.dest for each in actions if not each.help] == []
    assert parser.description


def test_examples_are_command_lines_that_are_taken() -> None:
    """Each example is read by the parser, without what a shell does with the rest of the line."""
    tried = 0
    for parser in COMMANDS:
        for line in (parser.epilog or "").splitlines():
            words = (
                line.split("  kadence ", 1)[-1].split("   ")[0].split(" | ")[0].split(" >")[0].split(" <")[0]
            )
            if not line.startswith("  kadence ") or words.endswith("\\"):
                continue
            make_parser().parse_args(times_joined(shlex.split(words)))
            tried += 1
    assert tried > 30


def test_tables_fit_80_columns(kadence: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command that prints a table, on a terminal, with names as long as they get."""
    topic, group = "orders-" + "x" * 120, "report-" + "y" * 120
    monkeypatch.setenv("COLUMNS", "80")
    kadence("topics", "create", topic, "--partitions", "12", "--config", "retention.ms=123456789")
    kadence("produce", topic, "--format", "lines", stdin=b"a\nb\n")
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=group, client_id="z" * 90) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        shown = [
            kadence("topics", "list"),
            kadence("topics", "describe", topic),
            kadence("topics", "create", topic + "2"),
            kadence("topics", "grow", topic + "2", "--partitions", "2"),
            kadence("topics", "config", topic, "--all"),
            kadence("topics", "delete-records", topic, "--before", "earliest"),
            kadence("groups", "list"),
            kadence("groups", "describe", group),
            kadence("groups", "lag", group),
            kadence("cluster"),
        ]
        whole = kadence("groups", "describe", group, "--wide")
    shown += [
        kadence("groups", "reset", group, "--topic", topic, "--to", "latest"),
        kadence("groups", "forget", group, "--topic", topic),
    ]
    for ran in shown:
        assert ran.status == 0, ran.err
        lines = ran.out.splitlines()
        assert len(lines) >= 2
        assert max(len(line.removeprefix("\x1b[1m").removesuffix("\x1b[0m")) for line in lines) <= 80, ran.out
    assert group in whole.out
    assert f"{topic}:11" in whole.out
