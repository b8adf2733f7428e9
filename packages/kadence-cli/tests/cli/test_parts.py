"""Commands about several things of which some fail: what was done is done and told, and each failure names its own."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run
from tests.patience import PATIENCE

from kadence import Admin, Consumer, Producer, TopicPartition
from kadence.admin import GroupListing
from kadence.protocol.list_offsets import ListOffsetsRequest
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence_broker import Broker

STREAMS = "'streams' is a streams group; this is for those of type classic, consumer and share"


@pytest.fixture
def groups(broker: Broker, kadence: Run, monkeypatch: pytest.MonkeyPatch) -> Admin:
    """Groups ``one`` and ``two`` with offsets, and a streams group, which the embedded broker has none of."""
    kadence("topics", "create", "t", "--partitions", "1")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for name in ("one", "two"):
            admin.alter_consumer_group_offsets(name, {TopicPartition("t", 0): 0})
    listed = Admin.list_groups

    def with_streams(admin: Admin, **more: Any) -> list[GroupListing]:
        return [*listed(admin, **more), GroupListing("streams", "streams", "Stable", "streams")]

    monkeypatch.setattr(Admin, "list_groups", with_streams)
    return admin


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("action", ["lag", "describe"])
def test_a_pattern_means_no_streams_groups(kadence: Run, action: str) -> None:
    ran = kadence("groups", action, "*")
    assert (ran.status, ran.err) == (0, "")
    assert [row["group"] for row in ran.rows] == ["one", "two"]


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("action", ["lag", "describe"])
def test_rows_of_those_that_answered_are_printed(kadence: Run, action: str) -> None:
    ran = kadence("groups", action, "streams", "one", "onee", "two")
    assert [row["group"] for row in ran.rows] == ["one", "two"]
    assert ran.status == 1
    assert ran.err.splitlines() == [
        f"kadence groups: {STREAMS}",
        "kadence groups: there is no group 'onee'; did you mean 'one'? `kadence groups list` shows all",
    ]


@pytest.mark.usefixtures("groups")
def test_who_is_missing_is_named_and_not_who_is_gone(kadence: Run) -> None:
    ran = kadence("groups", "delete", "one", "onee", "two")
    assert ran.status == 1
    assert ran.err.splitlines() == [
        "kadence groups: there is no group 'onee'; `kadence groups list` shows all"
    ]
    assert ran.rows == [{"group": "one"}, {"group": "two"}]
    kadence("topics", "create", "abc")
    ran = kadence("topics", "delete", "abc", "missing")
    assert ran.status == 1
    assert ran.err.splitlines() == [
        "kadence topics: there is no topic 'missing'; `kadence topics list` shows all"
    ]
    assert ran.rows == [{"topic": "abc"}]


def test_topics_are_described_and_set_beside_one_that_is_missing(kadence: Run) -> None:
    kadence("topics", "create", "a", "b")
    missing = "kadence topics: there is no topic 'nope'; `kadence topics list` shows all"
    for words in (("describe",), ("grow", "--partitions", "2")):
        ran = kadence("topics", words[0], "a", "nope", "b", *words[1:])
        assert ran.status == 1
        assert missing in ran.err
        assert [row["topic"] for row in ran.rows] == ["a", "b"]
    ran = kadence("topics", "config", "a", "nope", "b", "--set", "retention.ms=7000")
    assert ran.status == 1
    assert "ConfigResource" not in ran.err
    assert "nope" in ran.err
    assert [(row["topic"], row["value"]) for row in ran.rows] == [("a", "7000"), ("b", "7000")]


def test_all_topics_are_described_with_two_requests(kadence: Run, broker: Broker) -> None:
    kadence("topics", "create", *(f"t{number}" for number in range(20)))
    with broker.faults.observe(ListOffsetsRequest) as asked:
        assert len(kadence("topics", "describe", "t*").rows) == 20
    # The first offset and the end are two requests, sent together.
    assert len(asked) <= 3


@pytest.mark.usefixtures("groups")
def test_a_dry_run_refuses_what_the_run_refuses(kadence: Run, broker: Broker) -> None:
    reset = ("groups", "reset", "live", "--topic", "t", "--to", "earliest")
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="live") as consumer:
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(0.1)
        with broker.faults.observe(OffsetCommitRequest) as sent:
            dry, real = kadence(*reset, "--dry-run"), kadence(*reset)
        assert dry == real
        assert (dry.status, dry.out) == (1, "")
        assert "group 'live' has live members (it is in state Stable); stop its consumers first" in dry.err
        assert len(sent) == 0
    streams = ("groups", "reset", "streams", "--topic", "t", "--to", "earliest")
    dry, real = kadence(*streams, "--dry-run"), kadence(*streams)
    assert dry == real
    assert (dry.status, dry.err) == (1, f"kadence groups: {STREAMS}\n")
    # A group that nobody has used is made by it, as by Kafka's tool.
    assert kadence("groups", "reset", "new", "--topic", "t", "--to", "earliest").status == 0


def test_a_group_without_offsets_or_members_is_told(kadence: Run, broker: Broker) -> None:
    kadence("topics", "create", "t", "--partitions", "1")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="g", enable_auto_commit=False
        ) as member:
            member.subscribe(["t"])
            while not member.assignment():
                member.poll(0.1)
        assert admin.describe_consumer_groups("g")["g"].members == ()
    ran = kadence("groups", "lag", "g")
    assert (ran.status, ran.out) == (0, "")
    assert ran.err == "group 'g' has committed nothing, and no member of it has partitions\n"


def test_ids_are_fenced_beside_one_that_is_missing(kadence: Run, broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="mine") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"1", partition=0).result(PATIENCE)
        (open_one,) = kadence("transactions", "describe", "mine").rows
        assert open_one["duration_ms"] >= 0
        producer.commit_transaction()
        (ended,) = kadence("transactions", "describe", "mine").rows
        # It has ended, so no duration grows.
        assert (ended["state"], ended["started"], ended["duration_ms"]) == ("CompleteCommit", None, None)
        ran = kadence("transactions", "fence", "mine", "nobodys")
        assert ran.status == 1
        assert [row["transactional_id"] for row in ran.rows] == ["mine"]
        assert ran.rows[0]["producer_epoch"] > open_one["producer_epoch"] or (
            ran.rows[0]["producer_id"] != open_one["producer_id"]
        )
        assert "there is no transactional id 'nobodys'" in ran.err
        assert "done" not in ran.err
        ran = kadence("transactions", "describe", "mine", "nobodys")
        assert (ran.status, len(ran.rows)) == (1, 1)


# ---------------------------------------------------------------- produce


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"value":1,"timestamp":-5}', "line 3: "),
        (b'{"value":1,"partition":7}', "line 3: UNKNOWN_TOPIC_OR_PARTITION (3): topic 't' has 1 partition"),
        (b'{"value":1,"headers":[["x"]]}', "line 3: headers are pairs of a name and a value"),
        (b'{"value":1,"headers":[[1,"x"]]}', "line 3: headers are pairs of a name and a value"),
        (b'{"value":"' + b"x" * 2_000_000 + b'"}', "line 3: "),
        (b"{", "line 3: this is not JSON"),
    ],
    ids=["timestamp", "partition", "header", "header's name", "too large", "no JSON"],
)
def test_a_line_that_is_refused_is_named_and_what_came_before_it(
    kadence: Run, line: bytes, said: str
) -> None:
    kadence("topics", "create", "t", "--partitions", "1")
    ran = kadence("produce", "t", stdin=b'{"value":1}\n{"value":2}\n' + line + b'\n{"value":4}\n')
    assert ran.status == 1
    assert said in ran.err
    assert ran.err.endswith("\n  2 records before it delivered to t; it and what follows was not sent\n")
    assert [row["value"] for row in kadence("consume", "t", "-e").rows] == ["1", "2"]


def test_numbers_stay_as_they_were_written(kadence: Run) -> None:
    values = [
        '{"amount":0.1234567890123456789,"more":[0.10,1e2,1E5,-0.0,1e999],"text":"a\\"é"}',
        "12345678901234567890.5",
        '{"a":1.5,"b":[true,null,12345678901234567890123]}',
        f'{{"a":[-0,0,-1],"b":{"9" * 5000}}}',
        "-0",
    ]
    lines = "".join(f'{{"key":{value},"value":{value}}}\n' for value in values).encode()
    assert kadence("produce", "t", stdin=lines).status == 0
    assert kadence("consume", "t", "-e", "--format", "values").out.splitlines() == values
    assert [row["key"] for row in kadence("consume", "t", "-e").rows] == values
    lines = kadence("consume", "t", "-e", "--format", "json").out.encode()
    assert kadence("produce", "copy", stdin=lines).status == 0
    assert kadence("consume", "copy", "-e", "--format", "values").out.splitlines() == values


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("form", ["records", "json"])
def test_what_json_has_not_is_not_written(kadence: Run, word: str, form: str) -> None:
    ran = kadence("produce", "t", "--format", form, stdin=f'{{"value":{{"a":{word}}}}}\n'.encode())
    assert ran.status == 1
    assert f"line 1: {word} is not JSON" in ran.err


@pytest.mark.parametrize(
    ("first", "last", "made"),
    [
        ("1", "NA", ("1", "NA")),
        ("1", "2.5", (1.0, 2.5)),
        ("", "7", (None, 7)),
        ("2026-11-22", "soon", ("2026-11-22", "soon")),
        ("1.5", "x", ("1.5", "x")),
    ],
)
def test_a_csv_column_has_one_type_from_its_first_row_to_its_last(
    kadence: Run, tmp_path: Path, first: str, last: str, made: tuple[object, object]
) -> None:
    """The type is that of all cells, and not of the first MiB."""
    file = tmp_path / "rows.csv"
    count = 3_000
    rows = [f"{first},{'x' * 400}\n"] * count
    file.write_text("a,b\n" + "".join(rows) + f"{last},y\n")
    ran = kadence("produce", "t", "-i", str(file))
    assert (ran.status, ran.err) == (0, f"{count + 1:,} records delivered to t\n")
    documents = [
        json.loads(line) for line in kadence("consume", "t", "-e", "--format", "values").out.splitlines()
    ]
    by_text = {document["b"][0]: document["a"] for document in documents}
    assert (by_text["x"], by_text["y"]) == made
    assert {type(document["a"]) for document in documents if document["b"] != "y"} == {type(made[0])}


# ---------------------------------------------------------------- stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("words", [("topics", "list"), ("consume", "t", "-e")], ids=" ".join)
def test_a_full_disk_is_a_failure_in_one_sentence(
    broker: Broker, kadence: Run, words: tuple[str, ...]
) -> None:
    kadence("produce", "t", "--format", "lines", stdin=b"1\n")
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "kadence", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**usual, "KADENCE_BOOTSTRAP_SERVERS": broker.bootstrap_servers},
            timeout=PATIENCE,
            check=False,
        )
    said = ran.stderr.decode().splitlines()
    assert (ran.returncode, said[-1]) == (1, f"kadence {words[0]}: {os.strerror(errno.ENOSPC)}")
    assert not any("ignored" in line or "Traceback" in line for line in said)
