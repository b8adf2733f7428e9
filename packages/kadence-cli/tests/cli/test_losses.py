"""Records that are deleted before a command reads them, and records as they come."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.conftest import Run
from tests.patience import until

from kadence import Admin, Consumer, TopicPartition
from kadence_broker import Broker
from kadence_cli import consume
from kadence_cli.where import ranges

GONE = "t:0: the offsets 0 to 6 were deleted before they were read\n"


@pytest.fixture
def raced(broker: Broker, kadence: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten records, of which retention takes seven after a command has looked up where they begin."""
    kadence("topics", "create", "t", "--partitions", "1")
    kadence("produce", "t", "--format", "lines", stdin=b"".join(b"%d\n" % n for n in range(10)))

    def late(look_up: Any) -> Any:
        def looked_up(*given: Any) -> Any:
            found = look_up(*given)
            with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                admin.delete_records({TopicPartition("t", 0): 7})
            return found

        return looked_up

    monkeypatch.setattr(consume, "_plan", late(consume._plan))
    monkeypatch.setattr("kadence_cli.letter_actions.ranges", late(ranges))


@pytest.mark.usefixtures("raced")
@pytest.mark.parametrize(
    "where",
    [("-e",), ("--to", "latest"), ("-n", "3"), ("-e", "-X", "auto.offset.reset=latest")],
    ids=["end", "to", "count", "its own reset"],
)
def test_lines_go_on_and_say_what_is_missing(kadence: Run, where: tuple[str, ...]) -> None:
    ran = kadence("consume", "t", *where)
    assert (ran.status, ran.err) == (1, f"{GONE}3 records\n")
    assert [row["value"] for row in ran.rows] == ["7", "8", "9"]


@pytest.mark.usefixtures("raced")
def test_a_range_of_which_nothing_is_left(kadence: Run) -> None:
    ran = kadence("consume", "t", "--to", "5")
    assert (ran.status, ran.out, ran.err) == (1, "", f"{GONE}0 records\n")


@pytest.mark.usefixtures("raced")
@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "jsonl"])
def test_a_file_that_would_not_be_whole_is_not_there(kadence: Run, tmp_path: Path, form: str) -> None:
    file = tmp_path / f"all.{form}"
    ran = kadence("consume", "t", "-o", str(file))
    assert ran.status == 1
    assert "offset 0 of t:0 was deleted before it was read, so" in ran.err
    assert list(tmp_path.iterdir()) == []
    assert kadence("consume", "t", "-o", str(file)).status == 0


@pytest.mark.usefixtures("raced")
@pytest.mark.parametrize("action", [("list",), ("show",), ("replay", "--all", "--to", "copy")], ids=" ".join)
def test_dead_letters_that_are_gone_are_told(kadence: Run, action: tuple[str, ...]) -> None:
    kadence("topics", "create", "copy")
    ran = kadence("dead-letters", action[0], "t", *action[1:])
    assert ran.status == 1, ran.err
    assert GONE in ran.err
    assert (3 if action[0] != "list" else 1) == len(ran.rows)


def test_a_topic_that_is_another_one_is_an_error(
    broker: Broker, kadence: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    kadence("topics", "create", "t", "--partitions", "1")
    kadence("produce", "t", "--format", "lines", stdin=b"1\n2\n3\n")
    plan = consume._plan

    def late(*given: Any) -> Any:
        found = plan(*given)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.delete_topics("t")
            admin.create_topics("t")
        return found

    monkeypatch.setattr(consume, "_plan", late)
    ran = kadence("consume", "t", "--from", "2", "-e")
    assert ran.status == 1
    assert "t-0" in ran.err


def test_a_group_is_warned(broker: Broker, kadence: Run) -> None:
    kadence("topics", "create", "t", "--partitions", "1")
    kadence("produce", "t", "--format", "lines", stdin=b"1\n2\n3\n4\n")
    assert kadence("consume", "t", "-g", "g", "-n", "1").status == 0
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition("t", 0): 3})
    ran = kadence("consume", "t", "-g", "g", "-e")
    assert "t-0: offset 1, its position, is not in the log; applying auto.offset.reset=earliest" in ran.err
    assert [row["offset"] for row in ran.rows] == [3]


def test_a_member_without_partitions_ends_when_all_is_read(broker: Broker, kadence: Run) -> None:
    kadence("topics", "create", "t", "--partitions", "1")
    kadence("produce", "t", "--format", "lines", stdin=b"1\n2\n")
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
    }
    partition = TopicPartition("t", 0)
    with Consumer(settings) as other:

        def has_read_all() -> bool:
            other.poll(0.1)
            return partition in other.assignment() and other.position(partition) == 2

        other.subscribe(["t"])
        until(has_read_all, every=0)
        other.commit()
        # The other one does not poll meanwhile, so it keeps its partition.
        ran = kadence("consume", "t", "-g", "g", "-e")
        assert (ran.status, ran.out) == (0, "")
        # On a busy machine a warning of the client may stand before it.
        assert ran.err.endswith("0 records\n")


def test_who_waits_no_longer_for_the_end_says_so(broker: Broker, kadence: Run) -> None:
    kadence("topics", "create", "t", "--partitions", "1")
    kadence("produce", "t", "--format", "lines", stdin=b"1\n2\n")
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "enable.auto.commit": "false"}
    with Consumer(settings) as other:
        other.subscribe(["t"])
        until(lambda: other.poll(0.1) is not None and other.assignment(), every=0)
        # It has committed nothing.
        ran = kadence("consume", "t", "-g", "g", "-e", "--timeout", "0.2")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.endswith("no record came for 0.2 s, and the end is not reached\n0 records\n")
    # Without -e it is what was asked for.
    assert kadence("consume", "t", "--from", "latest", "--timeout", "0.2").status == 0


def test_the_help_says_who_sees_settings_and_where_secrets_belong(kadence: Run) -> None:
    for command in (["topics", "list"], ["consume"], ["produce"], ["groups", "lag"]):
        words = " ".join(kadence(*command, "--help").out.split())
        assert "in the list of processes: put secrets into the file of -c or --config" in words
    assert "in the list of processes" in " ".join(kadence("--help").out.split())


class _Steady:
    """A consumer of which each poll that waits brings one record, as of a program that writes all the time."""

    def __init__(self, raw: io.BytesIO, count: int) -> None:
        self._raw = raw
        self._records = [SimpleNamespace(value=b"%d" % n) for n in range(count)]
        self._shown = 0

    def poll(self, timeout: float, max_records: int | None = None) -> list[SimpleNamespace]:
        if timeout == 0:
            return []
        # It may wait now, so what came before is there to be read.
        assert self._raw.getvalue() == b"".join(b"%d\n" % n for n in range(self._shown))
        self._shown += 1
        return [self._records[self._shown - 1]]


def test_lines_are_written_before_it_waits() -> None:
    raw = io.BytesIO()
    out = io.BufferedWriter(raw)
    arguments = argparse.Namespace(
        format="values", value=None, output=None, raw=True, timeout=None, stats=None, group=None
    )
    arguments.max_records = 20
    consumer: Any = _Steady(raw, 20)
    assert consume._print_all(consumer, arguments, consume._Plan({}, {}), out) == 20


class _Committing(_Steady):
    """A member of a group of which each poll brings a record, and commits those of the polls before it."""

    def poll(self, timeout: float, max_records: int | None = None) -> list[SimpleNamespace]:
        return super().poll(1, max_records)


def test_lines_of_a_group_are_written_before_their_records_can_be_committed() -> None:
    raw = io.BytesIO()
    arguments = argparse.Namespace(
        format="values", value=None, output=None, raw=True, timeout=None, stats=None, group="g"
    )
    arguments.max_records = 20
    consumer: Any = _Committing(raw, 20)
    assert consume._print_all(consumer, arguments, consume._Plan({}, {}), io.BufferedWriter(raw)) == 20
