"""Deserialising under any order of caps, pauses, seeks, Ctrl-C and slow or failing dead letters, against a model.

Each good record is returned once and in order, each bad one is passed over once, and positions never lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples

from kadence.config import ConsumerConfig
from kadence.consumer.decoded_records import Records
from kadence.consumer.events import Seek
from kadence.consumer.fetch._fetch_collector import FetchCollector
from kadence.consumer.fetch.dead_letters import BadRecord, Delivery
from kadence.consumer.fetch.decoding import Decoding
from kadence.consumer.shared_partition import Origin, SharedPartition
from kadence.consumer.shared_state import CompletedFetch, SharedState
from kadence.errors import DeadLetterError, RecordDeserializationError
from kadence.records import OWN_COLUMNS, encode_batch
from kadence.types import TopicPartition

COUNT = 30
PARTITIONS = 3


class Arena:
    size = holds = 0

    def retain(self) -> None: ...

    def release(self) -> None: ...


class Letters:
    """Takes bad records and acknowledges nothing by itself."""

    topic = "bad"

    def __init__(self) -> None:
        self.under_way: list[Delivery] = []
        self.acknowledged: list[tuple[int, int]] = []

    def deliver(self, bad: Sequence[BadRecord]) -> Delivery:
        self.under_way.append(Delivery(bad))
        return self.under_way[-1]

    def end(self, error: Exception | None) -> None:
        for delivery in self.under_way:
            delivery.done, delivery.error = True, error
            if error is None:
                self.acknowledged += [(each.record.partition, each.record.offset) for each in delivery.bad]
        self.under_way.clear()


def decode(data: bytes) -> bytes:
    if data == b"bad":
        raise ValueError(data)
    return data


class World:
    """Partitions whose records lie in the buffer, and the application above them."""

    def __init__(self, policy: str, bad: set[tuple[int, int]], batch: int) -> None:
        self.bad = bad
        self.batch = batch
        self.policy = policy
        self.shared_state = SharedState(lambda: None)
        self.letters = Letters()
        self.collector = FetchCollector(self.shared_state, check_crcs=True, max_batch_bytes=1 << 20)
        config = ConsumerConfig.parse(
            bootstrap_servers="localhost:1", value_deserializer=decode, deserialization_errors=policy,
            dead_letter_topic="bad" if policy == "dead-letter" else None,
        )  # fmt: skip
        self.decoding = Decoding(
            config,
            self.collector,
            self.letters if policy == "dead-letter" else None,  # type: ignore[arg-type]
            lambda: None,
        )
        self.shared_partitions = {
            TopicPartition("t", number): SharedPartition(TopicPartition("t", number), 1)
            for number in range(PARTITIONS)
        }
        self.shared_state.shared_partitions = self.shared_partitions
        self.due = [0] * PARTITIONS
        self.committed = dict.fromkeys(self.shared_partitions, 0)
        """By committing the records of each poll."""
        for partition in self.shared_partitions:
            self.fetch_from(partition, 0)

    def fetch_from(self, partition: TopicPartition, offset: int) -> None:
        """What the network thread does at a seek: a new fetch epoch, and the records from there on."""
        shared_partition = self.shared_partitions[partition]
        shared_partition.fetch_epoch += 1
        shared_partition.origin = Origin(shared_partition.fetch_epoch, offset, None)
        for start in range(offset, COUNT, self.batch):
            end = min(start + self.batch, COUNT)
            values = [
                b"bad" if (partition.partition, n) in self.bad else b"%d" % n for n in range(start, end)
            ]
            data = encode_batch([(0, None, value, ()) for value in values], base_offset=start)
            self.shared_state.put(
                CompletedFetch(
                    shared_partition, shared_partition.fetch_epoch, start, memoryview(data), Arena(), None
                )
            )

    def network(self) -> None:
        while self.shared_state.application_events:
            seek = self.shared_state.application_events.popleft()
            assert isinstance(seek, Seek)
            self.fetch_from(seek.shared_partition.partition, seek.offset)

    # ------------------------------------------------------------ what the application does

    def poll(self, limit: int, *, interrupted: bool = False) -> int:
        """How many came."""
        self.collector.mark_processed()
        try:
            chunks = self.decoding.take(limit)
        except RecordDeserializationError as error:
            self.refused(error)
            return 0
        except DeadLetterError:
            assert self.policy == "dead-letter"
            self.check_positions()
            return 0
        records = Records(chunks, self.collector.moved())
        if interrupted:
            self.collector.put_back()
            self.check_positions()
            self.network()
            return 0
        for record in records:
            self.pass_over(TopicPartition("t", record.partition))
            assert record.offset == self.due[record.partition]
            self.due[record.partition] += 1
        assert len(records) <= limit
        self.check_positions()
        self.committed |= {partition: at.offset for partition, at in records.next_offsets().items()}
        assert self.committed == {partition: self.position(partition) for partition in self.shared_partitions}
        return len(records)

    def columns(self) -> None:
        """Somebody else reads on, and what was read as columns is put back: what is left is read again."""
        self.collector.mark_processed()
        self.collector.take_columns(3, columns=OWN_COLUMNS)
        self.collector.put_back()

    def refused(self, error: RecordDeserializationError) -> None:
        number = error.partition.partition
        assert self.policy == "raise"
        assert (number, error.offset) in self.bad
        assert error.offset == self.due[number] == self.position(error.partition)
        self.check_positions()

    def pass_over(self, partition: TopicPartition) -> None:
        """Bad records before the next good one, as the policy allows."""
        number = partition.partition
        while (number, self.due[number]) in self.bad:
            assert self.policy != "raise"
            if self.policy == "dead-letter":
                assert (number, self.due[number]) in self.letters.acknowledged
            self.due[number] += 1

    def check_positions(self) -> None:
        """A position is after everything that was returned, and before everything that is still to come."""
        for partition in self.shared_partitions:
            number, at = partition.partition, self.position(partition)
            assert at >= self.due[number]
            assert all((number, offset) in self.bad for offset in range(self.due[number], at))
            if self.policy == "dead-letter":
                passed = {(number, offset) for offset in range(self.due[number], at)}
                assert passed <= set(self.letters.acknowledged)

    def position(self, partition: TopicPartition) -> int:
        at = self.shared_partitions[partition].current()
        assert at is not None
        return at.offset

    def seek(self, number: int, offset: int) -> None:
        self.due[number] = self.committed[TopicPartition("t", number)] = offset
        self.fetch_from(TopicPartition("t", number), offset)

    def finish(self) -> None:
        """Everything that is left."""
        for shared_partition in self.shared_partitions.values():
            shared_partition.paused = False
        for _ in range(20 * COUNT * PARTITIONS):
            self.letters.end(None)
            self.poll(7)
            for number in range(PARTITIONS):
                if self.policy == "raise" and (number, self.due[number]) in self.bad:
                    self.seek(number, self.due[number] + 1)
            if all(self.position(partition) == COUNT for partition in self.shared_partitions):
                return
        raise AssertionError(f"not everything came: {self.due}")


places = st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, COUNT - 1))
numbers = st.integers(0, PARTITIONS - 1)
steps = st.one_of(
    st.tuples(st.just("poll"), st.integers(1, 40)),
    st.tuples(st.just("interrupted"), st.integers(1, 40)),
    st.tuples(st.just("pause"), numbers),
    st.tuples(st.just("resume"), numbers),
    st.tuples(st.just("seek"), places),
    st.tuples(st.just("acknowledged"), st.none()),
    st.tuples(st.just("refused"), st.none()),
    st.tuples(st.just("release"), st.none()),
)


@pytest.mark.parametrize("policy", ["raise", "skip", "dead-letter"])
@examples(75)
@given(bad=st.sets(places, max_size=12), batch=st.integers(1, 12), script=st.lists(steps, max_size=25))
def test_every_good_record_once_in_order_and_positions_that_never_lie(
    policy: str, bad: set[tuple[int, int]], batch: int, script: list[tuple[str, Any]]
) -> None:
    world = World(policy, bad, batch)
    for what, argument in script:
        if what == "poll":
            world.poll(argument)
        elif what == "interrupted":
            world.poll(argument, interrupted=True)
        elif what in ("pause", "resume"):
            world.shared_partitions[TopicPartition("t", argument)].paused = what == "pause"
        elif what == "seek":
            world.seek(*argument)
        elif what == "acknowledged":
            world.letters.end(None)
        elif what == "refused":
            world.letters.end(RuntimeError("refused"))
        else:
            world.columns()
            world.network()
            world.check_positions()
    world.finish()
