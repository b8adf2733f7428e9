"""Advice in errors of commands: each row is a mistake, words of its error, and commands that follow the advice."""

from __future__ import annotations

import argparse
import re
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Run

from kadence import Admin, Consumer, NewTopic, Producer, TopicPartition
from kadence.errors import UnknownTopicOrPartitionError
from kadence_broker import Broker
from kadence_cli import broker as broker_command
from kadence_cli.common import CommandError, UsageError


class Row(NamedTuple):
    wrong: str
    advice: str
    right: tuple[str, ...]
    statuses: tuple[int, ...] = (0,)
    """Statuses of commands that understood the advice, whatever they found."""
    stdin: bytes = b""


ROWS = {
    "a file and a group": Row(
        "consume t --group g -o {out}/a.parquet",
        "-o reads without a group; give --from and --to",
        ("consume t --from earliest --to latest -o {out}/a.parquet",),
    ),
    "a format of files": Row(
        "consume t -e --format parquet",
        "--format parquet is for a file: give -o FILE",
        ("consume t --format parquet -o {out}/b.bin",),
    ),
    "two ends": Row(
        "consume t -e --to latest",
        "both say where to stop; give one of them",
        ("consume t -e", "consume t --to latest"),
    ),
    "partitions of a group": Row(
        "consume t:0 --group g -e",
        "the group assigns the partitions; name the topic alone",
        ("consume t --group g -e",),
    ),
    "an end of a group": Row(
        "consume t --group g --to latest",
        "--exit-at-end stops at the offsets that are last now",
        ("consume t --group g --exit-at-end",),
    ),
    "a place of a group": Row(
        "consume t --group g --from -1h",
        "--from takes earliest or latest only",
        ("consume t --group g2 --from earliest -e", "groups reset g2 --topic t --to earliest"),
    ),
    "a range from behind": Row(
        "consume t:1-0 -e",
        "1-0 in 't:1-0' is not a range: its smaller number comes first",
        ("consume t:0-1 -e",),
    ),
    "a device for records": Row(
        "consume t -e --format csv -o /dev/null",
        "is no regular file; without -o records go to stdout, as lines",
        ("consume t -e",),
    ),
    "raw records": Row(
        "consume t -e --raw", "--raw is for --format values", ("consume t -e --raw --format values",)
    ),
    "partitions that are no numbers": Row(
        "consume t:x -e",
        "write TOPIC for all its partitions, or TOPIC:0,2 or TOPIC:0-3,7 for some",
        ("consume t -e", "consume t:0,1 -e", "consume t:0-1 -e"),
    ),
    "a file of records without its name": Row(
        "produce t --format parquet", "--format parquet is for a file: give -i FILE", ("produce t -i {rows}",)
    ),
    "a place that is a large offset": Row(
        "consume t -e --from 17000000000000",
        "write time:17000000000000 for milliseconds since 1970",
        ("consume t -e --from time:17000000000000",),
    ),
    "a place that is none": Row(
        "consume t -e --from soon",
        "is not a place: give earliest, latest",
        tuple(
            f"consume t -e --from {place}" for place in ("earliest", "latest", "0", "-10", "-7d", "time:0")
        ),
    ),
    "a topic's option": Row("topics --list", "did you mean `kadence topics list`?", ("topics list",)),
    "a topic by an option": Row(
        "consume --topic t -e", "give the topic alone: kadence consume TOPIC", ("consume t -e",)
    ),
    "a topic that does not exist": Row(
        "consume tt -e", "did you mean 't'? `kadence topics list` shows all", ("topics list", "consume t -e")
    ),
    "a state of groups": Row(
        "groups list --state alive",
        "give one of empty, stable",
        ("groups list --state stable", "groups list --state empty"),
    ),
    "a state of transactions": Row(
        "transactions list --state open",
        "give one of empty, ongoing",
        ("transactions list --state ongoing",),
    ),
    "transactions of a whole topic": Row(
        "transactions abort t --start-offset 0",
        "give one partition, such as orders:3",
        ("transactions abort t:0 --start-offset 0",),
        (1,),
    ),
    "an offset in words": Row(
        "transactions abort t:0 --start-offset first",
        "is not an offset: give a whole number",
        ("transactions abort t:0 --start-offset 0",),
        (1,),
    ),
    "dead letters by a name, and all": Row(
        "dead-letters replay dead --all --error ValueError",
        "--all is for all dead letters; leave out --offset, --error and --origin",
        ("dead-letters replay dead --all --dry-run --to t",),
    ),
    "which dead letters": Row(
        "dead-letters replay dead",
        "say which dead letters: --offset, --error, --origin, or --all",
        ("dead-letters replay dead --offset 0 --to t",),
    ),
    "a dead letter from nowhere": Row(
        "dead-letters replay dead --all",
        "it does not say where it came from (header kadence.error.topic); name a topic with --to",
        ("dead-letters replay dead --all --to t",),
    ),
    "a dead letter to nowhere": Row(
        "dead-letters replay lost --all",
        "name another topic with --to",
        ("dead-letters replay lost --all --to t",),
    ),
    "one name for two types of groups": Row(
        "groups reset known --type share --topic t --to earliest",
        "'known' is a classic group; delete it first, or choose another name",
        (
            "groups reset another --type share --topic t --to earliest",
            "groups delete known",
            "groups reset known --type share --topic t --to earliest",
        ),
    ),
    "a partition that a queue forgets": Row(
        "groups forget jobs --topic t:0",
        "it forgets a topic as a whole; name it without ':'",
        ("groups forget jobs --topic t",),
    ),
    "a table of schemas' values": Row(
        "consume bytes --value json-schema -o {out}/s.parquet",
        "write .jsonl; as they are, values go into any file",
        (
            "consume t --from latest --value json-schema --schema-registry http://127.0.0.1:1 -o {out}/s.jsonl",
            "consume bytes -o {out}/s.parquet",
        ),
    ),
    "bytes in CSV": Row(
        "consume bytes -o {out}/c.csv",
        "write .parquet, .arrow or .jsonl",
        tuple(f"consume bytes -o {{out}}/c.{kind}" for kind in ("parquet", "arrow", "jsonl")),
    ),
    "two kinds of groups": Row(
        "consume t --group g --share q",
        "--group and --share are two kinds of groups; give one of them",
        ("consume t --group g3 -e", "consume t --share q --timeout 0.5"),
    ),
    "an end of a queue": Row(
        "consume t --share q --to latest",
        "-n and --timeout say when to stop",
        ("consume t --share jobs -n 1 --timeout 20", "consume t --share q --timeout 0.5"),
    ),
    "an end of all of a queue": Row(
        "consume t --share q -e",
        "-n and --timeout say when to stop",
        ("consume t --share jobs -n 1 --timeout 20", "consume t --share q --timeout 0.5"),
    ),
    "a file of a queue": Row(
        "consume t --share q -o {out}/a.parquet",
        "-o reads without a group; give --from and --to",
        ("consume t --from earliest --to latest -o {out}/a.parquet",),
    ),
    "a place of a queue": Row(
        "consume t --share jobs --from latest",
        "the group has its place (`kadence groups reset` moves that)",
        ("groups reset jobs --topic t --to latest", "consume t --share jobs --timeout 0.5"),
    ),
    "partitions of a queue": Row(
        "consume t:0 --share q",
        "with --share the group assigns the partitions; name the topic alone",
        ("consume t --share q --timeout 0.5",),
    ),
    "a file of another kind to write": Row(
        "consume t -o {out}/x.xyz",
        "name it with --format",
        ("consume t --format parquet -o {out}/x.xyz", "consume t --format records -o {out}/x.xyz"),
    ),
    "a file of another kind to read": Row(
        "produce t -i {out}/rows.xyz", "name it with --format", ("produce t --format csv -i {out}/rows.xyz",)
    ),
    "a column that records do not have": Row(
        "produce t -i {out}/extra.csv",
        "Without a column value each row is written as a JSON document",
        ("produce t -i {out}/documents.csv",),
    ),
    "times of nowhere": Row(
        "produce t -i {out}/naive.parquet",
        "the times have no zone; give the column one, such as UTC",
        ("produce t -i {out}/utc.parquet",),
    ),
    "values that are no JSON": Row(
        "produce t --format json",
        "(--format json takes JSON, --format lines any text)",
        ("produce t --format lines",),
        stdin=b"no JSON\n",
    ),
    "a key of lines": Row(
        "produce t --format lines --key id",
        "--key needs --format json, or -i and a file with columns",
        ("produce t --format json --key id", "produce t -i {out}/documents.csv --key colour"),
        stdin=b'{"id": 1}\n',
    ),
    "a separator of documents": Row(
        "produce t --format json --separator :",
        "--separator needs --format lines, and a text such as ':'",
        ("produce t --format lines --separator :",),
        stdin=b"k:1\n",
    ),
    "values without a schema": Row(
        "produce t --value avro",
        "--value and --value-message need --value-schema FILE",
        (
            "produce t --value avro --value-schema {out}/long.avsc --schema-registry http://b:1 -i {out}/empty.jsonl",
        ),
    ),
    "values of no registry": Row(
        "consume t -e --value avro",
        "values with a schema need --schema-registry URL",
        ("consume t --from latest -e --value avro --schema-registry http://127.0.0.1:1",),
    ),
    "structs in CSV": Row(
        "consume t --from latest --value avro --schema-registry http://127.0.0.1:1 -o {out}/s.csv",
        "with --value write .parquet, .arrow or .jsonl",
        tuple(
            f"consume t --from latest --value avro --schema-registry http://127.0.0.1:1 -o {{out}}/s.{kind}"
            for kind in ("parquet", "arrow", "jsonl")
        ),
    ),
    "topics that no pattern matches": Row(
        "topics describe x*", "`kadence topics list` shows all", ("topics list", "topics describe t*")
    ),
    "groups that no pattern matches": Row(
        "groups describe x*", "`kadence groups list` shows all", ("groups list", "groups describe kn*")
    ),
    "a misspelt option": Row(
        "consume t --exit-at-ed", "did you mean '--exit-at-end'?", ("consume t --exit-at-end",)
    ),
    "a misspelt command": Row("topic list", "did you mean 'topics'?", ("topics list",)),
    "a setting without a value": Row(
        "topics list -X client.id", "-X takes KEY=VALUE", ("topics list -X client.id=me",)
    ),
    "settings behind the command": Row(
        "topics list --config {out}/client.properties",
        "it stands before the command: kadence --config FILE",
        ("--config {out}/client.properties topics list",),
    ),
    "a screen in a pipe": Row(
        "top known", "`kadence groups lag GROUP` prints the lag once, also into a pipe", ("groups lag known",)
    ),
    "no broker": Row(
        "topics list -b 127.0.0.1:1", "name a broker with -b HOST:PORT, or start one", ("topics list",)
    ),
}


FILES = {
    "rows.xyz": "value\n1\n",
    "extra.csv": "value,colour\n1,red\n",
    "documents.csv": "colour\nred\n",
    "long.avsc": '"long"',
    "empty.jsonl": "",
    "client.properties": "client.id=me\n",
}


@pytest.fixture
def world(broker: Broker, tmp_path: Path) -> dict[str, str]:
    with (
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        admin.create_topics([NewTopic(name, 1) for name in ("bytes", "dead", "lost")])
        admin.create_topics([NewTopic("t", 2)])
        admin.alter_consumer_group_offsets("known", {TopicPartition("t", 0): 0})
        admin.alter_share_group_offsets("jobs", {TopicPartition("t", 0): 0})
        producer.send("t", b"v", b"k")
        producer.send("dead", b"v")
        producer.send(
            "lost", b"v", headers=[("kadence.error.topic", b"gone"), ("kadence.error.partition", b"0")]
        )
        producer.send("bytes", b"\xff")
    rows = tmp_path / "rows.csv"
    rows.write_text("value\n1\n")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for name, zone in (("naive", None), ("utc", "UTC")):
        times = pa.array([datetime(2026, 1, 1)], pa.timestamp("ms", zone))  # noqa: DTZ001 - it has none
        pq.write_table(pa.table({"value": ["1"], "timestamp": times}), tmp_path / f"{name}.parquet")
    return {"out": str(tmp_path), "rows": str(rows)}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_command_that_follows_the_advice_works(
    kadence: Run, world: dict[str, str], row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        # Nobody is reached at that address, however long it is tried.
        patch.setattr("kadence_cli.reach.REACHED_S", 1.0 if "127.0.0.1:1" in row.wrong else 30.0)
        ran = kadence(*row.wrong.format(**world).split(), stdin=row.stdin)
    assert ran.status in (1, 2)
    assert re.search(re.escape(row.advice), ran.err), ran.err
    for right in row.right:
        ran = kadence(*right.format(**world).split(), stdin=row.stdin)
        assert ran.status in row.statuses, ran.err
        assert row.advice not in ran.err


def test_the_command_of_an_error_creates_the_topic_that_a_consumer_misses(
    kadence: Run, broker: Broker
) -> None:
    missing = TopicPartition("made", 0)
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign([missing])
        with pytest.raises(UnknownTopicOrPartitionError) as caught:
            consumer.position(missing, timeout=20)
        found = re.search(r"create it \(kadence (topics create made)\)", str(caught.value))
        assert found is not None
        assert kadence(*found[1].split()).status == 0
        assert consumer.position(missing, timeout=20) == 0


@pytest.mark.parametrize("wrong", ["flights:x", "flights:0", ":6"])
def test_a_topic_of_a_broker(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"takes NAME or NAME:PARTITIONS, e\.g\. flights:6"):
        broker_command._topic(wrong)
    assert broker_command._topic("flights:6") == ("flights", 6)
    assert broker_command._topic("flights") == ("flights", 1)


@pytest.mark.parametrize("wrong", ["me\n", "# nobody\n"], ids=["no password", "nobody"])
def test_users_of_a_broker(wrong: str, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(wrong)
    with pytest.raises(CommandError, match="a line is NAME:PASSWORD"):
        broker_command._users(str(users))
    users.write_text("me:pw\n")
    assert broker_command._users(str(users)) == {"me": "pw"}


def test_a_key_of_a_broker_has_a_certificate(tmp_path: Path) -> None:
    given = {"tls_certificate": None, "tls_key": tmp_path / "key.pem", "tls_client_ca": None}
    with pytest.raises(UsageError, match="--tls-key and --tls-client-ca need --tls-certificate"):
        broker_command._tls(argparse.Namespace(**given))
    assert broker_command._tls(argparse.Namespace(**given | {"tls_certificate": tmp_path / "c.pem"}))
