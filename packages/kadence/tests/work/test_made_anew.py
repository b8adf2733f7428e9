"""A topic is made anew while `process` reads it: what was done of the old one says nothing of the new one (C19)."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import pytest
from tests.work.worlds import ONE, Simulated, become

from kadence import Record
from kadence.errors import KafkaError
from kadence.protocol import error_codes
from kadence.protocol.txn_offset_commit import TxnOffsetCommitRequest
from kadence.work import ProducerRecord

PROTOCOLS: Final = ("classic", "consumer")
AWAY_S: Final = (0.0, 0.5)
"""How long the topic is away."""


@pytest.fixture
def simulated(caplog: pytest.LogCaptureFixture) -> Any:
    """Records of a topic that is deleted are not missed, and nobody speaks of an election."""
    with Simulated() as world:
        world.is_checked = False
        yield world
    assert "unclean leader election" not in caplog.text


def make_anew(world: Simulated, away_s: float, *, partitions: int = 1) -> None:
    world.cluster.delete_topic("one")
    for partition in [p for p in world.simulation.history.acknowledged if p.topic == "one"]:
        # Its offsets are those of other records from now on.
        del world.simulation.history.acknowledged[partition]
    world.simulation.run(away_s)
    world.cluster.create_topic("one", partitions)


def names(first: int, count: int, what: str) -> list[bytes]:
    return [b"%s %d" % (what.encode(), n) for n in range(first, first + count)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("away_s", AWAY_S)
def test_what_is_done_of_a_deleted_topic_is_not_committed_for_the_new_one(
    simulated: Simulated, protocol: str, away_s: float
) -> None:
    """It is deleted with handlers at work. Then the member stops, records come, and it starts again."""
    simulated.write("one", names(0, 400, "old"), keys=400)
    done: list[bytes] = []
    is_anew: list[bool] = []
    running: list[bytes] = []

    async def work(record: Record[Any, Any]) -> None:
        if record.value.startswith(b"old") and record.offset >= 50:
            running.append(record.value)
            await become(lambda: is_anew)
        done.append(record.value)

    settings: dict[str, Any] = {"group_protocol": protocol, "auto_commit_interval_ms": 100}
    first = simulated.member("one", **settings)
    call = first.processes(work, workers=8)
    simulated.until(lambda: len(running) == 8)
    make_anew(simulated, away_s)
    simulated.simulation.run(10)
    is_anew.append(True)
    simulated.simulation.run(2)
    first.stop()
    call.result()
    first.close()
    simulated.write("one", names(0, 50, "new"))
    second = simulated.member("one", **settings)
    second.process(work, until=lambda: simulated.offset() == 50)
    assert [value for value in done if value.startswith(b"new")] == names(0, 50, "new")


@pytest.mark.parametrize(
    ("protocol", "away_s"),
    [
        ("classic", 0.0),
        ("consumer", 0.5),
        pytest.param("classic", 0.5, marks=pytest.mark.heavy),
        pytest.param("consumer", 0.0, marks=pytest.mark.heavy),
    ],
)
@pytest.mark.parametrize(("old", "new"), [(400, 300), (400, 100), (100, 400)])
@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize("is_idle", [False, True])
def test_each_record_of_the_new_topic_is_handled_and_its_output_is_there_once(
    simulated: Simulated,
    protocol: str,
    away_s: float,
    old: int,
    new: int,
    is_transactional: bool,
    is_idle: bool,
) -> None:
    """Idle: the member stands at committed offsets, since it has been started again. Else it is at work."""
    simulated.write("one", names(0, old, "old"), keys=7)
    settings: dict[str, Any] = {"group_protocol": protocol, "auto_commit_interval_ms": 100}
    if is_transactional:
        settings["isolation_level"] = "read_committed"

    async def copy(record: Record[Any, Any]) -> ProducerRecord:
        return ProducerRecord("out", record.value)

    def begin() -> tuple[Any, Any]:
        member = simulated.member("one", **settings)
        name = "w" if is_transactional else None
        return member, member.processes(copy, workers=4, transactional_id=name)

    member, call = begin()
    simulated.until(lambda: simulated.offset() >= (old if is_idle else 1))
    if is_idle:
        member.stop()
        call.result()
        member.close()
        member, call = begin()
        simulated.simulation.run(5)
    make_anew(simulated, away_s)
    simulated.write("one", names(0, new, "new"), keys=7)

    def outputs() -> list[bytes]:
        return [record.value for record in simulated.read("out") if record.value.startswith(b"new")]

    simulated.until(lambda: call.is_done or len(set(outputs())) == new)
    simulated.simulation.run(10)
    member.stop()
    call.result()
    assert sorted(outputs()) == sorted(names(0, new, "new"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("away_s", [0.5, 1.5])
@pytest.mark.parametrize("commit_ms", [1_000, 2_000, 4_000])
def test_no_transaction_commits_what_was_read_of_a_topic_that_is_gone(
    simulated: Simulated, protocol: str, away_s: float, commit_ms: int
) -> None:
    """All of it is handled and waits for its transaction. Before Kafka 4.4, offsets there have no topic id."""
    simulated.write("one", names(0, 60, "old"))
    done: list[bytes] = []

    async def copy(record: Record[Any, Any]) -> ProducerRecord:
        done.append(record.value)
        return ProducerRecord("out", record.value)

    member = simulated.member(
        "one", group_protocol=protocol, auto_commit_interval_ms=commit_ms, isolation_level="read_committed"
    )
    call = member.processes(copy, workers=4, transactional_id="w")
    simulated.until(lambda: len(done) == 60)
    assert not simulated.committed()
    make_anew(simulated, away_s)
    simulated.write("one", names(0, 90, "new"))

    def outputs() -> list[bytes]:
        return [record.value for record in simulated.read("out") if record.value.startswith(b"new")]

    simulated.simulation.run(30)
    member.stop()
    call.result()
    assert sorted(outputs()) == sorted(names(0, 90, "new"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_done_of_the_new_topic_is_committed_though_offsets_of_the_old_one_were_refused(
    simulated: Simulated, protocol: str
) -> None:
    """The member stops soon after: what a broker did not know then is another topic of the name."""
    simulated.write("one", names(0, 20, "old"))
    done: list[bytes] = []

    async def note(record: Record[Any, Any]) -> None:
        done.append(record.value)

    settings: dict[str, Any] = {
        "group_protocol": protocol,
        "auto_commit_interval_ms": 100,
        "isolation_level": "read_committed",
    }
    refused = simulated.faults.error(TxnOffsetCommitRequest, error_codes.UNKNOWN_TOPIC_OR_PARTITION, times=1)
    first = simulated.member("one", **settings)
    call = first.processes(note, transactional_id="w")
    simulated.until(lambda: refused.hits == 1)
    make_anew(simulated, 0.0)
    simulated.write("one", names(0, 20, "new"))
    simulated.until(lambda: names(19, 1, "new")[0] in done)
    first.stop()
    call.result()
    first.close()
    second = simulated.member("one", **settings)
    simulated.write("one", names(20, 1, "new"))
    second.process(note, transactional_id="w", until=lambda: names(20, 1, "new")[0] in done)
    assert sorted(value for value in done if value.startswith(b"new")) == sorted(names(0, 21, "new"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("is_transactional", [False, True])
def test_where_latest_begins_in_the_new_topic_is_committed_before_it_has_records(
    simulated: Simulated, protocol: str, is_transactional: bool
) -> None:
    """Else the records that come while no member runs are skipped."""
    done: list[bytes] = []

    async def note(record: Record[Any, Any]) -> None:
        done.append(record.value)

    settings: dict[str, Any] = {
        "group_protocol": protocol,
        "auto_commit_interval_ms": 100,
        "auto_offset_reset": "latest",
        "isolation_level": "read_committed",
    }
    name = "w" if is_transactional else None
    first = simulated.member("one", **settings)
    call = first.processes(note, transactional_id=name)
    simulated.until(simulated.committed)
    simulated.write("one", names(0, 6, "old"))
    simulated.until(lambda: simulated.offset() >= 6)
    make_anew(simulated, 0.0)
    assert not simulated.committed()
    simulated.until(simulated.committed)
    first.stop()
    call.result()
    first.close()
    simulated.write("one", names(0, 5, "new"))
    second = simulated.member("one", **settings)
    second.process(note, transactional_id=name, until=lambda: len(done) == 11)
    assert done == names(0, 6, "old") + names(0, 5, "new")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("away_s", AWAY_S)
@pytest.mark.parametrize("is_sought", [False, True])
def test_records_of_a_deleted_topic_are_not_committed_for_the_new_one_by_a_loop_of_polls(
    simulated: Simulated, protocol: str, away_s: float, is_sought: bool
) -> None:
    """The position in the new topic is known before they are committed. Within a topic a seek changes nothing."""
    simulated.write("one", names(0, 20, "old"))
    member = simulated.member("one", enable_auto_commit=False, group_protocol=protocol)
    records = member.do(lambda consumer: consumer.poll(60, max_records=5))
    member.do(lambda consumer: consumer.seek(ONE, 9))
    member.do(lambda consumer: consumer.commit(records))
    assert simulated.committed() == {0: (5, "")}
    if not is_sought:
        records = member.do(lambda consumer: consumer.poll(60, max_records=5))
    make_anew(simulated, away_s)
    simulated.simulation.run(10)
    with contextlib.suppress(KafkaError):
        member.do(lambda consumer: consumer.commit(records))
    assert simulated.committed().get(0, (0, "")) == (0, "")
    simulated.write("one", names(0, 5, "new"))
    assert [record.value for record in member.do(lambda consumer: consumer.poll(60))] == names(0, 5, "new")
