"""Every command, in this process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Ran, Run, told

from kadence import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition, records
from kadence.consumer import shared_partition
from kadence.protocol.offset_fetch import OffsetFetchRequest
from kadence.work.frontier import encode
from kadence_broker import Broker
from kadence_cli.main import main
from kadence_cli.names import ranges
from kadence_testing.pytest_plugin import Brokers


def fill(broker: Broker, topic: str, count: int, **settings: object) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, b"k%d" % n, timestamp=1000 + n)


# ---------------------------------------------------------------- the program


def test_version_says_which_decoder(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert f"(checksum: {records.KERNEL}" in capsys.readouterr().out


def test_alone_it_teaches(kadence: Run) -> None:
    ran = kadence()
    assert (ran.status, ran.err) == (0, "")
    assert "kadence broker &" in ran.out
    assert "KADENCE_BOOTSTRAP_SERVERS" in ran.out
    for command in ("topics", "groups", "pipeline"):
        ran = kadence(command)
        assert (ran.status, ran.out) == (2, "")
        assert f"usage: kadence {command}" in ran.err


def test_wrong_command_lines_have_status_2(kadence: Run) -> None:
    unknown = kadence("nothing")
    assert unknown.status == 2
    assert "there is no command 'nothing'; there are broker, produce, " in unknown.err
    assert unknown.err.endswith("`kadence --help` shows what it takes.\n")
    wrong = kadence("topics", "list", "-X", "client.ids=me")
    assert wrong.status == 2
    assert "did you mean 'client.id'" in wrong.err
    assert kadence("topics", "list", "-X", "novalue").status == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("topic", "kadence: there is no command 'topic'; did you mean 'topics'?"),
        ("topics lst", "kadence topics: there is no action 'lst'; did you mean 'list'?"),
        ("topics --list", "kadence topics: there is no option '--list'; did you mean `kadence topics list`?"),
        ("topics list --jsn", "kadence topics list: there is no option '--jsn'; did you mean '--json'?"),
        ("topics list --version=1", "kadence topics list: there is no option '--version'"),
        ("topics list -z", "kadence topics list: there is no option '-z'"),
        (
            "consume t --from-beginning",
            "kadence consume: there is no option '--from-beginning'; did you mean '--from'?",
        ),
        (
            "consume --topic t",
            "kadence consume: there is no option '--topic'; give the topic alone: kadence consume TOPIC",
        ),
        (
            "groups lag --group g",
            "kadence groups lag: there is no option '--group'; give the group alone: kadence groups lag GROUP",
        ),
        ("cluster now", "kadence cluster: unexpected argument 'now'"),
        ("--versoin", "kadence: there is no option '--versoin'; did you mean '--version'?"),
    ],
)
def test_what_is_mistyped_gets_the_nearest_name(kadence: Run, line: str, said: str) -> None:
    ran = kadence(*line.split())
    program = said.partition(":")[0]
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == f"{said}\n`{program} --help` shows what it takes.\n"


@pytest.mark.parametrize("command", ["broker", "consume t", "topics list", "top"])
def test_a_key_like_no_other_gets_the_page_of_all_keys(kadence: Run, command: str) -> None:
    ran = kadence(*command.split(), "-X", "foo=bar")
    (line,) = ran.err.splitlines()
    assert ran.status == 2
    assert "'foo'" in line
    assert "docs/configuration.md lists " in line
    assert len(line) < 120


@pytest.mark.parametrize(
    "command",
    [("topics", "list"), ("groups", "lag", "g"), ("consume", "t"), ("produce", "t"), ("cluster",)],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nohost.invalid:9092"])
def test_without_a_broker_it_ends_soon_with_one_sentence(
    kadence: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], address: str
) -> None:
    ran = told(kadence, monkeypatch, "cannot connect to ", *command, "-b", address)
    assert (ran.status, ran.out) == (1, "")
    (line,) = ran.err.splitlines()
    assert line.startswith(f"kadence {command[0]}: cannot connect to ")
    assert address in line
    assert line.endswith("; name a broker with -b HOST:PORT, or start one: kadence broker")


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list"),
        ("topics", "describe", "t"),
        ("groups", "list"),
        ("groups", "lag", "g"),
        ("consume", "t"),
        ("consume", "t", "-g", "g"),
        ("produce", "t"),
        ("cluster",),
    ],
    ids=" ".join,
)
def test_a_broker_that_wants_a_login(
    kadence: Run,
    kadence_new_broker: Brokers,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    """It hangs up on whoever does not log in."""
    locked = kadence_new_broker(users={"alice": "hidden"})
    ran = told(kadence, monkeypatch, "require a login", *command, "-b", locked.bootstrap_servers)
    assert (ran.status, ran.out) == (1, "")
    (line,) = (line for line in ran.err.splitlines() if line.startswith(f"kadence {command[0]}: "))
    assert line.endswith(
        f"{locked.bootstrap_servers} closed the connection before it answered any request "
        "(does this listener require a login? Then set security.protocol to SASL_SSL or SASL_PLAINTEXT)"
    )


def test_settings_are_read_before_a_broker_is_looked_for(kadence: Run) -> None:
    for command in ("consume", "produce"):
        ran = kadence(command, "t", "-b", "127.0.0.1:1", "-X", "nonsense=1")
        assert ran.status == 2
        assert "nonsense" in ran.err


def test_a_port_in_use(kadence: Run, broker: Broker) -> None:
    port = broker.bootstrap_servers.rpartition(":")[2]
    ran = kadence("broker", "--port", port)
    (line,) = ran.err.splitlines()
    assert ran.status == 1
    assert line.startswith(f"kadence broker: cannot listen on 127.0.0.1:{port}: the port is in use")
    assert kadence("broker", "--topic", "t:0").status == 2


# ---------------------------------------------------------------- produce and consume


def test_lines_in_records_out(kadence: Run) -> None:
    ran = kadence("produce", "t", "--format", "lines", stdin=b"one\ntwo\n\xff\n\n")
    assert (ran.status, ran.out) == (0, "")
    assert "4 records delivered to t" in ran.err
    ran = kadence("consume", "t", "-e")
    assert ran.status == 0
    assert "4 records" in ran.err
    assert [row["value"] for row in ran.rows] == ["one", "two", {"base64": "/w=="}, ""]
    assert {key: ran.rows[0][key] for key in ("topic", "partition", "offset", "key")} == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "key": None,
    }
    assert kadence("consume", "t", "-n", "2", "--format", "values").out == "one\ntwo\n"


def test_consume_shows_where_it_is_on_stderr(kadence: Run) -> None:
    assert kadence("topics", "create", "a", "--partitions", "2").status == 0
    assert kadence("produce", "a", stdin=b'{"value": "v"}\n' * 3).status == 0
    ran = kadence("consume", "a", "-e", "--stats", "0.001")
    assert len(ran.rows) == 3
    assert "3 records, " in ran.err
    assert " MiB buffered" in ran.err
    assert re.search(r"a:[01]\W+\d+\W+0\W+range fetched", ran.err), ran.err
    refused = kadence("consume", "a", "--stats", "0")
    assert "--stats takes a number of seconds above 0, not 0" in refused.err


def test_an_open_transaction_is_told_by_consume_and_by_groups_lag(
    kadence: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_partition, "_OPEN_MS", 0)
    broker.create_topic("a", 1)
    fill(broker, "a", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="hung") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("a", b"1").result()
        fill(broker, "a", 3)
        for seconds in ("0.1", "1", "10"):
            settings = ("--stats", "60", "-X", "isolation.level=read_committed")
            ran = kadence("consume", "a", "--timeout", seconds, *settings)
            # On a busy machine a short time may be over before the first record has come.
            if ran.rows:
                break
        assert len(ran.rows) == 1
        said = " ".join(ran.err.split())
        assert "open transaction (last stable offset 1, high watermark 5)" in said
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            done = encode(1, [(2, 4)])
            admin.alter_consumer_group_offsets(
                "g", {TopicPartition("a", 0): OffsetAndMetadata(1, None, done)}
            )
        (row,) = kadence("groups", "lag", "g").rows
        assert (row["committed"], row["last_stable"], row["end"], row["lag"]) == (1, 1, 5, 4)
        assert row["above"] == 2, "what process() has done above the committed offset"
        producer.abort_transaction()
    (row,) = kadence("groups", "lag", "g").rows
    assert row["last_stable"] == row["end"] == 6


def test_what_consume_prints_produce_reads(kadence: Run) -> None:
    given: list[dict[str, Any]] = [
        {
            "key": "k",
            "value": "v",
            "headers": [["a", "1"], ["a", None], ["b", {"base64": "/w=="}]],
            "timestamp": 5,
        },
        {"key": {"base64": "/w=="}, "value": None},
        {"value": {"delay": 12}, "headers": {"h": "x"}, "partition": 0},
        {"value": [1, 2]},
    ]
    stdin = "\n".join(json.dumps(record) for record in given).encode()
    assert kadence("produce", "a", stdin=stdin).status == 0
    first = kadence("consume", "a", "-e")
    assert kadence("produce", "b", stdin=first.out.encode()).status == 0
    second = kadence("consume", "b", "-e")
    assert [{**row, "topic": "a"} for row in second.rows] == first.rows
    assert first.rows[0]["headers"] == given[0]["headers"]
    assert first.rows[0]["timestamp"] == 5
    assert [row["value"] for row in first.rows] == ["v", None, '{"delay":12}', "[1,2]"]
    assert [row["value"] for row in kadence("consume", "a", "-e", "--format", "json").rows] == [
        "v",
        None,
        {"delay": 12},
        [1, 2],
    ]


def test_json_documents_with_a_key(kadence: Run) -> None:
    stdin = b'{"carrier": "UA", "n": 1}\n\n{"carrier": 7, "n": 2}\n'
    ran = kadence("produce", "t", "--format", "json", "--key", "carrier", "--offsets", stdin=stdin)
    assert [(row["topic"], row["offset"]) for row in ran.rows] == [("t", 0), ("t", 1)]
    rows = kadence("consume", "t", "-e").rows
    assert [(row["key"], row["value"]) for row in rows] == [
        ("UA", '{"carrier": "UA", "n": 1}'),
        ("7", '{"carrier": 7, "n": 2}'),
    ]


@pytest.mark.parametrize(
    ("stdin", "arguments", "message"),
    [
        (b"{}\n", (), 'line 1: a record is an object with "value"'),
        (b'{"value":1}\nnot json\n', (), "line 2: this is not JSON (Expecting value at column 1)"),
        (b"hello\n", (), "it begins 'hello' (--format records takes JSON, --format lines any text)"),
        (b"[" * 200_000, (), "line 1: this JSON is nested too deeply"),
        (b'{"value":1,"vlaue":2}\n', (), "unknown field 'vlaue'"),
        (b'{"value":1,"partition":"x"}\n', (), "partition must be a whole number"),
        (b'{"value":{"base64":"!"}}\n', (), "not base64"),
        (b'{"a":1}\n', ("--format", "json", "--key", "b"), "no field 'b'"),
        (b"", ("--key", "b"), "--key needs --format json"),
        (b'{"value":1,"partition":9}\n', (), "topic 't' has 1 partition, 0; 9 is none of them"),
    ],
)
def test_bad_lines_are_named(kadence: Run, stdin: bytes, arguments: tuple[str, ...], message: str) -> None:
    ran = kadence("produce", "t", *arguments, stdin=stdin)
    assert ran.status == (1 if stdin else 2)
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_records_that_are_not_delivered_are_counted(kadence: Run, broker: Broker) -> None:
    kadence("topics", "create", "small", "--config", "max.message.bytes=1000")
    ran = kadence("produce", "small", "--format", "lines", stdin=b"x" * 5000 + b"\nshort\n")
    assert ran.status == 1
    assert "not delivered: a record for small-0" in ran.err
    assert "1 record delivered to small, 1 not" in ran.err


@pytest.mark.parametrize(
    "value",
    ['"\\ud800"', '{"a": NaN}', "-Infinity", "1e999", "[" * 200_000, '{"a":' * 100_000 + "1" + "}" * 100_000],
    ids=["half of a pair", "NaN", "infinity", "too large", "brackets", "nested"],
)
def test_values_that_cannot_be_written_as_json_again(kadence: Run, broker: Broker, value: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", value.encode(), partition=0)
        producer.send("t", b'{"a": [1]}', partition=0)
    ran = kadence("consume", "t", "-e", "--format", "json")
    assert ran.status == 0
    first, second = (json.loads(line, parse_constant=pytest.fail) for line in ran.out.splitlines())
    assert (first["value"], second["value"]) == (value, {"a": [1]})


def test_json_values_are_shown_as_they_were_written(kadence: Run, broker: Broker) -> None:
    value = (
        '{"n": 0.12345678901234567890123,\r\n\t"big": [1e2, 12345678901234567890.5], "s": "a\\n\u202e\x7f"}'
    )
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", value.encode(), key=b'"value":null', headers=[("h", b"x")], partition=0)
    (line,) = kadence("consume", "t", "-e", "--format", "json").out.splitlines()
    assert '"n": 0.12345678901234567890123,   "big": [1e2, 12345678901234567890.5], "s": ' in line
    row = json.loads(line)
    assert row["value"] == json.loads(value)
    assert (row["key"], row["headers"]) == ('"value":null', [["h", "x"]])
    assert line.isascii()
    assert line.isprintable()


def test_keys_beside_values_in_lines(kadence: Run) -> None:
    assert kadence("produce", "t", "--format", "lines", "--separator", ":", stdin=b"a:1\nb:2:3\n").status == 0
    assert [(row["key"], row["value"]) for row in kadence("consume", "t", "-e").rows] == [
        ("a", "1"),
        ("b", "2:3"),
    ]
    bad = kadence("produce", "t", "--format", "lines", "--separator", ":", stdin=b"a\n")
    assert "line 1: no ':' between a key and a value" in bad.err
    assert kadence("produce", "t", "--separator", ":").status == 2


def test_where_to_start_and_to_stop(kadence: Run, broker: Broker) -> None:
    fill(broker, "t", 10)

    def read(*arguments: str) -> list[int]:
        ran = kadence("consume", "t", *arguments)
        assert ran.status == 0, ran.err
        return [row["offset"] for row in ran.rows]

    assert read("-e", "--from", "time:1007") == [7, 8, 9]
    assert read("-e", "--from", "1970-01-01T00:00:01.007Z") == [7, 8, 9]
    assert read("-e", "--from", "time:9999") == []
    assert read("-e", "--from", "-10m") == []
    assert read("-e", "--from", "1 hour ago") == []
    assert read("-e", "--from", "-2") == [8, 9]
    assert read("-e", "--from", "6") == [6, 7, 8, 9]
    assert read("-e", "--from", "99") == []
    assert read("--to", "3") == [0, 1, 2]
    assert read("--from", "4", "--to", "time:1006") == [4, 5]
    assert read("--from", "-3", "--to", "latest") == [7, 8, 9]
    assert read("--from", "8", "--to", "2") == []
    assert read("-n", "2", "--from", "5") == [5, 6]
    assert read("--from", "latest", "--timeout", "0.2") == []
    presumed = kadence("consume", "t", "-e", "--from", "1970-01-03")
    assert "--from: 1970-01-03 00:00:00" in presumed.err
    assert "no zone was given" in presumed.err


def test_some_partitions(kadence: Run) -> None:
    kadence("topics", "create", "t", "--partitions", "3")
    kadence("produce", "t", stdin=b"".join(b'{"value": "v", "partition": %d}\n' % n for n in (0, 1, 1, 2)))
    assert sorted(row["partition"] for row in kadence("consume", "t:1,2", "-e").rows) == [1, 1, 2]
    assert "has partitions 0 to 2, not 7" in kadence("consume", "t:7", "-e").err
    assert kadence("consume", "t:a").status == 2
    kadence("topics", "create", "one", "--partitions", "1")
    assert "topic 'one' has only partition 0, not 7" in kadence("consume", "one:7", "-e").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--from", "noon"), "'noon' is not a place: give earliest, latest, an offset"),
        (("--from", "1700000000000"), "write time:1700000000000"),
        (("--from", "5", "-g", "g"), "kadence groups reset"),
        (("--to", "5", "-g", "g"), "--to does not work with --group"),
        (("--to", "5", "-e"), "give one of them"),
        (("-n", "-3"), "--max-records must be at least 1, not -3"),
        (("--timeout", "0"), "--timeout takes a number of seconds above 0, not 0"),
    ],
)
def test_options_of_consume_that_are_wrong(kadence: Run, arguments: tuple[str, ...], message: str) -> None:
    ran = kadence("consume", "t", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err


def test_a_topic_that_does_not_exist(kadence: Run) -> None:
    missing = kadence("consume", "missing", "-e")
    assert missing.status == 1
    assert "there is no topic 'missing'; `kadence topics list` shows all" in missing.err
    kadence("topics", "create", "orders")
    for words in (("consume", "order", "-e"), ("groups", "reset", "g", "--topic", "order", "--to", "latest")):
        mistyped = kadence(*words)
        assert mistyped.status == 1
        assert (
            "there is no topic 'order'; did you mean 'orders'? `kadence topics list` shows all"
            in mistyped.err
        )


def test_a_group_goes_on_where_it_was(kadence: Run, broker: Broker) -> None:
    fill(broker, "t", 10)
    assert [row["offset"] for row in kadence("consume", "t", "-g", "g", "-n", "4").rows] == [0, 1, 2, 3]
    assert [row["offset"] for row in kadence("consume", "t", "-g", "g", "-e").rows] == [4, 5, 6, 7, 8, 9]
    assert kadence("consume", "t", "-g", "g", "-e").rows == []


def test_from_counts_more_than_a_file_of_settings(kadence: Run, tmp_path: Path) -> None:
    """A group without offsets begins where the command line says."""
    file = tmp_path / "client.properties"
    file.write_text("auto.offset.reset=latest\n")
    kadence("produce", "t", "--format", "lines", stdin=b"1\n2\n")
    given, not_given = (
        kadence("--config", str(file), "consume", "t", "-g", group, "-e", *start).rows
        for group, start in (("a", ("--from", "earliest")), ("b", ()))
    )
    assert ([row["value"] for row in given], not_given) == (["1", "2"], [])


# ---------------------------------------------------------------- topics


def test_topics(kadence: Run, broker: Broker) -> None:
    assert kadence("topics", "create", "a", "b", "--partitions", "2").rows == [
        {"topic": "a", "partitions": 2},
        {"topic": "b", "partitions": 2},
    ]
    assert [row["topic"] for row in kadence("topics", "list").rows] == ["a", "b"]
    assert kadence("topics", "grow", "a", "--partitions", "3").rows == [{"topic": "a", "partitions": 3}]
    fill(broker, "b", 5)
    described = kadence("topics", "describe", "b").rows
    assert [row["partition"] for row in described] == [0, 1]
    assert sum(row["next_offset"] - row["first_offset"] for row in described) == 5
    again = kadence("topics", "create", "a", "c/d")
    assert again.status == 1
    assert "TOPIC_ALREADY_EXISTS" in again.err
    assert "kadence topics: INVALID_TOPIC_EXCEPTION" in again.err
    assert kadence("topics", "create", "x", "--partitions", "0").status == 2
    assert kadence("topics", "delete", "a").rows == [{"topic": "a"}]
    assert kadence("topics", "delete", "a").status == 1


def test_a_place_beyond_the_end_is_the_present_end(kadence: Run, broker: Broker) -> None:
    fill(broker, "t", 3)
    for place in ("1000", "time:9999999999999"):
        ran = kadence("consume", "t", "--to", place)
        assert (ran.status, len(ran.rows)) == (0, 3)


def test_topics_by_pattern(kadence: Run) -> None:
    kadence("topics", "create", "orders", "orders-old", "flights")
    assert [row["topic"] for row in kadence("topics", "list", "orders*").rows] == ["orders", "orders-old"]
    assert [row["topic"] for row in kadence("topics", "list", "*s", "f*").rows] == ["flights", "orders"]
    assert kadence("topics", "list", "x*").rows == []
    assert [row["topic"] for row in kadence("topics", "describe", "o*", "flights").rows] == [
        "orders",
        "orders-old",
        "flights",
    ]
    none = kadence("topics", "describe", "x*")
    assert (none.status, "no topic matches 'x*'" in none.err) == (1, True)


def test_settings_of_topics(kadence: Run) -> None:
    kadence("topics", "create", "t", "--config", "retention.ms=5000")
    assert kadence("topics", "config", "t").rows == [
        {"topic": "t", "key": "retention.ms", "value": "5000", "default": False}
    ]
    assert len(kadence("topics", "config", "t", "--all").rows) > 5
    wrong = kadence("topics", "config", "t", "--set", "retention.ms=7000", "--set", "nonsense=1")
    assert (wrong.status, wrong.out) == (1, "")
    changed = kadence("topics", "config", "t", "--set", "max.message.bytes=9000", "--unset", "retention.ms")
    assert [(row["key"], row["value"]) for row in changed.rows] == [("max.message.bytes", "9000")], (
        changed.err
    )
    assert kadence("topics", "config", "t", "--set", "novalue").status == 2


def test_records_are_deleted_below_a_place(kadence: Run, broker: Broker) -> None:
    fill(broker, "t", 10)
    dry = kadence("topics", "delete-records", "t", "--before", "time:1004", "--dry-run")
    assert [(row["deleted_below"], row["first_offset"]) for row in dry.rows] == [(4, 0)]
    assert "nothing was deleted" in dry.err
    beyond = kadence("topics", "delete-records", "t", "--before", "11")
    assert (beyond.status, beyond.out) == (1, "")
    assert "t:0 has offsets 0 to 10; 11 is outside" in beyond.err
    done = kadence("topics", "delete-records", "t:0", "--before", "-3")
    assert [(row["deleted_below"], row["first_offset"]) for row in done.rows] == [(7, 7)]
    assert [row["offset"] for row in kadence("consume", "t", "-e").rows] == [7, 8, 9]


def test_the_cluster(kadence: Run, broker: Broker) -> None:
    (row,) = kadence("cluster").rows
    assert (row["address"], row["controller"]) == (broker.bootstrap_servers, True)


# ---------------------------------------------------------------- groups


def test_what_is_shown_of_partitions_can_be_given(kadence: Run) -> None:
    kadence("topics", "create", "t", "--partitions", "5")

    def given(text: str) -> Ran:
        return kadence("groups", "reset", "g", "--topic", text, "--to", "earliest", "--dry-run")

    assert [row["partition"] for row in given("t:0-2,4").rows] == [0, 1, 2, 4]
    assert [row["partition"] for row in given(ranges(TopicPartition("t", n) for n in (4, 0, 1))).rows] == [
        0,
        1,
        4,
    ]
    twice = kadence(
        "groups", "reset", "g", "--topic", "t:1,0", "--topic", "t:1-2", "--to", "earliest", "--dry-run"
    )
    assert sorted(row["partition"] for row in twice.rows) == [0, 1, 2]
    assert "topic 't' has partitions 0 to 4, not 7" in given("t:3-7").err
    assert "1-0 in 't:1-0' is not a range" in given("t:1-0").err
    assert "TOPIC:0-3,7 for some" in given("t:-1").err


def test_groups(kadence: Run, broker: Broker) -> None:
    kadence("topics", "create", "t", "--partitions", "2")
    fill(broker, "t", 20)
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g", client_id="me") as consumer:
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(0.1)
        (described,) = kadence("groups", "describe", "g").rows
        assert (described["client"], described["partitions"]) == ("me", ["t:0", "t:1"])
        assert {row["member"] for row in kadence("groups", "lag", "g").rows} == {"me"}
        refused = kadence("groups", "reset", "g", "--topic", "t", "--to", "earliest")
        assert refused.status == 1
        assert "live members" in refused.err
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ends = {tp: at.offset for tp, at in admin.list_offsets(dict.fromkeys(TPS, "latest")).items() if at}
        admin.alter_consumer_group_offsets("g", {TPS[0]: 1, TPS[1]: 0})
    assert kadence("groups", "list").rows[0]["group"] == "g"
    lags = {row["partition"]: row["lag"] for row in kadence("groups", "lag", "g").rows}
    assert lags == {0: ends[TPS[0]] - 1, 1: ends[TPS[1]]}
    dry = kadence("groups", "reset", "g", "--topic", "t", "--to", "latest", "--dry-run")
    assert [(row["from"], row["to"]) for row in dry.rows] == [(1, ends[TPS[0]]), (0, ends[TPS[1]])]
    assert {row["lag"] for row in kadence("groups", "lag", "g").rows} != {0}
    assert kadence("groups", "reset", "g", "--topic", "t", "--to", "latest").status == 0
    assert {row["lag"] for row in kadence("groups", "lag", "g").rows} == {0}
    assert [row["to"] for row in kadence("groups", "reset", "g", "--topic", "t:1", "--to", "3").rows] == [3]
    assert kadence("groups", "reset", "g", "--topic", "t", "--to", "earliest").rows[0]["to"] == 0
    by_time = kadence("groups", "reset", "g", "--topic", "t", "--to", "time:9999").rows
    assert [row["to"] for row in by_time] == [ends[TPS[0]], ends[TPS[1]]]
    assert "is outside" in kadence("groups", "reset", "g", "--topic", "t", "--to", "99").err
    assert "is not a place" in kadence("groups", "reset", "g", "--topic", "t", "--to", "noon").err
    assert "TOPIC:0-3,7 for some" in kadence("groups", "reset", "g", "--topic", "t:a", "--to", "latest").err
    assert [row["to"] for row in kadence("groups", "reset", "g", "--topic", "t", "--to", "-1").rows] == [
        max(0, ends[tp] - 1) for tp in TPS
    ]
    assert [row["group"] for row in kadence("groups", "list", "g*", "--state", "empty").rows] == ["g"]
    assert kadence("groups", "list", "--state", "stable").rows == kadence("groups", "list", "x*").rows == []
    unknown = kadence("groups", "list", "--state", "idle")
    assert unknown.status == 2
    assert "'idle' is not a state of a group: give one of empty, stable, preparingrebalance" in unknown.err
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_consumer_group_offsets("h", {TPS[1]: ends[TPS[1]]})
    with broker.faults.observe(OffsetFetchRequest) as asked:
        of_all = kadence("groups", "lag", "*").rows
    assert [(row["group"], row["partition"]) for row in of_all] == [("g", 0), ("g", 1), ("h", 1)]
    assert of_all[:2] == kadence("groups", "lag", "g").rows
    assert of_all[2]["lag"] == 0
    assert len(asked) == 1
    assert kadence("groups", "delete", "h").status == 0
    for words, said in (
        (("groups", "lag", "g", "h"), "there is no group 'h'; `kadence groups list` shows all\n"),
        (("groups", "delete", "gg"), "there is no group 'gg'; did you mean 'g'? `kadence groups list`"),
        (("groups", "forget", "gg", "--topic", "t"), "there is no group 'gg'; did you mean 'g'? `kadence"),
        (("groups", "describe", "g*", "h"), "there is no group 'h'; `kadence groups list`"),
        (("topics", "describe", "tt"), "there is no topic 'tt'; did you mean 't'? `kadence topics list`"),
        (("topics", "delete", "x"), "there is no topic 'x'; `kadence topics list` shows all"),
    ):
        refused = kadence(*words)
        assert refused.status == 1
        assert said in refused.err
    forgotten = kadence("groups", "forget", "g", "--topic", "t:1").rows
    assert [(row["partition"], row["deleted"]) for row in forgotten] == [(1, max(0, ends[TPS[1]] - 1))]
    assert [row["partition"] for row in kadence("groups", "lag", "g").rows] == [0]
    again = kadence("groups", "forget", "g", "--topic", "t:1")
    assert (again.status, again.out, again.err) == (0, "", "group 'g' has committed nothing there\n")
    (empty,) = kadence("groups", "describe", "g").rows
    assert (empty["state"], empty["member"]) == ("Empty", None)
    deleted = kadence("groups", "delete", "g", "--wide")
    assert (deleted.out, deleted.err) == ("", "g deleted\n")
    assert kadence("groups", "describe", "g").status == 1


TPS = [TopicPartition("t", 0), TopicPartition("t", 1)]
