"""Each command that shows something has --json, and its lines have the fields that docs/cli.md names."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Ran, Run
from tests.cli.shapes import SHAPES
from tests.cli.test_help import ALL
from tests.cli.test_transactions import leave_hanging

from kadence import Admin, Producer
from kadence_broker import Broker

ACTS: frozenset[str] = frozenset(
    {
        "produce",
        "top",
        "pipeline run",
        "pipeline replay",
        "pipeline schema",
        "checkpoint to-connector",
        "completion",
    }
)
"""Commands that show nothing that is data of their own: they write, draw, or print a text that is a file."""

ELSEWHERE: frozenset[str] = frozenset({"broker", "pipeline plan", "pipeline status", "checkpoint show"})
"""Shown by test_process.py, test_pipeline.py and tests/spark, where what they need is at hand."""

COMMANDS: tuple[str, ...] = (
    "produce --offsets orders",
    "consume orders -n 1",
    "topics list",
    "topics describe orders",
    "topics create new --partitions 1",
    "topics grow sales --partitions 2",
    "topics config orders --all",
    "topics config orders --set retention.ms=60000",
    "topics delete-records orders:0 --before 1",
    "topics delete dead",
    "groups list",
    "groups describe report",
    "groups lag report",
    "groups why report --for 1",
    "groups reset report --topic orders --to earliest",
    "groups forget report --topic orders:0",
    "groups config report --all",
    "groups delete report",
    "transactions list",
    "transactions describe billing-1",
    "transactions hanging orders",
    "transactions abort orders:0 --start-offset 1",
    "transactions fence billing-1",
    "dead-letters list dead",
    "dead-letters show dead",
    "dead-letters replay dead --all --dry-run",
    "dead-letters replay dead --all",
    "dead-letters drop dead --before latest",
    "cluster",
    "pipeline check bad.toml none.toml",
    "doctor",
)


@pytest.fixture
def situation(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Something of everything: records, a group with lag, a dead letter, an open and a hanging transaction."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text("checkpoint = 1\n")
    for topic, partitions in (("orders", 2), ("dead", 1), ("sales", 1)):
        broker.create_topic(topic, partitions)
    servers = broker.bootstrap_servers
    origin = [("topic", b"orders"), ("partition", b"0"), ("offset", b"0"), ("exception", b"ValueError")]
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("orders", b"1", partition=0)
        producer.send("dead", b"1", headers=[(f"kadence.error.{name}", value) for name, value in origin])
    with Admin(bootstrap_servers=servers) as admin:
        admin.alter_consumer_group_offsets("report", {("orders", 0): 0})
    leave_hanging(broker)
    with Producer(bootstrap_servers=servers, transactional_id="billing-1") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("sales", b"open").result()
        yield
        producer.close(0)


def shape_of(words: list[str]) -> str:
    return max((name for name in SHAPES if words[: len(name.split())] == name.split()), key=len)


def check(command: str, ran: Ran) -> None:
    name = shape_of(shlex.split(command))
    shape = SHAPES[name]
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert rows, f"{command}: {ran.err}"
    for row in rows:
        assert [key for key in row if key in shape.fields] == list(shape.fields), command
        assert set(row) - set(shape.fields) <= set(shape.sometimes), command


NOT_IN_A_PIPE: frozenset[str] = frozenset({"doctor", "pipeline check"})
"""Commands that print JSON only with --json."""


@pytest.mark.usefixtures("situation")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_line_in_a_pipe_is_json(command: str, kadence: Run) -> None:
    if shape_of(shlex.split(command)) not in NOT_IN_A_PIPE:
        check(command, kadence(*shlex.split(command), stdin=b'{"value":"2"}\n'))


@pytest.mark.usefixtures("situation")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_line_has_the_fields_that_the_page_names(command: str, kadence: Run) -> None:
    always = SHAPES[shape_of(shlex.split(command))].always
    ran = kadence(*shlex.split(command), *([] if always else ["--json"]), stdin=b'{"value":"2"}\n')
    check(command, ran)


def test_each_command_that_shows_something_has_a_shape() -> None:
    ends = [each for each in ALL if not any(isinstance(a, argparse._SubParsersAction) for a in each._actions)]
    names = {each.prog.removeprefix("kadence ") for each in ends}
    shown = {name.removesuffix(" --offsets") for name in SHAPES}
    assert names == shown | ACTS
    assert ELSEWHERE | {shape_of(shlex.split(command)) for command in COMMANDS} == set(SHAPES)


def test_each_of_them_takes_json_unless_it_prints_it_always() -> None:
    takes = {each.prog.removeprefix("kadence ") for each in ALL if "--json" in each._option_string_actions}
    assert takes == {name for name, shape in SHAPES.items() if not shape.always}
