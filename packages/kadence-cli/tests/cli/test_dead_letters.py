"""``kadence dead-letters``: letters of `Consumer.process`, and of a consumer that cannot read a value."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Run
from tests.patience import until

from kadence import Consumer, Producer, Record, Retry, TopicPartition
from kadence.protocol.error_codes import TOPIC_AUTHORIZATION_FAILED
from kadence.protocol.produce import ProduceRequest
from kadence_broker import Broker

PROCESSED = 4


@pytest.fixture
def letters(broker: Broker, kadence: Run) -> str:
    """A topic with letters: of the values 0, 2, 4 and 6 by `process`, of ``six`` by a deserialiser."""
    for topic, partitions in (("orders", "3"), ("amounts", "1"), ("dead", "1"), ("elsewhere", "1")):
        assert kadence("topics", "create", topic, "--partitions", partitions).status == 0
    servers = broker.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        for n in range(8):
            producer.send(
                "orders", b"%d" % n, b"key %d" % n, partition=n % 3, headers=[("trace", b"t%d" % n)]
            )
        for value in (b"5", b"six"):
            producer.send("amounts", value)

    def work(record: Record) -> None:
        number = int(record.value or b"")
        if number % 2 == 0:
            raise (TimeoutError if number else ValueError)(f"not {number}\x1b[31m")

    with Consumer(bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest") as consumer:
        consumer.assign({TopicPartition("orders", p): (0, 3 if p < 2 else 2) for p in range(3)})
        consumer.process(work, dead_letter="dead", retry=Retry(attempts=2, backoff=0), workers=1)
    with Consumer(
        bootstrap_servers=servers,
        value_deserializer=int,
        deserialization_errors="dead-letter",
        dead_letter_topic="dead",
    ) as reader:
        reader.assign({TopicPartition("amounts", 0): (0, 2)})
        until(lambda: reader.poll(0.1) is not None and reader.finished(), every=0)
    return "dead"


def test_list_counts_by_origin_and_error(kadence: Run, letters: str) -> None:
    ran = kadence("dead-letters", "list", letters)
    assert ran.status == 0, ran.err
    assert [(row["origin"], row["partition"], row["error"], row["records"]) for row in ran.rows] == [
        ("amounts", 0, "ValueError", 1),
        ("orders", 0, "TimeoutError", 1),
        ("orders", 0, "ValueError", 1),
        ("orders", 1, "TimeoutError", 1),
        ("orders", 2, "TimeoutError", 1),
    ]
    assert all(row["oldest"] <= row["newest"] and row["age"].count("s") == 2 for row in ran.rows)
    few = kadence("dead-letters", "list", letters, "--origin", "orders", "--error", "ValueError")
    assert [row["records"] for row in few.rows] == [1]
    table = kadence("dead-letters", "list", letters, "--wide")
    assert "TimeoutError" in table.out
    assert kadence("dead-letters", "list", "orders:0").rows[0]["origin"] is None


def test_show_tells_all_of_one(kadence: Run, letters: str) -> None:
    [row] = kadence("dead-letters", "show", letters, "--error", "ValueError", "--origin", "orders").rows
    assert (row["key"], row["value"], row["headers"]) == ("key 0", "0", [["trace", "t0"]])
    origin = row["origin"]
    assert (origin["topic"], origin["partition"], origin["offset"]) == ("orders", 0, 0)
    assert origin["timestamp"] <= row["timestamp"]
    assert (row["attempts"], row["group"], row["field"]) == (2, "billing", None)
    assert row["first"] <= row["last"]
    [other] = kadence("dead-letters", "show", letters, "--origin", "amounts").rows
    assert (other["value"], other["field"], other["attempts"]) == ("six", "value", None)
    offset = str(row["offset"])
    [same] = kadence("dead-letters", "show", letters, "--offset", offset).rows
    assert same == row
    text = kadence("dead-letters", "show", letters, "--offset", offset, "--wide").out
    assert text.startswith(f"dead-0@{offset}  from orders-0@0\n")
    assert "  value    0\n" in text
    assert "  header   trace: t0\n" in text
    assert "\x1b" not in text
    assert len(kadence("dead-letters", "show", letters, "-n", "2").rows) == 2
    assert kadence("dead-letters", "show", letters, "-n", "0").status == 2


def test_replay_sends_them_back_without_what_the_error_added(
    kadence: Run, letters: str, broker: Broker
) -> None:
    [row] = kadence("dead-letters", "show", letters, "--error", "TimeoutError", "--origin", "orders").rows[:1]
    dry = kadence("dead-letters", "replay", letters, "--offset", str(row["offset"]), "--dry-run")
    assert "1 dead letter would be sent; nothing was (--dry-run)" in dry.err
    ran = kadence("dead-letters", "replay", letters, "--error", "TimeoutError")
    assert (ran.status, ran.err) == (0, "3 dead letters sent\n")
    assert {row["to"] for row in ran.rows} == {"orders"}
    for row in ran.rows:
        assert row["to_partition"] == int(original(broker, letters, row["offset"])) % 3
        place = TopicPartition("orders", row["to_partition"])
        [record] = read(broker, place, row["to_offset"])
        (trace, (name, time)) = record.headers
        assert trace == ("trace", b"t" + (record.value or b""))
        assert name == "kadence.replay.timestamp"
        # The record lives as long as its topic keeps what is new, and says how old it is.
        assert int(time or b"") < record.timestamp
        assert record.key == b"key " + (record.value or b"")


def test_replay_elsewhere_and_all(kadence: Run, letters: str, broker: Broker) -> None:
    ran = kadence("dead-letters", "replay", letters, "--all", "--to", "elsewhere")
    assert ran.status == 0, ran.err
    values = [record.value for record in read(broker, TopicPartition("elsewhere", 0), 0, PROCESSED + 1)]
    assert sorted(values, key=str) == [b"0", b"2", b"4", b"6", b"six"]


def test_a_letter_without_its_value_is_told_and_not_replayed(
    kadence: Run, letters: str, broker: Broker
) -> None:
    """It was too large for the dead letter topic. What a replay sent would be another record."""
    headers = {
        "topic": b"orders",
        "partition": b"1",
        "offset": b"7",
        "class": b"OSError",
        "value.bytes": b"5000000",
    }
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(
            letters,
            None,
            b"key 1",
            headers=[(f"kadence.error.{name}", value) for name, value in headers.items()],
        )
    rows = kadence("dead-letters", "list", letters).rows
    assert [row["value_bytes"] for row in rows if row["error"] == "OSError"] == [5_000_000]
    assert {row["value_bytes"] for row in rows if row["error"] != "OSError"} == {None}
    [row] = kadence("dead-letters", "show", letters, "--error", "OSError").rows
    assert (row["key"], row["value"], row["value_bytes"], row["headers"]) == ("key 1", None, 5_000_000, [])
    text = kadence("dead-letters", "show", letters, "--error", "OSError", "--wide").out
    assert "  missing  value of 5000000 bytes, too large for this topic\n" in text
    ran = kadence("dead-letters", "replay", letters, "--all", "--to", "elsewhere")
    assert ran.status == 1
    assert (
        f"dead-0@{row['offset']} is not sent: it has no value (5000000 bytes), which was too large for the dead letter "
        "topic; the record itself was orders-1@7, and may still be there\n"
    ) in ran.err
    assert ran.err.endswith("5 dead letters sent, 1 not\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "say which dead letters"),
        (("--all", "--offset", "1"), "leave out"),
        (("--all", "--to", "nowhere"), "there is no topic 'nowhere'"),
    ],
)
def test_replay_wants_to_know_which_and_where(
    kadence: Run, letters: str, options: tuple[str, ...], said: str
) -> None:
    ran = kadence("dead-letters", "replay", letters, *options)
    assert ran.status in (1, 2)
    assert said in ran.err
    assert ran.out == ""


def test_what_says_no_origin_needs_a_topic(kadence: Run, letters: str) -> None:
    ran = kadence("dead-letters", "replay", "amounts", "--all")
    assert ran.status == 1
    assert "name a topic with --to" in ran.err


def test_a_letter_that_cannot_go_anywhere_holds_up_no_others(
    kadence: Run, letters: str, broker: Broker
) -> None:
    """Whoever may write to the topic chooses what its headers say."""
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for origin in (None, b"gone", b"no/topic", b"a:b", b"\xff", b""):
            headers = [("kadence.error.topic", origin), ("kadence.error.partition", b"0")]
            producer.send(letters, b"lost", headers=[] if origin is None else headers).result()
        producer.send(
            letters, b"last", headers=[("kadence.error.topic", b"orders"), ("kadence.error.partition", b"99")]
        )
    for more in (("--dry-run",), ()):
        ran = kadence("dead-letters", "replay", letters, "--all", *more)
        assert ran.status == 1
        assert len(ran.rows) == PROCESSED + 2
        assert ran.err.count("is not sent: ") == 6
        assert "dead-0@5 is not sent: it does not say where it came from" in ran.err
        assert "dead-0@6 is not sent: there is no topic 'gone'" in ran.err
        assert "name another topic with --to" in ran.err
    assert ran.err.endswith("6 dead letters sent, 6 not\n")


def test_a_dead_letter_that_fails_again_goes_back_step_by_step(
    kadence: Run, letters: str, broker: Broker
) -> None:
    """Someone repairs dead letters, and has dead letters, too."""
    assert kadence("topics", "create", "dead.dead").status == 0
    before = read(broker, TopicPartition(letters, 0), 0, PROCESSED)
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="repairs", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign({TopicPartition(letters, 0): (0, PROCESSED)})
        consumer.process(unrepairable, dead_letter="dead.dead", retry=Retry(attempts=1), workers=1)
    shown = kadence("dead-letters", "show", "dead.dead").rows
    assert {(row["origin"]["topic"], row["error"], row["group"]) for row in shown} == {
        (letters, "LookupError", "repairs")
    }
    assert all(["kadence.error.topic", "orders"] in row["headers"] for row in shown)
    ran = kadence("dead-letters", "replay", "dead.dead", "--all")
    assert (ran.status, {row["to"] for row in ran.rows}) == (0, {letters})
    again = read(broker, TopicPartition(letters, 0), PROCESSED + 1, PROCESSED)
    by_key = {record.key: record for record in before}
    for record in again:
        *headers, (name, _) = record.headers
        was = by_key[record.key]
        assert (name, record.value, headers) == ("kadence.replay.timestamp", was.value, list(was.headers))
    # And the whole way back.
    ran = kadence("dead-letters", "replay", letters, "--offset", str(PROCESSED + 1))
    assert {row["to"] for row in ran.rows} == {"orders"}
    [row] = ran.rows
    [record] = read(broker, TopicPartition("orders", row["to_partition"]), row["to_offset"])
    assert [name for name, _ in record.headers] == ["trace", "kadence.replay.timestamp"]


def unrepairable(record: Record) -> None:
    raise LookupError("no repair")


def test_a_record_that_lost_its_value_in_an_earlier_dead_letter_topic_is_sent_there_alone(
    kadence: Run, letters: str, broker: Broker
) -> None:
    """Elsewhere its null value would be a tombstone."""
    assert kadence("topics", "create", "dead.dead").status == 0
    earlier = {
        "topic": b"orders",
        "partition": b"1",
        "offset": b"7",
        "class": b"OSError",
        "value.bytes": b"9",
    }
    later = {"topic": letters.encode(), "partition": b"0", "offset": b"3", "class": b"LookupError"}
    headers = [(f"kadence.error.{name}", value) for each in (earlier, later) for name, value in each.items()]
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("dead.dead", None, b"key", headers=headers)
    ran = kadence("dead-letters", "replay", "dead.dead", "--all", "--to", "orders")
    assert (ran.status, ran.rows) == (1, [])
    assert (
        "is not sent: a part of it was left out when it was written to an earlier dead letter topic"
        in ran.err
    )
    ran = kadence("dead-letters", "replay", "dead.dead", "--all")
    assert {row["to"] for row in ran.rows} == {letters}


def test_dead_letters_of_a_pipeline_are_read_too(kadence: Run, letters: str, broker: Broker) -> None:
    said = {
        "topic": "orders",
        "partition": "2",
        "offset": "0",
        "timestamp": "5",
        "reason": "not JSON",
        "pipeline": "p",
    }
    ours = [(f"kadence.{name}", text.encode()) for name, text in said.items()]
    headers = [("trace", b"x"), ("kadence.error.topic", b"elsewhere"), *ours, ("kadence.run_id", b"r")]
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(letters, b"what", headers=headers)
    [row] = kadence("dead-letters", "show", letters, "--offset", str(PROCESSED + 1)).rows
    assert row["origin"] == {"topic": "orders", "partition": 2, "offset": 0, "timestamp": 5}
    assert (row["error"], row["message"]) == (None, "not JSON")
    assert row["headers"] == [["trace", "x"], ["kadence.error.topic", "elsewhere"]]
    [row] = kadence("dead-letters", "replay", letters, "--offset", str(PROCESSED + 1)).rows
    [record] = read(broker, TopicPartition("orders", 2), row["to_offset"])
    assert record.headers == (*headers[:2], ("kadence.replay.timestamp", b"5"))


def test_what_is_refused_is_told_with_its_place(kadence: Run, letters: str, broker: Broker) -> None:
    with broker.faults.error(ProduceRequest, TOPIC_AUTHORIZATION_FAILED, topic="elsewhere"):
        ran = kadence("dead-letters", "replay", letters, "--offset", "0", "--to", "elsewhere")
    assert ran.status == 1
    assert "dead-0@0: " in ran.err
    assert "0 dead letters sent, 1 not" in ran.err


def test_numbers_that_are_none_of_kafkas(kadence: Run, broker: Broker) -> None:
    """Whoever may write to the topic chooses the headers."""
    late = "1973-03-03T09:46:39+00:00"
    broker.create_topic("odd")
    numbers = ("-5", "99999999999", "17000000000000000", "9" * 30, "9" * 400)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in numbers:
            told = ("partition", "offset", "timestamp", "attempts", "first", "last", "value.bytes")
            headers = [(f"kadence.error.{name}", number.encode()) for name in told]
            producer.send("odd", b"v", headers=[("kadence.error.topic", b"t"), *headers])
    shown = kadence("dead-letters", "show", "odd")
    assert (shown.status, len(shown.rows)) == (0, len(numbers))
    assert [row["origin"] for row in shown.rows] == [None] * len(numbers)
    assert [row["last"] for row in shown.rows] == [None, late, "17000000000000000 ms", None, None]
    listed = kadence("dead-letters", "list", "odd")
    assert listed.status == 0, listed.err


def test_drop_deletes_the_oldest(kadence: Run, letters: str) -> None:
    dry = kadence("dead-letters", "drop", letters, "--before", "2", "--dry-run")
    assert dry.rows == [{"topic": "dead", "partition": 0, "dropped": 2, "first_offset": 2, "left": 3}]
    assert len(kadence("dead-letters", "show", letters).rows) == PROCESSED + 1
    assert kadence("dead-letters", "drop", letters, "--before", "2").status == 0
    assert [row["offset"] for row in kadence("dead-letters", "show", letters).rows] == [2, 3, 4]
    assert "is outside" in kadence("dead-letters", "drop", letters, "--before", "99").err


def test_settings_of_either_client_are_taken_and_others_are_not(kadence: Run, letters: str) -> None:
    taken = ("-X", "fetch.max.wait.ms=50", "-X", "linger.ms=1")
    ran = kadence("dead-letters", "replay", letters, "--offset", "0", "--dry-run", *taken)
    assert ran.status == 0, ran.err
    wrong = kadence("dead-letters", "list", letters, "-X", "lingr.ms=1")
    assert wrong.status == 2
    assert "lingr.ms" in wrong.err


def read(broker: Broker, partition: TopicPartition, start: int, count: int = 1) -> list[Record]:
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign({partition: (start, start + count)})
        return list(consumer)


def original(broker: Broker, topic: str, offset: int) -> bytes:
    [record] = read(broker, TopicPartition(topic, 0), offset)
    return record.value or b""
