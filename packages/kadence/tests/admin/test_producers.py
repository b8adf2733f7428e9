"""Producers that partitions remember."""

from __future__ import annotations

import pytest
from tests.patience import until

from kadence.admin import Admin
from kadence.errors import UnknownTopicOrPartitionError
from kadence.producer import Producer
from kadence.types import TopicPartition


def test_the_open_transaction_that_holds_up_readers_is_found(admin: Admin, servers: str, name: str) -> None:
    admin.create_topics({name: 2})
    until(lambda: name in admin.list_topics(), what="the topic is known")
    tp, other = TopicPartition(name, 0), TopicPartition(name, 1)
    assert admin.describe_producers([tp, other]) == {tp: [], other: []}
    with Producer(bootstrap_servers=servers, transactional_id=name) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(name, b"committed", partition=0)
        producer.begin_transaction()
        producer.send(name, b"open", partition=0).result()
        (found,) = admin.describe_producers(tp)[tp]
        stable = admin.list_offsets({tp: "latest"}, isolation_level="read_committed")[tp]
        assert stable is not None
        assert found.transaction_start == stable.offset
        (listed,) = admin.list_transactions(producer_ids=[found.producer_id])
        assert listed.transactional_id == name
        assert found.last_timestamp
        assert found.last_sequence is not None
        producer.abort_transaction()
    until(
        lambda: [each.transaction_start for each in admin.describe_producers(tp)[tp]] == [None],
        what="the transaction is over",
    )
    assert admin.describe_producers(other)[other] == []
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_producers([(name, 7)])
