"""`buffer.memory` is a hard cap on bytes held (A3, KIP-81), whatever the backlog."""

from __future__ import annotations

import pytest
from tests.consumer.support import read

from kadence import Broker, Consumer, Producer, TopicPartition
from kadence.net.arena import Arena, ArenaPool

MIB = 1 << 20


@pytest.fixture
def backlog(broker: Broker) -> Broker:
    """64 MiB in eight partitions."""
    broker.create_topic("t", 8)
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=20) as producer:
        for number in range(64 * 16):
            producer.send("t", bytes(64 << 10), partition=number % 8)
    return broker


@pytest.mark.parametrize("cap", [2 * MIB, 5 * MIB])
def test_a3_no_more_is_held_than_the_cap(backlog: Broker, cap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    lease = ArenaPool.lease

    def watched(self: ArenaPool, length: int) -> Arena:
        nonlocal most
        arena = lease(self, length)
        most = max(most, self.in_use)
        return arena

    monkeypatch.setattr(ArenaPool, "lease", watched)
    count = 0
    with Consumer(
        bootstrap_servers=backlog.bootstrap_servers,
        auto_offset_reset="earliest",
        buffer_memory=cap,
        max_poll_records=3,
    ) as consumer:
        consumer.assign([TopicPartition("t", number) for number in range(8)])
        while count < 64 * 16:
            records = consumer.poll(5)
            assert records
            count += len(records)
    assert count == 64 * 16
    assert most <= cap


def test_a3_one_batch_above_the_cap_is_let_in_alone() -> None:
    with Broker(topics={"t": 2}, config={"message.max.bytes": 4 * MIB}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers, max_request_size=4 * MIB) as producer:
            for partition in (0, 1):
                producer.send("t", bytes(3 * MIB), partition=partition).result(10)
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", buffer_memory=MIB
        ) as consumer:
            consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
            sizes = [len(record.value or b"") for record in read(consumer, 2)]
    assert sizes == [3 * MIB, 3 * MIB]
