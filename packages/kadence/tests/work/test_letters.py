"""Where the only copy of a record is: retry topics and dead letter topics (H5, H9, H11, H13)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.work.worlds import Simulated

from kadence import Record
from kadence.errors import (
    BrokerError,
    ConfigError,
    DeadLetterError,
    RecordDeserializationError,
    RecordTooLargeError,
)
from kadence.protocol.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_COMMIT_OFFSET_SIZE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    OFFSET_METADATA_TOO_LARGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_SERVER_ERROR,
)
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence.protocol.offset_fetch import OffsetFetchRequest
from kadence.protocol.produce import ProduceRequest
from kadence.protocol.txn_offset_commit import TxnOffsetCommitRequest
from kadence.records import MOST_HEADERS
from kadence.work import Context, ProducerRecord, Retry
from kadence.work.letters import (
    BadRecord,
    Letter,
    bad_record,
    dead_letter,
    parted,
    replayed,
    retry_record,
    shorter,
)

OLD = 1_000
"""A time long before that of any simulation, ms since 1970."""

both = pytest.mark.parametrize("transactional_id", [None, "t"])


def member(simulated: Simulated, topic: Any = "one", **settings: Any) -> Any:
    return simulated.member(
        topic, **{"auto_commit_interval_ms": 100, "isolation_level": "read_committed", **settings}
    )


def fails(record: Record[Any, Any]) -> None:
    raise ValueError("bad")


def warnings(caplog: pytest.LogCaptureFixture, about: str = "") -> list[str]:
    found = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    return [each for each in found if about in each]


# ---------------------------------------------------------------- when it was written (H9)


@both
def test_letters_have_the_time_of_writing_and_the_records_own_in_a_header(
    simulated: Simulated, transactional_id: str | None
) -> None:
    """Retention deletes by time: a letter with the time of an old record is gone before anybody has seen it."""
    simulated.write("one", 1, timestamp=OLD)
    seen: list[tuple[str, int]] = []

    def work(record: Record[Any, Any]) -> None:
        seen.append((record.topic, record.timestamp))
        raise ValueError("bad")

    began = simulated.simulation.scheduler.wall_ms()
    member(simulated).process(
        work,
        until=lambda: simulated.read("dead"),
        retry=Retry(attempts=2, backoff=1, topic="again"),
        dead_letter="dead",
        transactional_id=transactional_id,
    )
    (again,), (dead,) = simulated.read("again"), simulated.read("dead")
    assert began <= again.timestamp <= dead.timestamp <= simulated.simulation.scheduler.wall_ms()
    assert dict(again.headers)["kadence.retry.timestamp"] == b"1000"
    assert dict(dead.headers)["kadence.error.timestamp"] == b"1000"
    assert seen == [("one", OLD), ("again", OLD)], "a handler gets the record with its own time"


def test_a_letter_that_is_sent_again_has_the_time_of_that(simulated: Simulated) -> None:
    simulated.write("one", 1)
    refused = simulated.faults.error(ProduceRequest, TOPIC_AUTHORIZATION_FAILED, topic="dead")
    call = member(simulated).processes(fails, dead_letter="dead")
    simulated.until(lambda: refused.hits > 3)
    refused.remove()
    at = simulated.simulation.scheduler.wall_ms()
    simulated.until(lambda: simulated.read("dead"))
    assert not call.is_done
    assert simulated.read("dead")[0].timestamp >= at


# ---------------------------------------------------------------- what is never taken (H9)


@both
@pytest.mark.parametrize("code", [INVALID_RECORD, INVALID_TIMESTAMP])
def test_a_dead_letter_that_its_topic_never_takes_ends_the_processing(
    simulated: Simulated, transactional_id: str | None, code: int
) -> None:
    """As where there is no dead letter topic: the record is not done. Nor is one of its key behind it."""
    simulated.write("one", 4)
    refused = simulated.faults.error(ProduceRequest, code, topic="dead")
    handled: list[int] = []

    def work(record: Record[Any, Any]) -> None:
        handled.append(record.offset)
        if record.offset == 2:
            raise ValueError("bad")

    with pytest.raises(DeadLetterError, match="one-0@2 failed with ValueError") as raised:
        member(simulated).process(work, dead_letter="dead", transactional_id=transactional_id)
    assert isinstance(raised.value.__cause__, BrokerError)
    assert raised.value.__cause__.code == code
    assert refused.hits == 1
    assert simulated.offset() == 2
    assert handled == ([0, 1, 2] if transactional_id is None else [0, 1, 2, 3])


@both
def test_a_retry_record_that_its_topic_never_takes_becomes_a_dead_letter(
    simulated: Simulated, transactional_id: str | None
) -> None:
    simulated.write("one", 1)
    simulated.faults.error(ProduceRequest, INVALID_RECORD, topic="again")
    totals = member(simulated).process(
        fails,
        until=lambda: simulated.offset() == 1,
        retry=Retry(attempts=3, topic="again"),
        dead_letter="dead",
        transactional_id=transactional_id,
    )
    assert (totals.retried, totals.dead_lettered) == (0, 1)
    assert simulated.values("dead") == [0]


@both
def test_a_letter_of_which_nothing_more_can_be_left_out_ends_the_processing(
    simulated: Simulated, transactional_id: str | None
) -> None:
    cluster = simulated.simulation.broker.core.cluster
    cluster.configure(cluster.topics["dead"], {"max.message.bytes": "100"})
    simulated.write("one", 1)
    with pytest.raises(DeadLetterError, match="cannot be written to 'dead'"):
        member(simulated).process(fails, dead_letter="dead", transactional_id=transactional_id)
    assert simulated.offset() == 0


@both
def test_what_may_pass_is_tried_again_after_waits_that_grow_with_a_warning_a_minute(
    simulated: Simulated, transactional_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    simulated.write("one", 1)
    refused = simulated.faults.error(ProduceRequest, TOPIC_AUTHORIZATION_FAILED, topic="dead")
    call = member(simulated).processes(fails, dead_letter="dead", transactional_id=transactional_id)
    simulated.until(lambda: refused.hits)
    caplog.clear()
    simulated.simulation.run(200)
    assert 8 <= refused.hits <= 16
    assert 2 <= len(warnings(caplog, "is not written to dead yet")) <= 4
    # The producer says it, too.
    assert len(warnings(caplog, "dead")) <= 8
    refused.remove()
    simulated.until(lambda: simulated.offset() == 1)
    assert not call.is_done


def test_a_letter_that_waits_to_be_sent_again_does_not_keep_it_from_ending(simulated: Simulated) -> None:
    simulated.write("one", 1)
    subject = member(simulated)
    refused = simulated.faults.error(ProduceRequest, TOPIC_AUTHORIZATION_FAILED, topic="dead")
    call = subject.processes(fails, dead_letter="dead", drain=60)
    simulated.until(lambda: refused.hits == 7)
    simulated.simulation.run(1)
    began = simulated.now
    subject.stop()
    call.result()
    assert simulated.now - began < 1
    assert simulated.offset() == 0


# ---------------------------------------------------------------- a retry topic is read from its start (H13)


def wait_in_retry_topic(simulated: Simulated, count: int) -> None:
    """So many records are in the retry topic, and nobody has tried them a second time."""
    simulated.write("one", count, keys=count)
    first = member(simulated)
    first.process(
        fails,
        until=lambda: simulated.offset() == count,
        retry=Retry(attempts=2, backoff=20, jitter=0, topic="again"),
    )
    first.close()
    assert len(simulated.read("again")) == count


@both
@pytest.mark.parametrize("policy", ["latest", "none", "by_duration:PT1S"])
def test_a_retry_topic_is_read_from_its_start_though_retention_has_passed_its_offset(
    simulated: Simulated, policy: str, transactional_id: str | None
) -> None:
    """What is left of it is nowhere else."""
    simulated.is_checked = False
    wait_in_retry_topic(simulated, 20)
    for partition in range(2):
        log = simulated.simulation.broker.core.partition("again", partition)
        log.delete_before(3)
    left = len(simulated.read("again"))
    assert 0 < left < 20
    # Committed, by an earlier member, below what retention has left.
    offsets = committed_of(simulated)
    assert all(offsets[("again", p)].offset < 3 for p in range(2) if ("again", p) in offsets)
    seen: list[int] = []
    member(simulated, auto_offset_reset=policy).process(
        lambda record: seen.append(int(record.value)),
        until=lambda: len(seen) == left,
        retry=Retry(attempts=2, topic="again"),
        transactional_id=transactional_id,
    )
    assert len(set(seen)) == left


@pytest.mark.parametrize("has_polled", [True, False])
def test_a_retry_topic_is_read_from_its_start_once_a_slow_coordinator_answers(
    simulated: Simulated, has_polled: bool
) -> None:
    """The look-up that says that nothing is committed fails for a while. The consumer may stand at the end by then."""
    simulated.write("again", 5, headers=[("kadence.retry.attempts", b"1")])
    subject = member(simulated, ["one", "again"], auto_offset_reset="latest", enable_auto_commit=False)
    if has_polled:
        assert not subject.do(lambda consumer: consumer.poll(5))
    late = simulated.faults.drop(OffsetFetchRequest)
    seen: list[int] = []
    call = subject.processes(
        lambda record: seen.append(int(record.value)), retry=Retry(attempts=2, topic="again")
    )
    simulated.simulation.run(150)
    assert late.hits
    assert not call.is_done
    late.remove()
    simulated.until(lambda: len(seen) == 5)
    assert sorted(seen) == list(range(5))


def test_headers_of_a_retry_topic_that_nobody_of_ours_wrote(simulated: Simulated) -> None:
    """Whoever may write there ends nothing and holds nothing up: what is no number of Kafka's says nothing."""
    numbers = (b"-5", b"9" * 18, b"9" * 30, b"9" * 400, b"noon")
    for number in numbers:
        names = ("attempts", "at", "timestamp", "first", "offset")
        simulated.write("again", 1, headers=[(f"kadence.retry.{name}", number) for name in names])
    seen: list[Record[Any, Any]] = []
    member(simulated, ["one", "again"]).process(
        seen.append, until=lambda: len(seen) == len(numbers), retry=Retry(attempts=2, topic="again")
    )
    now = simulated.simulation.scheduler.wall_ms()
    assert all(record.timestamp <= now or record.timestamp == int(b"9" * 18) for record in seen)


# ---------------------------------------------------------------- deserialization.errors


@both
def test_process_skips_bad_records_where_the_consumer_does(
    simulated: Simulated, transactional_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    simulated.write("one", [b"0", b"what", b"2"])
    subject = member(simulated, value_deserializer=int, deserialization_errors="skip")
    seen: list[int] = []
    subject.process(
        lambda record: seen.append(record.value),
        until=lambda: simulated.offset() == 3,
        transactional_id=transactional_id,
    )
    assert seen == [0, 2]
    (line,) = warnings(caplog, "skipped")
    assert "one-0 at offset 1" in line
    assert "what" not in line
    metrics = subject.do(lambda consumer: consumer.metrics())
    assert [value for name, value in metrics.items() if name.name == "records-skipped-total"] == [1]


@both
def test_process_writes_bad_records_where_the_consumer_does_and_no_others(
    simulated: Simulated, transactional_id: str | None
) -> None:
    simulated.write("one", [b"0", b"what", b"2"])
    subject = member(
        simulated, value_deserializer=int, deserialization_errors="dead-letter", dead_letter_topic="dead"
    )
    seen: list[int] = []

    def work(record: Record[Any, Any]) -> None:
        seen.append(record.value)
        if record.value == 2:
            raise ValueError("two")

    with pytest.raises(ValueError, match="two"):
        subject.process(work, transactional_id=transactional_id)
    assert seen == [0, 2]
    assert simulated.offset() == 2
    (letter,) = simulated.read("dead")
    headers = dict(letter.headers)
    assert (letter.value, headers["kadence.error.field"]) == (b"what", b"value")
    assert (headers["kadence.error.class"], headers["kadence.error.attempts"]) == (b"ValueError", b"1")


def test_a_dead_letter_topic_of_process_is_for_bad_records_too(simulated: Simulated) -> None:
    simulated.write("one", [b"0", b"what"])
    member(simulated, value_deserializer=int, deserialization_errors="skip").process(
        lambda record: None, until=lambda: simulated.offset() == 2, dead_letter="out"
    )
    assert [letter.value for letter in simulated.read("out")] == [b"what"]


def test_bad_records_end_process_by_default_and_the_advice_is_in_the_settings(simulated: Simulated) -> None:
    simulated.write("one", [b"0", b"what"])
    with pytest.raises(RecordDeserializationError) as raised:
        member(simulated, value_deserializer=int).process(lambda record: None)
    assert "seek" not in str(raised.value)


def test_a_handler_that_reads_a_bad_record_elsewhere_has_failed_an_attempt(simulated: Simulated) -> None:
    """Its own record is good: it is tried again, and not skipped."""
    simulated.write("one", 1)
    attempts: list[int] = []

    def work(record: Record[Any, Any], context: Context) -> None:
        attempts.append(context.attempt)
        if context.attempt == 1:
            raise RecordDeserializationError("of another consumer", record=record)

    subject = member(simulated, value_deserializer=int, deserialization_errors="skip")
    totals = subject.process(work, until=lambda: simulated.offset() == 1, retry=Retry(backoff=0))
    assert attempts == [1, 2]
    assert (totals.done, totals.failed) == (1, 1)


def test_a_dead_letter_topic_of_the_consumer_that_is_missing_is_told_at_once(simulated: Simulated) -> None:
    subject = member(
        simulated, value_deserializer=int, deserialization_errors="dead-letter", dead_letter_topic="no.such"
    )
    with pytest.raises(ConfigError, match=r"dead\.letter\.topic: the cluster has no topic 'no\.such'"):
        subject.process(lambda record: None)


# ---------------------------------------------------------------- commits that are refused: H11


@pytest.mark.parametrize("code", [TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED])
def test_transactions_whose_offsets_are_refused_are_made_again_after_waits_that_grow(
    simulated: Simulated, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    simulated.write("one", 5)
    refused = simulated.faults.error(TxnOffsetCommitRequest, code)
    call = member(simulated).processes(lambda record: None, transactional_id="t")
    simulated.until(lambda: refused.hits)
    simulated.simulation.run(200)
    assert 8 <= refused.hits <= 20
    assert 3 <= len(warnings(caplog)) <= 6
    refused.remove()
    simulated.until(lambda: simulated.offset() == 5)
    assert not call.is_done


@pytest.mark.parametrize(
    "code", [TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR]
)
def test_commits_that_are_refused_are_made_again_after_waits_that_grow(
    simulated: Simulated, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    simulated.write("one", 5)
    refused = simulated.faults.error(OffsetCommitRequest, code)
    call = member(simulated).processes(lambda record: None)
    simulated.until(lambda: refused.hits)
    simulated.simulation.run(200)
    assert 8 <= refused.hits <= 25
    assert 3 <= len(warnings(caplog)) <= 6
    refused.remove()
    simulated.until(lambda: simulated.offset() == 5)
    assert not call.is_done


@both
@pytest.mark.parametrize("code", [OFFSET_METADATA_TOO_LARGE, INVALID_COMMIT_OFFSET_SIZE])
def test_a_commit_without_metadata_that_is_too_large_all_the_same_is_no_endless_loop(
    simulated: Simulated, code: int, transactional_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    simulated.write("one", 5)
    subject = member(simulated)
    refused = simulated.faults.error(
        TxnOffsetCommitRequest if transactional_id else OffsetCommitRequest, code
    )
    call = subject.processes(lambda record: None, transactional_id=transactional_id)
    simulated.until(lambda: refused.hits)
    simulated.simulation.run(60)
    subject.stop()
    call.result()
    assert refused.hits < 30
    assert len(warnings(caplog)) < 5


# ---------------------------------------------------------------- a topic that was deleted (H10)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_transactions_go_on_beside_a_topic_that_was_deleted(simulated: Simulated, protocol: str) -> None:
    """Its offsets are part of no transaction, and what is sent for its records is not either."""
    simulated.is_checked = False
    simulated.write("one", 3)
    simulated.write("dead", 100)
    subject = member(simulated, ["one", "dead"], group_protocol=protocol)
    is_gone: list[float] = []

    async def work(record: Record[Any, Any], context: Context) -> ProducerRecord:
        if record.topic == "dead" and not is_gone:
            simulated.cluster.delete_topic("dead")
            is_gone.append(simulated.now)
        return ProducerRecord("out", b"%d" % record.offset)

    call = subject.processes(work, transactional_id="t", workers=1, order="none", max_records=20)
    simulated.until(lambda: is_gone)
    simulated.write("one", 50)
    simulated.until(lambda: simulated.offset() == 53)
    assert simulated.now - is_gone[0] < 10
    assert not any(name == "dead" for name, _ in committed_of(simulated))
    subject.stop()
    call.result()


def committed_of(simulated: Simulated) -> Any:
    """What the group has committed, by topic and partition."""
    return simulated.simulation.broker.core.coordination.coordinator.offsets.of_group("g")


# ---------------------------------------------------------------- dead letters that fail again

OWN = (("trace", b"x"), ("kadence.error.class", b"of its own"), ("trace", None))


def dead(record: Record[Any, Any], topic: str) -> Record[Any, Any]:
    """Its dead letter, as a reader of that topic gets it."""
    made = dead_letter(record, topic, ValueError("bad"), 1, 0, 0, "g", "retry")
    return Record(topic, 0, 7, OLD + 1, 0, made.key, made.value, made.headers)


def retried(record: Record[Any, Any]) -> Record[Any, Any]:
    made = retry_record(record, "retry", ValueError("bad"), 1, 0, 0)
    return Record("retry", 0, 3, OLD + 2, 0, made.key, made.value, made.headers)


@pytest.mark.parametrize("by_retry", [False, True])
def test_each_replay_undoes_one_dead_letter(by_retry: bool) -> None:
    record: Record[Any, Any] = Record("orders", 0, 5, OLD, 0, b"k", b"v", OWN)
    lives = [record]
    for topic in ("dead", "dead.dead", "elsewhere"):
        lives.append(dead(retried(lives[-1]) if by_retry else lives[-1], topic))
    for before, letter in zip(lives[-2::-1], lives[:0:-1], strict=True):
        _, added = parted(letter.headers)
        assert dict(added)["kadence.error.topic"] == before.topic.encode()
        assert dict(added)["kadence.error.offset"] == b"%d" % before.offset
        made = replayed(letter, before.topic, 0)
        assert (made.key, made.value) == (b"k", b"v")
        assert made.headers == (*before.headers, ("kadence.replay.timestamp", b"%d" % before.timestamp))


@pytest.mark.parametrize("topics", [("dead",), ("dead", "dead.dead")])
def test_a_record_that_goes_round_with_all_its_headers_does_not_grow(topics: tuple[str, ...]) -> None:
    """Programs forward dead letters as they are, and these fail again."""
    record: Record[Any, Any] = Record("orders", 0, 5, OLD, 0, b"k", b"v", OWN)
    sizes = set()
    for _ in range(20):
        for topic in topics:
            record = dead(record, topic)
        sizes.add(len(record.headers))
        record = Record("orders", 0, 5, OLD, 0, record.key, record.value, record.headers)
    assert len(sizes) == 1


def test_headers_of_a_retry_record_count_in_the_retry_topic_alone() -> None:
    """Anyone who may write to `orders` could choose the topic to which a replay sends the record."""
    strange = tuple(
        (f"kadence.retry.{name}", value)
        for name, value in (("topic", b"payments"), ("partition", b"3"), ("offset", b"1"), ("first", b"9"))
    )
    record: Record[Any, Any] = Record("orders", 0, 5, OLD, 0, b"k", b"v", strange)
    bad = bad_record(BadRecord(record, "value", ValueError("bad")), "dead", None)
    for headers in (dead(record, "dead").headers, bad.headers):
        found = dict(headers)
        assert (found["kadence.error.topic"], found["kadence.error.partition"]) == (b"orders", b"0")
        assert found["kadence.error.offset"] == b"5"
        assert found.get("kadence.error.first") != b"9"
    again = dict(retried(record).headers)
    assert (again["kadence.retry.topic"], again["kadence.retry.first"]) == (b"orders", b"0")


def test_of_too_many_headers_those_of_the_earlier_error_stay() -> None:
    """They say where the record came from, and what it lacks."""
    many = tuple((f"h{number}", b"") for number in range(MOST_HEADERS))
    record: Record[Any, Any] = Record("orders", 0, 5, OLD, 0, b"k", b"v", many)
    first = dead(record, "dead")
    second = dead(first, "dead.dead")
    assert len(first.headers) == len(second.headers) == MOST_HEADERS
    assert parted(parted(second.headers)[0])[1] == parted(first.headers)[1]


def test_what_is_left_out_of_a_letter_for_its_size_is_not_what_its_error_added() -> None:
    first: Record[Any, Any] = Record("orders", 0, 5, OLD, 0, b"k", b"v" * 200, OWN)
    letter = Letter.of(
        dead_letter(dead(first, "dead"), "dead.dead", ValueError("bad"), 1, 0, 0, "g"), "", ValueError()
    )
    parts = []
    while (found := shorter(letter, RecordTooLargeError("too large"))) is not None:
        letter = found.letter
        parts.append(found.part)
    assert parts == ["its value", "its headers", "its key"]
    assert dict(letter.headers)["kadence.error.topic"] == b"dead"
    assert parted(letter.headers)[0] == []
