"""Whatever the network and the broker do: nothing is lost, repeated or reordered, and no acknowledgement is a lie.

The partitions are the embedded broker's, with Kafka's rules for idempotent producers. Hypothesis chooses when a
request is served, refused, or lost on its way, or its answer is.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples
from tests.worlds.producer import TOPIC_ID, World, batches_of, header_of
from tests.worlds.transacting import TransactionWorld

from kadence.connection.request import Request
from kadence.errors import DisconnectedError
from kadence.producer.futures import RecordFuture
from kadence.producer.transaction_states import State
from kadence.protocol import error_codes as ec
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kadence.records import FetchedRecords
from kadence.types import TopicPartition
from kadence_broker.cluster import Topic
from kadence_broker.storage import BatchError, Isolation, Partition

NOW = 1_700_000_000_000
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]


class Log:
    """One partition of the embedded broker, without the broker."""

    def __init__(self) -> None:
        self.partition = Partition(Topic("t", TOPIC_ID), 0, leader_id=1)
        self.taken: set[tuple[int, int]] = set()

    @property
    def values(self) -> list[bytes | None]:
        log = b"".join(self.partition.read(0, 1 << 30, Isolation.COMMITTED))
        aborted = [(each.producer_id, each.first_offset) for each in self.partition.aborted(0)]
        return [record.value for record in FetchedRecords(log, "t", 0, 0, aborted=aborted).take()]

    def append(self, batch: bytes) -> tuple[int, int]:
        """The error code and the base offset."""
        try:
            offset = self.partition.append(NOW, memoryview(batch), transactional_id="x").base_offset
        except BatchError as error:
            return error.code, -1
        self.taken.add(_sequences(batch))
        return ec.NONE, offset


def _sequences(batch: bytes) -> tuple[int, int]:
    header = header_of(batch)
    return header.base_sequence, header.last_sequence


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 1)),
        st.tuples(st.sampled_from(["serve", "lose request", "lose answer"]), st.integers(0, 1)),
        st.tuples(st.just("refuse"), st.sampled_from([ec.NOT_LEADER_OR_FOLLOWER, ec.NOT_ENOUGH_REPLICAS])),
        st.tuples(st.just("too large"), st.just(0)),
        st.tuples(st.just("wait"), st.sampled_from([1, 100, 2_000])),
    ),
    min_size=10,
    max_size=120,
)
often: list[tuple[str, int]] = [
    ("append", 0),
    ("append", 1),
    ("append", 0),
    ("append", 0),
    ("serve", 0),
    ("serve", 0),
]
seldom = [
    ("refuse", ec.NOT_ENOUGH_REPLICAS),
    ("refuse", ec.NOT_LEADER_OR_FOLLOWER),
    ("too large", 0),
    ("lose request", 0),
    ("lose answer", 0),
    ("wait", 100),
]
transactional_steps = st.lists(
    st.sampled_from([*often * 3, *seldom, ("commit", 0), ("abort", 0)]), min_size=60, max_size=120
)

SETTINGS: Any = {"batch_size": 110, "delivery_timeout_ms": 10_000_000, "max_request_size": 200}


class Play:
    def __init__(self, world: World | None = None) -> None:
        self.world = world or World(**SETTINGS)
        self.world.leaders = {PARTITIONS[0]: 1, PARTITIONS[1]: 1}
        self.logs = {tp: Log() for tp in PARTITIONS}
        self.sent: dict[TopicPartition, list[tuple[bytes, RecordFuture]]] = {tp: [] for tp in PARTITIONS}
        self.wire: deque[Request] = deque()
        self.counter = 0

    def append(self, tp: TopicPartition) -> None:
        value = b"%d" % self.counter
        self.counter += 1
        self.sent[tp].append((value, self.world.append(value, tp=tp)))

    def pump(self) -> None:
        for _ in range(20):
            requests = self.world.turn()
            for request in requests:
                if isinstance(request.message, ProduceRequest):
                    self.wire.append(request)
                else:
                    self.keep_house(request)
            if not requests:
                return

    def keep_house(self, request: Request) -> None:
        self.world.answer_housekeeping(request)

    def serve(self, request: Request, *, tell: bool = True) -> None:
        answers = []
        for tp, batch in batches_of(request).items():
            code, offset = self.logs[tp].append(batch)
            answers.append(PartitionProduceResponse(index=tp.partition, error_code=code, base_offset=offset))
        if tell:
            response = ProduceResponse(
                responses=[TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=answers)]
            )
            self.world.answer(request, response)

    def lose_connection(self) -> None:
        """Everything in flight is lost: what the broker had read, and what it had not."""
        lost, self.wire = list(self.wire), deque()
        for request in lost:
            self.world.fail(request, DisconnectedError("gone"))

    def may_be_too_large(self, tp: TopicPartition, batch: bytes) -> bool:
        """A broker that took a batch once does not find it too large the next time."""
        return header_of(batch).record_count > 1 and _sequences(batch) not in self.logs[tp].taken

    def step(self, action: str, argument: int) -> None:
        if action == "append":
            self.append(PARTITIONS[argument])
        elif action == "wait":
            self.world.advance(argument)
        elif self.wire:
            if action == "serve":
                self.serve(self.wire.popleft())
            elif action == "refuse":
                self.world.acknowledge(self.wire.popleft(), code=argument)
            elif action == "too large":
                if all(self.may_be_too_large(tp, batch) for tp, batch in batches_of(self.wire[0]).items()):
                    self.world.acknowledge(self.wire.popleft(), code=ec.MESSAGE_TOO_LARGE)
            else:
                if action == "lose answer":
                    self.serve(self.wire[0], tell=False)
                self.lose_connection()
        self.pump()

    def finish(self) -> None:
        for _ in range(300):
            self.pump()
            while self.wire:
                self.serve(self.wire.popleft())
            if not self.world.accumulator.incomplete:
                return
            self.world.advance(1_000)
        raise AssertionError(f"it never came to an end: {self.world.sender!r}")


@examples(60)
@given(steps)
def test_exactly_once_in_order(script: list[tuple[str, int]]) -> None:
    play = Play()
    for action, argument in script:
        play.step(action, argument)
    play.finish()
    for tp in PARTITIONS:
        assert play.logs[tp].values == [value for value, _ in play.sent[tp]]
        assert [future.result(0).offset for _, future in play.sent[tp]] == list(range(len(play.sent[tp])))
    assert play.world.accumulator.used_bytes == 0


@examples(60)
@given(steps, st.integers(5, 60))
def test_with_batches_that_fail_the_rest_is_still_exactly_once_in_order(
    script: list[tuple[str, int]], fail_every: int
) -> None:
    """A broker refuses some batches for good: they are not in the log, and all others are, once, in order."""
    play = Play()
    for number, (action, argument) in enumerate(script):
        if number % fail_every == fail_every - 1 and play.wire:
            play.world.acknowledge(play.wire.popleft(), code=ec.INVALID_RECORD)
        play.step(action, argument)
    play.finish()
    for tp in PARTITIONS:
        log = play.logs[tp].values
        assert len(set(log)) == len(log)
        numbers = [int(value or b"") for value in log]
        assert numbers == sorted(numbers)
        delivered = [value for value, future in play.sent[tp] if future.exception(0) is None]
        # A batch that was written, whose answer was lost, and that was then refused counts as failed.
        assert set(delivered) <= set(log)


class TransactionalPlay(Play):
    """One transaction after the other, over the same partitions and the same network."""

    def __init__(self, version: int) -> None:
        self.transacting = TransactionWorld(version=version, **SETTINGS)
        super().__init__(self.transacting)
        self.open: list[tuple[TopicPartition, bytes, RecordFuture]] = []
        self.committed: dict[TopicPartition, list[bytes]] = {tp: [] for tp in PARTITIONS}
        self.is_commit = False
        self.transacting.begin()

    def append(self, tp: TopicPartition) -> None:
        if self.transacting.now_in.state is State.IN_TRANSACTION:
            super().append(tp)
            self.open.append((tp, *self.sent[tp][-1]))

    def keep_house(self, request: Request) -> None:
        if isinstance(request.message, EndTxnRequest):
            epoch = request.message.producer_epoch
            for log in self.logs.values():
                log.partition.append_marker(NOW, 9, epoch, 0, committed=request.message.committed)
        self.transacting.say(request)

    def step(self, action: str, argument: int) -> None:
        transactions = self.transacting.now_in
        self.after_refusal(transactions.state)
        if transactions.state is State.READY:
            self.ended()
        if action not in ("commit", "abort"):
            super().step(action, argument)
        elif transactions.state is State.IN_TRANSACTION:
            self.is_commit = action == "commit"
            transactions.begin_commit() if self.is_commit else transactions.begin_abort()
            self.pump()

    def after_refusal(self, state: State) -> None:
        assert state not in (State.ABORTABLE, State.FAILED), "nothing here is for good"

    def ended(self) -> None:
        for tp, value, future in self.open:
            if self.is_commit:
                assert future.exception(0) is None
                self.committed[tp].append(value)
        self.open.clear()
        self.transacting.begin()

    def finish(self) -> None:
        self.step("commit", 0)
        for _ in range(300):
            self.pump()
            while self.wire:
                self.serve(self.wire.popleft())
            if self.transacting.now_in.state is State.READY:
                self.ended()
                return
            self.world.advance(1_000)
        raise AssertionError(f"it never came to an end: {self.world.sender!r}")


@examples(60)
@given(transactional_steps, st.sampled_from([1, 2]))
def test_transactions_are_whole_and_end_as_was_asked(script: list[tuple[str, int]], version: int) -> None:
    """What passes by itself aborts no transaction, and readers of committed records see each of them once, in order."""
    play = TransactionalPlay(version)
    for action, argument in script:
        play.step(action, argument)
    play.finish()
    for tp in PARTITIONS:
        assert play.logs[tp].values == play.committed[tp]
    assert play.world.accumulator.used_bytes == 0


class RefusedPlay(TransactionalPlay):
    """Transactions of which some lose a batch for good, and are aborted."""

    def after_refusal(self, state: State) -> None:
        assert state is not State.FAILED
        if state is State.ABORTABLE:
            self.is_commit = False
            self.transacting.now_in.begin_abort()
            self.pump()

    def finish(self) -> None:
        while self.wire:
            self.serve(self.wire.popleft())
            self.pump()
        self.after_refusal(self.transacting.now_in.state)
        super().finish()


@examples(60)
@given(
    transactional_steps,
    st.integers(5, 60),
    st.sampled_from([ec.INVALID_RECORD, ec.INVALID_PRODUCER_EPOCH]),
    st.sampled_from([1, 2]),
)
def test_transactions_that_lose_a_batch_are_aborted_whole(
    script: list[tuple[str, int]], refuse_every: int, code: int, version: int
) -> None:
    play = RefusedPlay(version)
    for number, (action, argument) in enumerate(script):
        if number % refuse_every == refuse_every - 1 and play.wire:
            play.world.acknowledge(play.wire.popleft(), code=code)
        play.step(action, argument)
    play.finish()
    for tp in PARTITIONS:
        assert play.logs[tp].values == play.committed[tp]
    assert play.world.accumulator.used_bytes == 0
