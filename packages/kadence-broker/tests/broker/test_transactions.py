"""What the broker does around its transaction coordinator: leaders that are away, nodes that take over, restarts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.broker.wire import Wire
from tests.patience import PATIENCE, until

from kadence import Broker, Consumer, Producer, TopicPartition
from kadence.errors import KafkaError, ProducerFencedError
from kadence.protocol import error_codes as codes
from kadence.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kadence.protocol.describe_producers import DescribeProducersRequest, TopicRequest
from kadence.protocol.list_transactions import ListTransactionsRequest
from kadence.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kadence_broker.storage.clean_stop import CLEAN_FILE

TP = TopicPartition("t", 0)


def read(broker: Broker) -> tuple[list[bytes | None], int]:
    """What a reader of committed records gets, and where it ends."""
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as reader:
        end = reader.end_offsets([TP])[TP]
        reader.assign({TP: (0, end)})
        values: list[bytes | None] = []
        while reader.position(TP) < end:
            values += [record.value for record in reader.poll(PATIENCE)]
        return values, end


def producer(broker: Broker, **config: Any) -> Producer:
    made = Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x", **config)
    made.init_transactions()
    return made


def test_a_partition_without_a_leader_gets_its_marker_when_it_has_one() -> None:
    with Broker(topics={"t": 1}, nodes=2) as broker, producer(broker) as sender:
        leader = broker.node_ids[0]
        broker.move_leader("t", 0, leader)
        sender.begin_transaction()
        sender.send("t", b"v").result(PATIENCE)
        broker.move_leader("t", 0, -1)
        sender.commit_transaction()
        broker.move_leader("t", 0, leader)
        until(lambda: read(broker) == ([b"v"], 2), what="the marker is written")
        # The next transaction waits for that.
        sender.begin_transaction()
        sender.send("t", b"w").result(PATIENCE)
        sender.commit_transaction()
        until(lambda: read(broker)[0] == [b"v", b"w"], what="the next one is committed")


def test_an_ending_that_was_overtaken_does_not_end_the_next_transaction() -> None:
    with Broker(topics={"t": 1}, nodes=2) as broker, producer(broker) as sender:
        leader = broker.node_ids[0]
        broker.move_leader("t", 0, leader)
        sender.begin_transaction()
        sender.send("t", b"v").result(PATIENCE)
        broker.move_leader("t", 0, -1)
        sender.commit_transaction()
        for node_id in (*broker.node_ids, *broker.node_ids):
            broker.move_transaction_coordinator("x", node_id)  # each finds the decision, and carries it out
        broker.move_leader("t", 0, leader)
        until(lambda: read(broker)[0] == [b"v"], what="the marker is written")
        tried = Event()
        loop = broker._core.loop
        loop.call(lambda: loop.at(loop.clock.now_ms() + 100, tried.set)).result(PATIENCE)
        assert tried.wait(PATIENCE), "whatever was still to be tried again"
        assert broker.offsets("t") == [(0, 2)], "one record, one marker"


def test_while_nobody_coordinates_the_id_a_write_may_be_tried_again() -> None:
    with Broker(topics={"t": 1}) as broker, producer(broker) as sender:
        (node_id,) = broker.node_ids
        sender.begin_transaction()
        broker.move_transaction_coordinator("x", -1)
        for adds in (True, False):
            ask = partial(broker._core.transactions.admit, "x", 1, 0, TP, adds=adds, knows_abortable=True)
            assert broker._core.loop.call(ask).result(PATIENCE) == codes.NOT_ENOUGH_REPLICAS
        sent = sender.send("t", b"v")
        broker.move_transaction_coordinator("x", node_id)
        sent.result(PATIENCE)
        sender.commit_transaction()
        until(lambda: read(broker)[0] == [b"v"], what="it is committed")


def test_another_node_takes_an_open_transaction_over() -> None:
    with Broker(topics={"t": 1}, nodes=2) as broker, producer(broker) as sender:
        sender.begin_transaction()
        sender.send("t", b"v").result(PATIENCE)
        for node_id in (*broker.node_ids, *broker.node_ids):
            broker.move_transaction_coordinator("x", node_id)
        sender.commit_transaction()
        until(lambda: read(broker)[0] == [b"v"], what="it is committed")


def test_ids_are_gone_with_the_topic_that_kept_them() -> None:
    """What they left open is aborted, for nobody would end it."""
    with Broker(topics={"t": 1}) as broker, Wire(broker) as wire:
        sender = producer(broker)
        sender.begin_transaction()
        sender.send("t", b"open").result(PATIENCE)
        asked = DeleteTopicState(name="__transaction_state")
        (deleted,) = wire.call(DeleteTopicsRequest(topics=[asked])).responses
        assert deleted.error_code == codes.NONE
        assert wire.call(ListTransactionsRequest()).transaction_states == []
        assert read(broker) == ([], 2)
        with pytest.raises(KafkaError, match="INVALID_PRODUCER_ID_MAPPING"):
            sender.commit_transaction()
        sender.close(timeout=0)
        with producer(broker) as successor:
            successor.begin_transaction()
            successor.send("t", b"new").result(PATIENCE)
            successor.commit_transaction()
            until(lambda: read(broker)[0] == [b"new"], what="it is committed")


def test_a_decided_transaction_ends_though_its_topic_is_gone() -> None:
    with Broker(topics={"t": 1}, nodes=2) as broker, Wire(broker) as wire, producer(broker) as sender:
        sender.begin_transaction()
        sender.send("t", b"v").result(PATIENCE)
        broker.move_leader("t", 0, -1)
        sender.commit_transaction()
        wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="__transaction_state")]))
        broker.move_leader("t", 0, 1)
        until(lambda: read(broker) == ([b"v"], 2), what="the marker is written")


def test_a_marker_of_a_later_coordinator_epoch_does_not_leave_the_next_transaction_open() -> None:
    """An administrator may name any epoch."""
    with Broker(topics={"t": 1}) as broker, Wire(broker) as wire, producer(broker) as sender:
        for value in (b"a", b"b"):
            sender.begin_transaction()
            sender.send("t", value).result(PATIENCE)
            if value == b"a":
                (found,) = wire.call(DescribeProducersRequest(topics=[TopicRequest("t", [0])])).topics
                (open_,) = found.partitions[0].active_producers
                at = [WritableTxnMarkerTopic("t", [0])]
                marker = WritableTxnMarker(open_.producer_id, open_.producer_epoch, False, at, 7)
                (result,) = wire.call(WriteTxnMarkersRequest(markers=[marker]), 1).markers
                assert result.topics[0].partitions[0].error_code == codes.NONE
            sender.commit_transaction()
        until(lambda: read(broker)[0] == [b"b"], what="the next one is committed")


def leave_open(directory: Path) -> None:
    """A broker on ``directory`` commits two records and ends while a third one's transaction is open."""
    with Broker(topics={"t": 1}, data_dir=directory) as broker:
        sender = producer(broker)
        # Markers carry the coordinator's epoch, which rises here.
        broker.move_transaction_coordinator("x", *broker.node_ids)
        for value in (b"a", b"b"):
            sender.begin_transaction()
            sender.send("t", value).result(PATIENCE)
            sender.commit_transaction()
        sender.begin_transaction()
        sender.send("t", b"open").result(PATIENCE)
        assert read(broker)[0] == [b"a", b"b"]
    sender.close(timeout=0)


def test_after_a_restart_what_was_committed_is_read_and_a_successor_ends_what_was_open(
    tmp_path: Path,
) -> None:
    leave_open(tmp_path / "data")
    with Broker(data_dir=tmp_path / "data") as again:
        assert read(again) == ([b"a", b"b"], 4)
        with producer(again) as successor:
            successor.begin_transaction()
            successor.send("t", b"c").result(PATIENCE)
            successor.commit_transaction()
        until(lambda: read(again)[0] == [b"a", b"b", b"c"], what="the successor's record is read")


def test_a_transaction_that_nobody_knows_is_aborted_at_the_start(tmp_path: Path) -> None:
    """As after a crash in which the coordinator's record was lost and the producer's batch was not."""
    leave_open(tmp_path / "data")
    for folder in (tmp_path / "data").glob("__transaction_state-*"):
        for file in folder.iterdir():
            file.unlink()
    (tmp_path / "data" / CLEAN_FILE).unlink()
    with Broker(data_dir=tmp_path / "data") as again:
        until(lambda: read(again) == ([b"a", b"b"], 6), what="its marker is durable")


def test_a_transaction_that_is_open_for_too_long_is_aborted() -> None:
    with Broker(topics={"t": 1}) as broker, producer(broker, transaction_timeout_ms=200) as sender:
        sender.begin_transaction()
        sender.send("t", b"late").result(PATIENCE)
        until(lambda: read(broker) == ([], 2), what="it is aborted")


def test_a_second_producer_of_the_id_fences_the_first() -> None:
    with Broker(topics={"t": 1}) as broker, producer(broker) as old:
        old.begin_transaction()
        old.send("t", b"old").result(PATIENCE)
        with producer(broker):
            assert read(broker)[0] == []
        with pytest.raises(ProducerFencedError):
            old.commit_transaction()
