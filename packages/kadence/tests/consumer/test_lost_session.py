"""A worker that was away for longer than its session commits nothing of what others have read meanwhile (C12).

Its heartbeats are lost on the way until the group has removed it. Then they get through, it joins again by itself, and
only then the worker goes on with the records in its hand.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final

import pytest
from tests.consumer.support import Cluster, poll_until, read
from tests.patience import until
from tests.virtual import VirtualCluster

from kadence import Broker, Consumer, NotFetchedReason, RebalanceListener, TopicPartition
from kadence.consumer.events import AssignPartitions
from kadence.errors import CommitFailedError, IllegalStateError, KafkaError
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.error_codes import FENCED_MEMBER_EPOCH
from kadence.protocol.heartbeat import HeartbeatRequest

_PARTITION: Final = TopicPartition("t", 0)

pytestmark = [pytest.mark.needs("groups"), pytest.mark.brokers("virtual")]


class Losses(RebalanceListener):
    def __init__(self, consumer: Consumer) -> None:
        self.identities: list[Any] = []
        self._consumer = consumer

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.identities.append(self._consumer.group_metadata())


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    assert cluster.broker is not None
    cluster.create_topic("t", 1)
    cluster.create_topic("out", 1)
    cluster.produce("t", 20, partitions=1)
    return cluster.broker


@pytest.mark.parametrize(("protocol", "touch"), [("classic", "committed"), ("consumer", "end_offsets")])
def test_c12_a_worker_that_was_away_cannot_commit(
    cluster: VirtualCluster, broker: Broker, protocol: str, touch: str
) -> None:
    settings: dict[str, Any] = {
        "group_id": "g",
        "group_protocol": protocol,
        "enable_auto_commit": False,
    }
    with (
        cluster.consumer(**settings, client_id="away", max_poll_records=5) as away,
        cluster.consumer(**settings, client_id="other") as other,
        closing(cluster.producer(transactional_id="tx")) as producer,
    ):
        losses = Losses(away)
        away.subscribe("t", listener=losses)
        records = poll_until(away, lambda: True)
        while not records:
            records = list(away.poll(1))
        before = away.group_metadata()
        offsets = {_PARTITION: records[-1].offset + 1}
        kinds = (HeartbeatRequest, ConsumerGroupHeartbeatRequest)
        lost = [broker.faults.drop(kind, client_id="away") for kind in kinds]
        other.subscribe("t")
        seen = poll_until(other, lambda: bool(other.assignment()))
        while len(seen) < 20:
            seen += other.poll(1)
        other.commit()
        for fault in lost:
            fault.remove()

        def is_back() -> bool:
            cluster.sleep(1)
            # Any call hears of the new membership.
            _CALLS[touch](away)
            group = away._core.group
            return bool(group != before and group.generation_id > 0)

        until(is_back, what=lambda: repr(away), every=0)
        assert away.group_metadata() == before
        with pytest.raises(CommitFailedError, match="not assigned to this member"):
            away.commit(offsets)
        with pytest.raises(CommitFailedError):
            away.commit()
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("out", b"again")
        with pytest.raises(KafkaError):
            producer.send_offsets_to_transaction(offsets, away.group_metadata())
        producer.abort_transaction()
        committed = other.committed([_PARTITION])[_PARTITION]
        assert committed is not None
        assert committed.offset == 20
        away.poll(0)
        assert losses.identities == [before]
        assert away.group_metadata() != before


def test_c12_what_a_worker_commits_in_a_transaction_after_a_loss_is_not_read_again(
    cluster: VirtualCluster, broker: Broker
) -> None:
    """Nobody else had the partition, and the epoch is the same after the loss: the group takes the offsets."""
    with (
        cluster.consumer(
            group_id="g",
            group_protocol="consumer",
            enable_auto_commit=False,
            isolation_level="read_committed",
            max_poll_records=5,
        ) as consumer,
        closing(cluster.producer(transactional_id="tx")) as producer,
    ):
        losses = Losses(consumer)
        producer.init_transactions()
        consumer.subscribe("t", listener=losses)
        records = poll_until(consumer, lambda: bool(consumer.assignment()))
        while not records:
            records = list(consumer.poll(1))
        producer.begin_transaction()
        producer.send("out", b"made of them")
        broker.faults.error(ConsumerGroupHeartbeatRequest, FENCED_MEMBER_EPOCH, times=1)

        def is_back() -> bool:
            cluster.sleep(1)
            consumer.committed([_PARTITION])
            waiting = [
                each for each in consumer._core.exchange.callbacks if isinstance(each, AssignPartitions)
            ]
            return any(each.finished and "session lost" in each.finished.rebalance.cause for each in waiting)

        until(is_back, what=lambda: repr(consumer), every=0)
        assert "session lost" not in consumer.rebalances()[-1].cause
        assert not losses.identities, "no poll has reported it"
        with pytest.raises(IllegalStateError, match="t-0 was lost: the next poll reports it"):
            consumer.position(_PARTITION)
        [waiting] = consumer.not_fetched().values()
        assert waiting.reason is NotFetchedReason.AWAITING_ASSIGNED_CALLBACK
        offset = records[-1].offset + 1
        producer.send_offsets_to_transaction({_PARTITION: offset}, consumer.group_metadata())
        producer.commit_transaction()
        rest = read(consumer, 20 - offset)
        assert losses.identities
        assert "session lost" in consumer.rebalances()[-1].cause
        assert [record.offset for record in rest] == list(range(offset, 20))


_CALLS: Final[dict[str, Any]] = {
    "end_offsets": lambda consumer: consumer.end_offsets([_PARTITION]),
    "committed": lambda consumer: consumer.committed([_PARTITION]),
}
