"""Power cuts at any fsync, in the strict sense: nothing that was acknowledged is lost under `fsync=flush`.

Writers, commits, transactions and changes of topics go on while the disk works; a broker is killed, or ends in order,
in between. `make soak` tries other seeds.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.storage.disk import Disk
from tests.broker.storage.machine import Machine
from tests.broker.storage.power import Power, PowerCutError
from tests.broker.storage.test_partition import NOW, batch, end, transactional
from tests.luck import seeds

from kadence.protocol import error_codes as codes
from kadence.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kadence.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from kadence.protocol.delete_topics import DeleteTopicsRequest
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.records import FetchedRecords, encode_batch
from kadence_broker.storage import Isolation

_TOPIC = "t"
_PARTITIONS = 2
_LIVES = 3

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="finds files as Linux lists them")


class Clients:
    """All clients of a broker, and what they were told."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._serial = 0
        self.machine: Machine
        self.records: dict[tuple[int, int], bytes] = {}
        """Acknowledged ones, by partition and offset."""
        self.commits: dict[str, int] = {}
        self.topics: dict[str, bool] = {}
        """Whether a topic was made, or deleted, last; one of which neither is known is not here."""
        self._asked: dict[str, int] = {}
        """By topic: the newest request."""
        self.ended: dict[tuple[int, int, int], bool] = {}
        """Whether a record was committed, by producer, partition and offset."""
        self._transactions: list[_Transaction] = []

    def on(self, machine: Machine) -> None:
        """A new broker is there; what the old one has not answered, nobody knows."""
        self.machine = machine
        self._transactions = [_Transaction(self, f"x{self.next()}") for _ in range(2)]
        if _TOPIC not in self.topics:
            self.create(_TOPIC)
            machine.drain()

    def next(self) -> int:
        self._serial += 1
        return self._serial

    def act(self) -> None:
        """One of them does something."""
        self._chance.choices(
            (
                self._produce,
                self._commit,
                self._change_topic,
                lambda: self._chance.choice(self._transactions).go(),
            ),
            (6, 3, 1, 8),
        )[0]()

    def create(self, name: str) -> None:
        asked = self._ask_about(name)
        topic = CreatableTopic(name=name, num_partitions=_PARTITIONS, replication_factor=1)

        def answered(response: Any) -> None:
            if response.topics[0].error_code == codes.NONE and self._asked[name] == asked:
                self.topics[name] = True

        self.machine.ask(CreateTopicsRequest(topics=[topic]), 5, answered)

    def _ask_about(self, name: str) -> int:
        """From now on nobody knows whether there is such a topic, until this is answered."""
        self.topics.pop(name, None)
        self._asked[name] = self.next()
        return self._asked[name]

    def send(
        self,
        partition: int,
        stored: Callable[[int, int], None] = lambda _code, _offset: None,
        transactional_id: str | None = None,
        **batch: Any,
    ) -> None:
        """Write one record; ``stored`` is told of the error code and the offset."""
        value = b"%d" % self.next() + bytes(self._chance.randrange(400))
        records = encode_batch([(1_000_000, None, value, ())], **batch)
        data = PartitionProduceData(index=partition, records=records)

        def answered(response: Any) -> None:
            found = response.responses[0].partition_responses[0]
            if found.error_code == codes.NONE:
                self.records[partition, found.base_offset] = value
            stored(found.error_code, found.base_offset)

        request = ProduceRequest(
            acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name=_TOPIC, partition_data=[data])]
        )
        request.transactional_id = transactional_id
        self.machine.ask(request, 9, answered)

    def _produce(self) -> None:
        self.send(self._chance.randrange(_PARTITIONS))

    def _commit(self) -> None:
        group, offset = self._chance.choice("abcd"), self.next()
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name=_TOPIC, partitions=[partition])

        def answered(response: Any) -> None:
            if response.topics[0].partitions[0].error_code == codes.NONE:
                self.commits[group] = offset

        self.machine.ask(OffsetCommitRequest(group_id=group, topics=[topic]), 8, answered)

    def _change_topic(self) -> None:
        name = self._chance.choice(("n1", "n2"))
        if name not in self.machine.cluster.topics:
            self.create(name)
            return
        asked = self._ask_about(name)

        def answered(response: Any) -> None:
            if response.responses[0].error_code == codes.NONE and self._asked[name] == asked:
                self.topics[name] = False

        self.machine.ask(DeleteTopicsRequest(topic_names=[name]), 4, answered)

    def check(self) -> None:
        """What they were told still holds."""
        topics = self.machine.cluster.topics
        assert {name: name in topics for name in self.topics} == self.topics
        logs = topics[_TOPIC].partitions
        for log in logs:
            data = b"".join(log.read(0, 1 << 30, Isolation.LOG_END))
            there = {each.offset: each.value for each in FetchedRecords(data, _TOPIC, log.index, 0).take()}
            told = {offset: value for (index, offset), value in self.records.items() if index == log.index}
            assert {offset: there.get(offset) for offset in told} == told
        for (producer, index, offset), was_committed in self.ended.items():
            known = logs[index].producers.known[producer]
            assert known.transaction_from is None or known.transaction_from > offset
            was_aborted = any(
                each.producer_id == producer and each.first_offset <= offset <= each.last_offset
                for each in logs[index].producers.aborted.entries
            )
            assert was_aborted is not was_committed
        asked = OffsetFetchRequestTopics(name=_TOPIC, partition_indexes=[0])
        groups = [OffsetFetchRequestGroup(group_id=each, topics=[asked]) for each in self.commits]

        def answered(response: Any) -> None:
            for each in response.groups:
                # A later one may have been stored, too.
                assert each.topics[0].partitions[0].committed_offset >= self.commits[each.group_id]

        self.machine.ask(OffsetFetchRequest(groups=groups), 8, answered)


class _Transaction:
    """A producer that goes from transaction to transaction, each step once the one before it was answered."""

    def __init__(self, clients: Clients, name: str) -> None:
        self._clients = clients
        self._name = name
        self._producer = self._epoch = -1
        self._sequence = dict.fromkeys(range(_PARTITIONS), 0)
        self._partition = 0
        self._offsets: list[int] = []
        self._next = self._init
        self._is_waiting = False

    def go(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._next()

    def _then(self, step: Callable[[], None], code: int) -> None:
        """Take this step next; one that was refused for now is tried again, and after another error nothing is."""
        if code == codes.NONE:
            self._next = step
        self._is_waiting = code not in (codes.NONE, codes.CONCURRENT_TRANSACTIONS)

    def _init(self) -> None:
        def answered(response: Any) -> None:
            self._producer, self._epoch = response.producer_id, response.producer_epoch
            self._then(self._add, response.error_code)

        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=60_000)
        request.producer_id = request.producer_epoch = -1
        self._clients.machine.ask(request, 4, answered)

    def _add(self) -> None:
        self._partition = self._clients.next() % _PARTITIONS
        self._offsets = []

        def answered(response: Any) -> None:
            found = response.results_by_topic_v3_and_below[0].results_by_partition[0]
            self._then(self._send, found.partition_error_code)

        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self._producer,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=_TOPIC, partitions=[self._partition])],
        )
        self._clients.machine.ask(request, 3, answered)

    def _send(self) -> None:
        def stored(code: int, offset: int) -> None:
            if code == codes.NONE:
                self._offsets.append(offset)
                self._sequence[self._partition] += 1
            self._then(self._send if len(self._offsets) < 2 else self._end, code)

        self._clients.send(
            self._partition,
            stored,
            self._name,
            producer_id=self._producer,
            producer_epoch=self._epoch,
            base_sequence=self._sequence[self._partition],
            transactional=True,
        )

    def _end(self) -> None:
        commits = self._clients.next() % 3 > 0

        def answered(response: Any) -> None:
            if response.error_code == codes.NONE:
                for offset in self._offsets:
                    self._clients.ended[self._producer, self._partition, offset] = commits
            self._then(self._add, response.error_code)

        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self._producer,
            producer_epoch=self._epoch,
            committed=commits,
        )
        self._clients.machine.ask(request, 3, answered)


class World:
    """Brokers that follow each other on a disk, and what fails."""

    def __init__(self, path: Path, seed: int) -> None:
        self._chance = random.Random(seed)
        self._path = path
        self._dead: list[Machine] = []
        self.clients = Clients(self._chance)
        self.cuts = 0
        path.joinpath("0").mkdir()
        self._power = Power(path / "0", self._chance)
        self.machine: Machine | None = None

    def fsync(self, descriptor: int) -> None:
        self._power.fsync(descriptor)

    def live(self) -> None:
        """Serve until the power fails; then find out what is left."""
        self._power.left = self._chance.choice((10, 100, 200)) + self._chance.randrange(100)
        try:
            if self.machine is None:
                self._begin()
            for _ in range(1_000):
                self.clients.act()
                for _ in range(self._chance.randrange(4)):
                    assert self.machine is not None
                    self.machine.work(disk=self._chance.random() < 0.5)
                self._end_perhaps()
        except PowerCutError:
            pass
        self._cut()
        self._begin()
        assert self.machine is not None
        self.machine.drain()
        self.clients.check()

    def _end_perhaps(self) -> None:
        assert self.machine is not None
        luck = self._chance.random()
        if luck < 0.01:
            self._kill()
        elif luck < 0.02:
            self.machine.close()
            self.machine = None
        else:
            return
        self._begin()

    def _begin(self) -> None:
        self.machine = Machine(self._path / str(self.cuts), segment_bytes=4_000)
        self.clients.on(self.machine)

    def _kill(self) -> None:
        if self.machine is not None:
            self.machine.kill()
            self._dead.append(self.machine)
            self.machine = None

    def _cut(self) -> None:
        self._kill()
        self.cuts += 1
        left = self._path / str(self.cuts)
        self._power.leave(left, by_luck=self._chance.random() < 0.5)
        self._power.close()
        self._power = Power(left, self._chance)

    def close(self) -> None:
        self._power.close()
        self._kill()
        for each in self._dead:
            each.bury()


def test_an_abort_stays_one_if_a_kill_came_before_its_index_was_written(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "0")
    transactional(disk.partition, 0, producer=1)
    end(disk.partition, 1, committed=False)
    disk.partition.log.roll()
    disk.partition.append(NOW, batch())
    aborted = list(disk.partition.producers.aborted.entries)
    assert aborted
    disk.flush()
    left = disk.crash(tmp_path / "1")
    for each in [*left.glob("t-0/*.txnindex"), *left.glob("t-0/*.snapshot")]:
        each.unlink()
    disk.close()
    # The next one begins another segment, with a snapshot of what the log before it means.
    disk = Disk(left)
    disk.partition.log.roll()
    disk.flush()
    assert disk.partition.producers.aborted.entries == aborted
    left = disk.crash(tmp_path / "2")
    disk.close()
    disk = Disk(left)
    assert disk.partition.producers.aborted.entries == aborted
    disk.close()


@pytest.mark.parametrize("seed", seeds(4))
def test_a_power_cut_loses_nothing_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    world = World(tmp_path, seed)
    monkeypatch.setattr(os, "fsync", world.fsync)
    try:
        for _ in range(_LIVES):
            world.live()
    finally:
        world.close()
    assert len(world.clients.records) > 10
