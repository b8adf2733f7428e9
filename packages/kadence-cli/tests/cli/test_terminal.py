"""What strangers chose reaches a terminal as text only: names, keys, values and what brokers say."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys

import pytest
from tests.cli.conftest import Run
from tests.cli.top.test_app import top

from kadence import Admin, Consumer, Producer, TopicPartition
from kadence_broker import Broker
from kadence_cli.common import say

STRANGE = "x\x1b]52;c;aGk=\x07\x9b2J\nforged \u202e\x7f"
SHOWN = r"x\x1b]52;c;aGk=\x07\x9b2J\x0aforged \u202e\x7f"


def steers(text: str) -> bool:
    """Whether a terminal would obey anything here. Heads of tables are bold."""
    plain = text.replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\n", "")
    return any(not letter.isprintable() for letter in plain)


def test_groups_and_members(kadence: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    kadence("topics", "create", "t")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    servers = broker.bootstrap_servers
    with Consumer(bootstrap_servers=servers, group_id=STRANGE, client_id=STRANGE) as consumer:
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(0.1)
        consumer.commit({TopicPartition("t", 0): 0})
        for action in ("list", "describe", "lag"):
            ran = kadence("groups", action, "*", *(["--wide"] if action == "describe" else []))
            assert not steers(ran.out)
            assert SHOWN in ran.out
        as_json = kadence("groups", "describe", "*", "--json")
        assert not steers(as_json.out)
        assert as_json.rows[0]["client"] == as_json.rows[0]["group"] == STRANGE
    deleted = kadence("groups", "delete", STRANGE)
    assert not steers(deleted.err)
    assert not steers(kadence("groups", "delete", STRANGE).err)


def test_top(broker: Broker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(["t"])
        admin.alter_consumer_group_offsets(STRANGE, {TopicPartition("t", 0): 0})

    async def look() -> None:
        async with top(broker.bootstrap_servers) as screen:
            await screen.shows(r"x\x1b]52")
            assert not steers("".join(screen.lines))
            await screen.press("enter")
            await screen.shows("[members]", r"x\x1b]52")
            assert not steers("".join(screen.lines))

    asyncio.run(look())


@pytest.fixture
def records(broker: Broker, kadence: Run) -> None:
    """Two records that steer terminals."""
    kadence("topics", "create", "t")
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", STRANGE.encode(), STRANGE.encode(), headers=[(STRANGE, b"")])
        producer.send("t", b"\xff\x1b")


@pytest.mark.usefixtures("records")
@pytest.mark.parametrize("form", ["records", "json"])
def test_records_as_json(kadence: Run, form: str) -> None:
    ran = kadence("consume", "t", "-e", "--format", form)
    assert not steers(ran.out)
    record = ran.rows[0]
    assert (record["key"], record["value"], record["headers"][0][0]) == (STRANGE,) * 3


@pytest.mark.usefixtures("records")
def test_values(kadence: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("consume", "t", "-e", "--format", "values")
    raw = f"{STRANGE}\n\ufffd\x1b\n"
    assert kadence(*command).out == raw
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert kadence(*command).out == f"{SHOWN}\n\\xff\\x1b\n"
    assert kadence(*command, "--raw").out == raw
    refused = kadence("consume", "t", "--raw")
    assert (refused.status, "--raw is for --format values" in refused.err) == (2, True)


def test_on_a_real_terminal(broker: Broker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(["t"])
        admin.alter_consumer_group_offsets(STRANGE, {TopicPartition("t", 0): 0})
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kadence", "groups", "list", "-b", broker.bootstrap_servers]
    subprocess.run(command, stdout=theirs, check=True)
    os.close(theirs)
    shown = os.read(ours, 65_536).decode()
    os.close(ours)
    assert SHOWN in shown
    assert not steers(shown.replace("\r\n", "\n"))


def test_messages_keep_their_own_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say("two mistakes:\n  one\x9b2J")
    assert capsys.readouterr().err == "two mistakes:\n  one\\x9b2J\n"
