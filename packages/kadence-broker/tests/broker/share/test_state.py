"""What is kept of share-partitions over a kill and a restart, and what is not (KIP-932)."""

from __future__ import annotations

import logging
import shutil
import threading
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.share.scene import GROUP, Scene, acks, acquired
from tests.patience import PATIENCE, until

from kadence.protocol import error_codes as codes
from kadence.protocol.share_snapshot_record import ShareSnapshotKey, ShareSnapshotValue, StateBatch
from kadence_broker.cluster import SHARE_STATE_TOPIC
from kadence_broker.coordinator.records import Record, encode
from kadence_broker.share.store import ShareStore
from kadence_broker.share.stored import ShareKey
from kadence_broker.storage import Partition

ACCEPT, RELEASE, REJECT = 1, 2, 3


def killed(scene: Scene, path: Path, **config: Any) -> Scene:
    """Another broker with what this one has on the disk at this moment."""
    copy = path.with_name(path.name + "-killed")
    disk = scene.core._disk
    assert disk is not None
    assert disk._flusher is not None
    copied = Future[Path]()
    # By the thread that writes: no file goes while it is copied.
    disk._flusher.run(lambda: copied.set_result(shutil.copytree(path, copy)))
    copied.result(PATIENCE)
    scene.close()
    return Scene(copy, **config)


def held(scene: Scene) -> threading.Event:
    """The thread that writes to the disk waits for this event."""
    disk = scene.core._disk
    assert disk is not None
    assert disk._flusher is not None
    may_write, is_held = threading.Event(), threading.Event()

    def wait() -> None:
        is_held.set()
        may_write.wait(PATIENCE)

    disk._flusher.run(wait)
    assert is_held.wait(PATIENCE)
    return may_write


def is_durable(scene: Scene, partition: Partition) -> bool:
    scene.turn()
    return partition.high_watermark == partition.end_offset


def test_counts_states_and_start_survive_a_kill_and_locks_do_not(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.produce(10)
    member = scene.member()
    assert acquired(member.fetch()) == [(0, 9, 1)]
    assert member.acknowledge([(0, 2, ACCEPT), (4, 5, RELEASE), (7, 7, REJECT)]) == 0
    before = scene.shares.summary(GROUP, scene.topic_id, 0)
    again = killed(scene, tmp_path)
    assert again.shares.summary(GROUP, again.topic_id, 0) == before
    assert again.shares.initialised(GROUP) == {again.topic_id: [0, 1]}
    assert member.name == "m"
    late = again.member()
    assert late.acknowledge([(3, 3, ACCEPT)], epoch=1) == codes.SHARE_SESSION_NOT_FOUND
    # 3, 6, 8 and 9 were acquired, and nothing was said of them: that delivery is not counted, as in Kafka.
    assert acquired(late.fetch()) == [(3, 3, 1), (4, 5, 2), (6, 6, 1), (8, 9, 1)]
    again.close()


def test_a_start_forgets_the_states_of_topics_that_are_gone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    # As if the broker had died between the end of the topic and that of its states.
    assert scene.shares.initialise(GROUP, b"?" * 16, 0, -1, 1) == 0
    again = killed(scene, tmp_path)
    assert again.shares.initialised(GROUP) == {again.topic_id: [0, 1]}
    assert not again.shares.is_initialised(GROUP, b"?" * 16, 0)
    again.close()


def test_the_state_is_rewritten_when_it_has_grown(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.shares.store.topic._rewrite_bytes = 4_096
    member = scene.member()
    member.fetch()
    for offset in range(100):
        scene.produce(1)
        member.fetch()
        assert member.acknowledge([(offset, offset, RELEASE if offset % 10 == 5 else ACCEPT)]) == 0
    partition = scene.shares.store.partition_of(ShareKey(GROUP, scene.topic_id, 0))
    assert partition is not None

    def is_rewritten() -> bool:
        scene.turn()
        return partition.start_offset > 0

    # Another thread writes it to the disk before the old records go.
    until(is_rewritten)
    again = killed(scene, tmp_path)
    assert acquired(again.member().fetch())[0] == (5, 5, 2)
    again.close()


def test_a_damaged_record_of_the_state_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(tmp_path)
    partition = scene.shares.store.partition_of(ShareKey(GROUP, scene.topic_id, 0))
    assert partition is not None
    bad = ShareSnapshotValue(start_offset=3, state_batches=[StateBatch(3, 9, 9, 1)])
    scene.shares.store.topic.append(
        partition.index, [Record(ShareSnapshotKey(GROUP, scene.topic_id, 0), bad)]
    )
    with caplog.at_level(logging.ERROR):
        again = killed(scene, tmp_path)
    assert "cannot be read" in caplog.text
    assert again.shares.summary(GROUP, again.topic_id, 0) == (-1, -1, 0)
    again.close()


def test_a_state_that_contradicts_itself_is_told_and_not_used(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    store, key = scene.shares.store, ShareKey(GROUP, scene.topic_id, 0)
    state = store.get(key)
    partition = store.partition_of(key)
    assert state is not None
    assert partition is not None
    bad = ShareSnapshotValue(start_offset=3, state_batches=[StateBatch(3, 9, 2, 1), StateBatch(5, 12, 0, 1)])
    assert encode(Record(ShareSnapshotKey(*key), bad))[1]
    store._replay(Record(ShareSnapshotKey(*key), bad))
    answer = scene.member().fetch()
    assert answer.responses[0].partitions[0].error_code == codes.UNKNOWN_SERVER_ERROR
    assert "cannot be used" in caplog.text


def test_what_cannot_be_stored_is_undone(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.produce(3)
    member = scene.member()
    member.fetch()

    def full(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "append", full)
        answer = member.fetch(acks={0: [(0, 1, ACCEPT)]})
        assert acks(answer) == codes.COORDINATOR_NOT_AVAILABLE
        assert member.acknowledge([(0, 1, ACCEPT)]) == codes.COORDINATOR_NOT_AVAILABLE
    assert member.acknowledge([(0, 2, ACCEPT)]) == 0


def test_what_the_disk_has_not_kept_is_taken_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The member hears of an error, and so nothing of what it said counts, now and after a restart."""
    scene = Scene(tmp_path, fsync="flush")
    scene.produce(3)
    member = scene.member()
    until(lambda: is_durable(scene, scene.log()))
    assert acquired(member.fetch()) == [(0, 2, 1)]
    key = ShareKey(GROUP, scene.topic_id, 0)
    partition = scene.shares.store.partition_of(key)
    assert partition is not None
    until(lambda: is_durable(scene, partition))
    before = scene.shares.store.get(key)
    assert before is not None
    kept = replace(before, batches=list(before.batches))
    may_write = held(scene)
    answers = member.send_acknowledgement([(0, 0, ACCEPT), (1, 1, REJECT)])
    assert answers == []
    partition.durable(partition.end_offset, OSError(5, "Input/output error"))
    assert answers[0].responses[0].partitions[0].error_code == codes.COORDINATOR_NOT_AVAILABLE
    assert scene.shares.store.get(key) == kept
    assert "are taken back" in caplog.text
    assert acquired(member.fetch()) == [(0, 2, 1)]
    assert member.acknowledge([(0, 0, ACCEPT)]) == codes.COORDINATOR_NOT_AVAILABLE
    assert caplog.text.count("are taken back") == 1
    may_write.set()
    scene.close()


def test_locks_end_also_when_that_cannot_be_stored(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene.produce(3)
    scene.member().fetch()
    with monkeypatch.context() as patch:
        patch.setattr(ShareStore, "write", lambda *_: codes.COORDINATOR_NOT_AVAILABLE)
        scene.turn(30_000)
    assert "could not be stored" in caplog.text
    assert acquired(scene.member("b").fetch()) == [(0, 2, 2)]


def test_without_a_leader_of_the_state_nothing_is_begun() -> None:
    scene = Scene(nodes=2)
    scene.core.lead(scene.log(), 1)
    scene.produce(3)
    member = scene.member()
    member.fetch()
    key = ShareKey(GROUP, scene.topic_id, 0)
    keeper = scene.shares.store.partition_of(key)
    assert keeper is not None
    assert keeper.topic.name == SHARE_STATE_TOPIC
    scene.core.lead(keeper, -1)
    assert member.acknowledge([(0, 2, ACCEPT)]) == codes.COORDINATOR_NOT_AVAILABLE
    assert scene.shares.initialise(GROUP, scene.topic_id, 0, -1, 9) == codes.COORDINATOR_NOT_AVAILABLE
    member.connection.close()
    late = scene.member()
    assert late.fetch().responses[0].partitions[0].error_code == codes.COORDINATOR_NOT_AVAILABLE
    scene.core.lead(keeper, 1)
    assert acquired(late.fetch()) == [(0, 2, 1)]
    scene.close()


def test_the_topic_of_the_states_may_be_deleted(scene: Scene) -> None:
    scene.produce(3)
    member = scene.member()
    member.fetch()
    topic = scene.cluster.topics[SHARE_STATE_TOPIC]
    scene.cluster.delete_topic(topic)
    scene.shares.topic_deleted(topic.name, topic.topic_id)
    assert scene.shares.initialised(GROUP) == {}
    assert member.acknowledge([(0, 2, ACCEPT)]) == codes.UNKNOWN_TOPIC_OR_PARTITION
    scene.initialise("t")
    assert acquired(member.fetch()) == [(0, 2, 1)]
