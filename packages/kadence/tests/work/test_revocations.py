"""Partitions go while records of theirs are at every other point of their way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.patience import PATIENCE
from tests.work.worlds import ONE, Simulated, become, is_going

from kadence import RebalanceListener, Record, TopicPartition
from kadence.errors import ClosedError, IllegalStateError
from kadence.protocol.error_codes import TOPIC_AUTHORIZATION_FAILED
from kadence.protocol.offset_fetch import OffsetFetchRequest
from kadence.protocol.produce import ProduceRequest
from kadence.work import Context, ProducerRecord, Retry

_VALUES: Final = [b"0", b"1", b"2", b"3"]
"""A record for each partition."""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_output_that_is_refused_while_its_partition_goes_is_for_the_next_owner(
    simulated: Simulated, protocol: str
) -> None:
    """The transaction that is the last one of the partition fails by it. The record is no longer this member's."""
    simulated.send("orders", [{"value": value, "partition": each} for each, value in enumerate(_VALUES)])
    settings = {"isolation_level": "read_committed", "group_protocol": protocol}
    begun: list[int] = []
    has_moved: list[int] = []

    async def of_first(record: Record[Any, Any], context: Context) -> ProducerRecord:
        begun.append(record.partition)
        await become(lambda: is_going(context) or has_moved)
        return ProducerRecord("out", record.value)

    def of_second(record: Record[Any, Any]) -> ProducerRecord:
        has_moved.append(record.partition)
        return ProducerRecord("out", record.value)

    first = simulated.member(**settings)
    call = first.processes(of_first, workers=4, drain=PATIENCE, dead_letter="dead", transactional_id="first")
    simulated.until(lambda: len(begun) == len(_VALUES))
    refused = simulated.faults.error(ProduceRequest, TOPIC_AUTHORIZATION_FAILED, topic="out", times=1)
    second = simulated.member(**settings)
    of_both = [call, second.processes(of_second, transactional_id="second")]
    simulated.until(lambda: call.is_done or len(simulated.read("out")) >= len(_VALUES))
    first.stop()
    second.stop()
    for each in of_both:
        each.result()
    assert refused.hits == 1
    assert has_moved
    assert sorted(record.value for record in simulated.read("out")) == _VALUES
    assert simulated.read("dead") == []


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_retry_record_is_read_whatever_auto_offset_reset_says(
    simulated: Simulated, transactional_id: str | None
) -> None:
    """Nothing is committed of its partition yet, and by default a group begins at the end then."""
    simulated.write("one", 1)
    arguments: dict[str, Any] = {
        "retry": Retry(attempts=2, backoff=0, topic="again"),
        "transactional_id": transactional_id,
    }
    member = simulated.member("one", isolation_level="read_committed")

    def fails(record: Record[Any, Any]) -> None:
        # What is written to the retry topic is not read any more.
        member.stop()
        raise ValueError("not now")

    member.process(fails, **arguments)
    member.close()
    assert simulated.offset() == 1
    later = simulated.member("one", auto_offset_reset="latest", isolation_level="read_committed")
    seen: list[tuple[str, int]] = []
    later.process(
        lambda record, context: seen.append((record.topic, context.attempt)), until=lambda: seen, **arguments
    )
    assert seen == [("again", 2)]


class Leaves(RebalanceListener):
    """Leaves the group when the first partitions go; not more than once."""

    def __init__(self, leave: Callable[[], Any]) -> None:
        self.revoked: list[TopicPartition] = []
        self.lost: list[TopicPartition] = []
        self._leave = leave

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        is_first = not self.revoked
        self.revoked += partitions
        return self._leave() if is_first else None

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.lost += partitions


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("transactional_id", [None, "t"])
@pytest.mark.parametrize("leave", ["close", "unsubscribe", "close in a task of its own"])
def test_a_listener_that_leaves_the_group_ends_process_without_a_wait(
    simulated: Simulated, leave: str, transactional_id: str | None, protocol: str
) -> None:
    """What is done is committed, of what goes at first and of the rest; nobody handles it again."""
    simulated.write("orders", 100, keys=20)
    settings: dict[str, Any] = {
        "isolation_level": "read_committed",
        "auto_commit_interval_ms": 3_600_000,
        "default_api_timeout_ms": 3_600_000,
        "group_protocol": protocol,
    }
    member = simulated.member(None, **settings)
    took: list[float] = []

    async def leaves() -> None:
        began = simulated.now
        if leave == "unsubscribe":
            await member.consumer.unsubscribe(timeout=3_600)
        elif leave == "close":
            await member.consumer.close(3_600)
        else:
            await asyncio.create_task(member.consumer.close(3_600))
        took.append(simulated.now - began)

    listener = Leaves(leaves)
    member.do(lambda consumer: consumer.subscribe("orders", listener=listener))
    handled: list[int] = []
    call = member.processes(
        lambda record: handled.append(int(record.value)), transactional_id=transactional_id, drain=3_600
    )
    simulated.until(lambda: len(handled) == 100)
    other = simulated.member(**settings)
    again: list[int] = []
    others = other.processes(lambda record: again.append(int(record.value)))
    with pytest.raises(ClosedError if leave.startswith("close") else IllegalStateError):
        call.result()
    assert len(took) == 1
    # A commit, a goodbye, and with transactions one of each of them.
    assert took[0] < 5
    assert sorted(listener.revoked) == sorted({*listener.revoked})
    assert len(listener.revoked) == 4
    assert listener.lost == []
    simulated.until(lambda: len(other.consumer.assignment()) == 4)
    assert (simulated.offset("orders"), again) == (100, [])
    other.stop()
    others.result()


class Hears(RebalanceListener):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("assigned", partitions))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("revoked", partitions))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("lost", partitions))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_listener_hears_nothing_of_partitions_that_go_while_process_looks_up_their_offsets(
    simulated: Simulated, protocol: str
) -> None:
    """Another task unsubscribes meanwhile. Of later partitions it hears as always."""
    simulated.write("one", 1)
    member = simulated.member(None, isolation_level="read_committed", group_protocol=protocol)
    hears = Hears()
    asked = simulated.faults.delay(OffsetFetchRequest, 3)
    member.do(lambda consumer: consumer.subscribe("one", listener=hears))
    call = member.processes(lambda record: None, transactional_id="t")
    simulated.until(lambda: asked.hits)
    member.do(lambda consumer: consumer.unsubscribe())
    with pytest.raises(IllegalStateError):
        call.result()
    assert hears.told == []
    asked.remove()
    member.do(lambda consumer: consumer.subscribe("one", listener=hears))
    member.process(lambda record: None, until=lambda: simulated.offset() == 1, transactional_id="t")
    member.close()
    assert hears.told == [("assigned", [ONE]), ("revoked", [ONE])]
