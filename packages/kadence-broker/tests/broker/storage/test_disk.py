"""A broker with a data directory: what a restart finds again, what a crash leaves, and what a full disk does."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import tempfile
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.storage.disk import Disk
from tests.broker.storage.test_partition import NOW, batch, end, idempotent, stored, transactional
from tests.broker.wire import Wire, at, fetch
from tests.patience import PATIENCE, until

from kadence.errors import ConfigError
from kadence.protocol import error_codes as codes
from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kadence.protocol.metadata import MetadataRequest
from kadence.records import BatchHeader, FetchedRecords
from kadence_broker import Broker
from kadence_broker.storage import BatchError, Isolation, Partition


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "data", segment_bytes=30_000)
    yield made
    made.close()


def test_no_other_user_may_read_what_is_stored(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        disk = Disk(tmp_path / "made" / "data", segment_bytes=30_000)
        fill(disk.partition)
        disk.flush()
        disk.close()
    finally:
        os.umask(before)
    made = [disk.path, *disk.path.rglob("*")]
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in made}
    assert len(modes) > 5
    assert modes == {path.name: "0o700" if path.is_dir() else "0o600" for path in made}


def contents(of: Partition) -> list[tuple[int, bytes | None]]:
    return [(each.offset, each.value) for each in stored(of, of.start_offset)]


def fill(log: Partition, count: int = 12) -> None:
    for number in range(count):
        log.append(NOW + number, batch(2, key=bytes(3_000), timestamp=NOW + number * 10))


def state(of: Partition) -> Any:
    producers = of.producers
    return (
        of.start_offset,
        of.end_offset,
        contents(of),
        {
            each.producer_id: (each.epoch, each.last_sequence, each.transaction_from, each.coordinator_epoch)
            for each in producers.known.values()
        },
        producers.first_open,
        producers.aborted.entries,
        of.log.epochs.entries,
        [of.offset_since(NOW + n * 10) for n in range(0, 12, 3)],
        of.offset_of_newest(),
    )


@pytest.mark.parametrize("how", ["in order", "crash", "crash without snapshots", "crash with a torn end"])
def test_a_log_is_found_again_with_all_that_follows_from_it(tmp_path: Path, how: str) -> None:
    disk = Disk(tmp_path / "data", segment_bytes=30_000)
    log = disk.partition
    log.append(NOW, idempotent(0, 2, producer=1))
    transactional(log, 0, producer=2)
    fill(log)
    end(log, 2, committed=False, coordinator=3)
    transactional(log, 0, producer=3)
    log.append(NOW, idempotent(2, producer=1), leader_epoch=5)
    disk.flush()
    log.delete_before(1)
    disk.flush()
    before = state(log)
    assert len(log.log.segments) > 2
    if how == "in order":
        disk.close()
        again = Disk(tmp_path / "data", segment_bytes=30_000)
    else:
        left = disk.crash(tmp_path / "left")
        if how == "crash without snapshots":
            for path in [*left.glob("*/*.snapshot"), *left.glob("*/leader*"), *left.glob("*/*index")]:
                path.unlink()
        if how == "crash with a torn end":
            newest = max((left / "t-0").glob("*.log"))
            with newest.open("ab") as file:
                file.write(bytes(batch(2, key=bytes(500)))[:-1])
        again = Disk(left, segment_bytes=30_000)
        disk.close()
    assert again.directory.was_clean is (how == "in order")
    assert again.cut_bytes == (0 if "torn" not in how else len(batch(2, key=bytes(500))) - 1)
    assert state(again.partition) == before
    assert again.partition.leader_epoch > log.leader_epoch
    assert again.partition.append(NOW, idempotent(2, producer=1)).duplicate
    assert again.partition.append(NOW, idempotent(3, producer=1)).base_offset == log.end_offset
    again.close()


def test_a_log_that_is_cut_anywhere_near_its_end_keeps_all_whole_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    disk = Disk(tmp_path / "data")
    log = disk.partition
    ends = []
    for number in range(5):
        log.append(NOW, idempotent(number, 1, producer=1))
        ends.append(log.log.size_bytes)
    disk.flush()
    name = "t-0/00000000000000000000.log"
    whole = (disk.path / name).read_bytes()
    left = disk.crash(tmp_path / "left")
    disk.close()
    for cut in range(ends[2], len(whole) + 1):
        (left / name).write_bytes(whole[:cut])
        again = Disk(left)
        kept = sum(each <= cut for each in ends)
        assert again.partition.end_offset == kept
        assert [offset for offset, _ in contents(again.partition)] == list(range(kept))
        assert again.partition.append(NOW, idempotent(kept, producer=1)).base_offset == kept
        again.close()
        for path in [*left.glob("t-0/*index"), *left.glob("t-0/*.snapshot"), left / ".kafka_cleanshutdown"]:
            path.unlink()


def test_a_log_with_a_damaged_byte_near_its_end_ends_before_it(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "data")
    for _ in range(3):
        disk.partition.append(NOW, batch())
    disk.flush()
    size = disk.partition.log.size_bytes // 3
    name = "t-0/00000000000000000000.log"
    whole = (disk.path / name).read_bytes()
    left = disk.crash(tmp_path / "left")
    disk.close()
    for place in [*range(2 * size, 3 * size, 7), 3 * size - 1]:
        if 12 <= place - 2 * size < 16:
            continue  # The leader epoch is under no checksum.
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        (left / name).write_bytes(damaged)
        again = Disk(left)
        assert again.partition.end_offset == 2
        again.close()
        for path in [*left.glob("t-0/*index"), *left.glob("t-0/*.snapshot"), left / ".kafka_cleanshutdown"]:
            path.unlink()


def test_an_index_that_lies_is_made_anew(disk: Disk, tmp_path: Path) -> None:
    fill(disk.partition)
    disk.flush()
    before = state(disk.partition)
    left = disk.crash(tmp_path / "left")
    for number, path in enumerate([*left.glob("t-0/*.index"), *left.glob("t-0/*.timeindex")]):
        path.write_bytes([b"\xff" * 16, b"odd", b"", os.urandom(24)][number % 4])
    again = Disk(left, segment_bytes=30_000)
    assert state(again.partition) == before
    again.close()


def sealed_segments(path: Path) -> None:
    """A log of three segments that was left in order."""
    disk = Disk(path, segment_bytes=30_000)
    fill(disk.partition)
    disk.close()


def test_a_segment_that_was_lost_is_a_hole_that_readers_step_over(tmp_path: Path) -> None:
    sealed_segments(tmp_path)
    first, second, third, *_ = sorted(tmp_path.glob("t-0/*.log"))
    second.unlink()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    again = Disk(tmp_path, segment_bytes=30_000)
    views = again.partition.read(int(second.stem), 1, Isolation.LOG_END)
    assert BatchHeader.parse(views[0]).base_offset == int(third.stem) > int(first.stem)
    again.close()


def test_a_log_that_lost_its_end_above_which_records_were_deleted_gives_no_offset_twice(
    tmp_path: Path,
) -> None:
    sealed_segments(tmp_path)
    (tmp_path / "t-0" / "log-start-offset").write_bytes(b"1000")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    logs = {path.name for path in tmp_path.glob("t-0/*.log")}
    again = Disk(tmp_path, segment_bytes=30_000)
    assert (again.partition.start_offset, again.partition.end_offset) == (1000, 1000)
    assert again.partition.append(NOW, batch(2)).base_offset == 1000
    again.flush()
    assert {path.name.removesuffix(".stray") for path in tmp_path.glob("t-0/*.stray")} == logs
    again.close()


def test_files_that_no_broker_makes_are_left_alone(tmp_path: Path) -> None:
    sealed_segments(tmp_path)
    disk = Disk(tmp_path, segment_bytes=30_000)
    before = contents(disk.partition)
    disk.close()
    names = ("x.log", "0.log", "-0000000000000000001.log", "9" * 20 + ".log", "x.snapshot", "x.txnindex")
    for name in names:
        (tmp_path / "t-0" / name).write_bytes(b"x" * 100)
    again = Disk(tmp_path, segment_bytes=30_000)
    assert contents(again.partition) == before
    assert all((tmp_path / "t-0" / name).exists() for name in names)
    again.close()


def test_a_date_that_leads_to_a_damaged_batch_is_answered_with_the_damage(tmp_path: Path) -> None:
    with Broker(topics={"t": 1}, data_dir=tmp_path) as broker, Wire(broker) as wire:
        wire.produce("t", [b"v" * 100])
        for _ in range(3):
            wire.produce("t", [b"v" * 3_000])
    (segment,) = tmp_path.glob("t-0/*.log")
    data = bytearray(segment.read_bytes())
    data[61] ^= 0x40
    segment.write_bytes(data)
    asked = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=0)])])
    with Broker(data_dir=tmp_path) as broker, Wire(broker) as wire:
        assert broker.offsets("t") == [(0, 4)]
        (answer,) = wire.call(asked, 7).topics[0].partitions
        assert codes.name(answer.error_code) == "CORRUPT_MESSAGE"


def test_segments_that_are_let_go_leave_no_file(disk: Disk) -> None:
    fill(disk.partition)
    disk.flush()
    views = disk.partition.read(0, 1 << 20)
    copy = b"".join(views)
    disk.partition.delete_before(20)
    disk.flush()
    first = min(disk.path.glob("t-0/*.log"))
    assert int(first.stem) > 10
    assert {int(path.stem) for path in disk.path.glob("t-0/*.index")} <= set(range(int(first.stem), 24))
    assert b"".join(views) == copy, "what is on its way to a reader stays"


def test_readers_see_the_same_bytes_from_memory_and_from_the_file(disk: Disk) -> None:
    log = disk.partition
    taken: list[tuple[list[memoryview], bytes]] = []
    for number in range(60):
        log.append(NOW, batch(1, key=bytes([number]) * 2_000))
        disk.flush()
        views = log.read(max(number - 5, 0), 1 << 20)
        taken.append((views, b"".join(views)))
    assert all(b"".join(views) == copy for views, copy in taken)
    assert [each.key for each in stored(log)] == [bytes([number]) * 2_000 for number in range(60)]


def test_truncation_leaves_views_alone_and_is_found_again(disk: Disk, tmp_path: Path) -> None:
    fill(disk.partition)
    disk.flush()
    views = disk.partition.read(0, 1 << 20)
    copy = b"".join(views)
    disk.partition.truncate(15, NOW)
    disk.flush()
    assert disk.partition.end_offset == 14
    disk.partition.append(NOW, batch(1), leader_epoch=3)
    disk.flush()
    assert b"".join(views) == copy
    before = state(disk.partition)
    again = Disk(disk.crash(tmp_path / "left"), segment_bytes=30_000)
    assert state(again.partition) == before
    again.close()


# Durability


def test_nothing_is_acknowledged_or_seen_before_it_is_durable(disk: Disk) -> None:
    log = disk.partition
    told: list[int] = []
    log.append(NOW, batch())
    log.on_durable(told.append)
    assert (told, log.high_watermark, log.end_offset) == ([], 0, 1)
    assert log.read(0, 1 << 20) == []
    disk.flush()
    assert (told, log.high_watermark) == ([codes.NONE], 1)
    log.on_durable(told.append)
    assert told == [codes.NONE] * 2


def test_a_bug_in_what_waits_for_the_disk_holds_nobody_else_up(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    log, told = disk.partition, list[int]()

    def fail(_code: int) -> None:
        raise RuntimeError("a bug")

    log.append(NOW, batch())
    for callback in (fail, told.append):
        log.on_durable(callback)
    disk.flush()
    assert told == [codes.NONE]
    assert "a bug in a callback" in caplog.text
    log.on_readable = lambda _partition: fail(0)
    log.append(NOW, batch())
    disk.flush()
    log.on_readable = None
    log.append(NOW, batch())
    log.on_durable(told.append)
    disk.flush()
    assert (told, log.high_watermark) == ([codes.NONE] * 2, 3)


def test_who_asks_for_the_disk_itself_waits_for_it_whatever_the_policy(tmp_path: Path) -> None:
    disk, told = Disk(tmp_path, fsync="never"), list[str]()
    log = disk.partition
    log.append(NOW, batch())
    log.on_durable(lambda _code: told.append("acknowledged"))
    log.on_flushed(lambda code: told.append(f"on the disk: {code}"))
    assert told == ["acknowledged"]
    disk.flush()
    assert told == ["acknowledged", "on the disk: 0"]
    disk.close()


def test_many_appends_share_one_fsync(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    for _ in range(50):
        disk.partition.append(NOW, batch())
    disk.flush()
    assert disk.partition.high_watermark == 50
    assert len(synced) <= 3, "the log, and at first the folder and the one above it"


def test_after_a_failed_fsync_nothing_is_acknowledged_until_a_restart(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = disk.partition
    told: list[int] = []

    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        log.append(NOW, batch())
        log.on_durable(told.append)
        disk.flush()
    log.on_durable(told.append)
    assert told == [codes.KAFKA_STORAGE_ERROR] * 2
    assert log.high_watermark == 0
    with pytest.raises(Exception, match="start the broker again"):
        log.append(NOW, batch())
    again = Disk(disk.crash(tmp_path / "left"))
    assert again.partition.append(NOW, batch()).base_offset == 1
    again.close()


def test_the_broker_serves_others_while_the_disk_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, may_go = os.fsync, threading.Event()
    with Broker(topics={"t": 1}, data_dir=tmp_path) as broker, Wire(broker) as wire, Wire(broker) as other:
        wire.produce("t", [b"first"])

        def slow(descriptor: int) -> None:
            assert may_go.wait(PATIENCE)
            real(descriptor)

        monkeypatch.setattr(os, "fsync", slow)
        wire.send_produce("t", [b"second"])
        answer = other.call(fetch("t", at(0), max_wait_ms=50, min_bytes=1 << 20), 12)
        data = answer.responses[0].partitions[0]
        assert (data.high_watermark, len(FetchedRecords(bytes(data.records), "t", 0, 0).take())) == (1, 1)
        other.send(fetch("t", at(1), max_wait_ms=20_000), 12)
        may_go.set()
        assert wire.receive().responses[0].partition_responses[0].base_offset == 1
        assert other.receive().responses[0].partitions[0].high_watermark == 2


def test_a_moment_without_descriptors_only_puts_a_flush_off(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[int] = []
    disk.partition.append(NOW, batch())
    disk.partition.on_durable(told.append)
    with monkeypatch.context() as patched:
        for name in ("dup", "open"):
            patched.setattr(os, name, without_descriptors)
        disk.flush()
        disk.partition.append(NOW, batch())
        disk.partition.on_durable(told.append)
        disk.flush()
    assert told == []
    assert caplog.text.count("records wait for the disk, which fails at present") == 1
    disk.flush()
    disk.partition.append(NOW, batch())
    disk.partition.on_durable(told.append)
    disk.flush()
    assert told == [codes.NONE] * 3
    assert "made durable again" in caplog.text


def without_descriptors(*_arguments: object, **_options: object) -> int:
    raise OSError(errno.EMFILE, "Too many open files")


def test_a_segment_that_cannot_be_mapped_anew_is_read_from_memory(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(disk.partition, 2)
    before = contents(disk.partition)
    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", without_descriptors)
        disk.partition.log.roll()
        fill(disk.partition, 1)
    disk.flush()
    assert contents(disk.partition)[: len(before)] == before
    assert disk.partition.high_watermark == 6


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors as Linux lists them")
def test_a_broker_that_is_closed_has_no_descriptors(tmp_path: Path) -> None:
    def open_files() -> list[str]:
        links = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
        return [each for each in links if each.startswith(str(tmp_path))]

    broker = Broker(topics={"t": 2}, data_dir=tmp_path)
    with Wire(broker) as wire:
        wire.produce("t", [b"v"])
    broker.close()
    for _ in range(2):
        broker = Broker(data_dir=tmp_path)
        assert open_files()
        broker.close()
        assert open_files() == []


def test_snapshots_do_not_pile_up(tmp_path: Path) -> None:
    for number in range(5):
        disk = Disk(tmp_path)
        disk.partition.append(NOW, idempotent(number, producer=1))
        disk.close()
    assert [path.stem for path in sorted(tmp_path.glob("t-0/*.snapshot"))][-1].endswith("05")
    assert len(list(tmp_path.glob("t-0/*.snapshot"))) <= 2


def test_a_topic_is_there_for_good_before_its_maker_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, may_go = os.fsync, threading.Event()
    with Broker(data_dir=tmp_path) as broker, Wire(broker) as wire, Wire(broker) as other:

        def slow(descriptor: int) -> None:
            assert may_go.wait(PATIENCE)
            real(descriptor)

        monkeypatch.setattr(os, "fsync", slow)
        topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        wire.send(CreateTopicsRequest(topics=[topic]))
        until(lambda: other.call(MetadataRequest(topics=None)).topics)
        wire.sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            wire.sock.recv(1)
        wire.sock.setblocking(True)
        may_go.set()
        assert wire.receive().topics[0].error_code == codes.NONE


# A full disk


def test_a_full_disk_refuses_records_says_so_and_serves_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, room = os.pwrite, 1 << 30

    def pwrite(descriptor: int, data: Any, offset: int) -> int:
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, memoryview(data)[: min(room, len(data))], offset)

    with Broker(topics={"t": 2}, data_dir=tmp_path) as broker, Wire(broker) as wire:
        wire.produce("t", [b"first"])
        monkeypatch.setattr(os, "pwrite", pwrite)
        room = 30
        real_pwrite = pwrite

        def torn(descriptor: int, data: Any, offset: int) -> int:
            nonlocal room
            written = real_pwrite(descriptor, data, offset)
            room -= written
            return written

        monkeypatch.setattr(os, "pwrite", torn)
        for _ in range(2):
            answer = wire.produce("t", [b"second"])
            assert answer.error_code == codes.KAFKA_STORAGE_ERROR
            assert "No space left" in answer.error_message
        assert "records refused: t-0: " in repr(broker)
        assert [each.levelname for each in caplog.records if "takes no records" in each.message] == ["ERROR"]
        topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        made = wire.call(CreateTopicsRequest(topics=[topic])).topics[0]
        assert made.error_code == codes.KAFKA_STORAGE_ERROR
        data = wire.call(fetch("t", at(0)), 12).responses[0].partitions[0]
        assert data.high_watermark == 1, "what is there can be read"
        room = 1 << 30
        assert wire.produce("t", [b"third"]).base_offset == 1
        assert "refused" not in repr(broker)
        assert wire.call(CreateTopicsRequest(topics=[topic])).topics[0].error_code == codes.NONE
    with Broker(data_dir=tmp_path) as broker, Wire(broker) as wire:
        data = wire.call(fetch("t", at(0)), 12).responses[0].partitions[0]
        assert [each.value for each in FetchedRecords(bytes(data.records), "t", 0, 0).take()] == [
            b"first",
            b"third",
        ]


# The directory


def test_topics_ids_settings_and_producer_ids_are_found_again(tmp_path: Path) -> None:
    config = [CreatableTopicConfig(name="retention.ms", value="1234567")]
    topic = CreatableTopic(name="made", num_partitions=3, replication_factor=1, configs=config)
    with Broker(nodes=2, topics={"t": 1, "gone": 2}, data_dir=tmp_path) as broker, Wire(broker) as wire:
        assert wire.call(CreateTopicsRequest(topics=[topic])).topics[0].error_code == codes.NONE
        wire.produce("gone", [b"v"])
        assert (
            wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")])).responses[0].error_code
            == 0
        )
        broker.move_leader("made", 0, 2)
        producer = wire.call(InitProducerIdRequest(transactional_id=None)).producer_id
        before = wire.call(MetadataRequest(topics=None))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        "made-0",
        "made-1",
        "made-2",
        "t-0",
    ]
    with Broker(nodes=2, topics={"t": 1}, data_dir=tmp_path) as broker, Wire(broker) as wire:
        after = wire.call(MetadataRequest(topics=None))
        assert after.cluster_id == before.cluster_id
        assert {each.name: each.topic_id for each in after.topics} == {
            each.name: each.topic_id for each in before.topics
        }
        leaders = [
            [
                [each.leader_id for each in topic.partitions]
                for topic in sorted(answer.topics, key=lambda t: t.name)
            ]
            for answer in (before, after)
        ]
        assert leaders[0] == leaders[1]
        assert wire.call(InitProducerIdRequest(transactional_id=None)).producer_id > producer
        assert broker._on_loop(lambda: broker._core.cluster.topics["made"].config) == {
            "retention.ms": "1234567"
        }
    with Broker(nodes=1, data_dir=tmp_path) as broker, Wire(broker) as wire:
        topics = wire.call(MetadataRequest(topics=None)).topics
        assert {each.leader_id for topic in topics for each in topic.partitions} == {1}, "a node less"


def test_two_brokers_never_share_a_directory(tmp_path: Path) -> None:
    with (
        Broker(data_dir=tmp_path),
        pytest.raises(ConfigError, match="another broker uses the data directory"),
    ):
        Broker(data_dir=tmp_path)
    Broker(data_dir=tmp_path).close()


def test_a_topic_made_anew_begins_empty_even_where_its_folder_was_left(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(topics={"t": 1}, data_dir=data) as broker, Wire(broker) as wire:
        wire.produce("t", [b"old"])
    shutil.copytree(data / "t-0", tmp_path / "left")
    with Broker(data_dir=data) as broker:
        broker._on_loop(lambda: broker._core.cluster.delete_topic(broker._core.cluster.topics["t"]))
    (tmp_path / "left").rename(data / "t-0")
    with Broker(topics={"t": 1}, data_dir=data) as broker:
        assert broker.offsets("t") == [(0, 0)]


def test_a_torn_journal_keeps_what_was_whole(tmp_path: Path) -> None:
    Broker(topics={"t": 1}, data_dir=tmp_path).close()
    Broker(topics={"u": 1}, data_dir=tmp_path).close()
    journal = tmp_path / "topics.journal"
    journal.write_bytes(journal.read_bytes()[:-3])
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with Broker(data_dir=tmp_path) as broker:
        assert list(broker._core.cluster.topics) == ["t"]
    assert [path.name.partition(".")[0] for path in tmp_path.glob("*-stray")] == ["u-0"]


def test_a_journal_that_is_damaged_before_its_end_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    Broker(topics={"t": 1, "u": 1}, data_dir=tmp_path).close()
    journal = tmp_path / "topics.journal"
    damaged = bytearray(journal.read_bytes())
    damaged[damaged.index(b'"t"') + 1] = ord("x")
    journal.write_bytes(damaged)
    with pytest.raises(ConfigError, match=r"topics\.journal: line 2 is damaged; restore it"):
        Broker(data_dir=tmp_path)
    assert journal.read_bytes() == damaged
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"t-0", "u-0"}


@pytest.mark.parametrize(
    "entry",
    [
        b"[]",
        b'"t"',
        b"\xff",
        b'{"topic":"t"}',
        b'{"config":{},"id":"00","leaders":[[1,0]],"topic":"t"}',
        b'{"config":{},"id":"%s","leaders":[[1,0]],"topic":"../t"}' % (b"0" * 32),
        b'{"config":{},"id":"%s","leaders":[["1",0]],"topic":"t"}' % (b"0" * 32),
        b'{"config":{"segment.bytes":"much"},"id":"%s","leaders":[[1,0]],"topic":"t"}' % (b"0" * 32),
        b'{"group":"g","config":{"consumer.session.timeout.ms":"long"}}',
    ],
)
def test_an_entry_of_the_journal_that_is_none_is_refused(tmp_path: Path, entry: bytes) -> None:
    (tmp_path / "topics.journal").write_bytes(b"%08x %s\n" % (zlib.crc32(entry), entry))
    with pytest.raises(ConfigError, match=r"topics\.journal"):
        Broker(data_dir=tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"cluster.id=\n", b"cluster.id=\xe4\n", b"node.id=1\n"]
)
def test_a_directory_without_an_id_is_refused(tmp_path: Path, content: bytes) -> None:
    Broker(data_dir=tmp_path).close()
    (tmp_path / "meta.properties").write_bytes(content)
    with pytest.raises(ConfigError, match=r"meta\.properties names no cluster\.id"):
        Broker(data_dir=tmp_path)


@pytest.mark.parametrize("fsync", ["interval", "never"])
def test_other_policies_acknowledge_at_once_and_lose_nothing_in_order(tmp_path: Path, fsync: Any) -> None:
    with Broker(topics={"t": 1}, data_dir=tmp_path, fsync=fsync) as broker, Wire(broker) as wire:
        for number in range(20):
            assert wire.produce("t", [b"v"]).base_offset == number
    with Broker(data_dir=tmp_path) as broker:
        assert broker.offsets("t") == [(0, 20)]


def test_an_unknown_policy_or_a_file_for_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="flush, interval, never"):
        Broker(data_dir=tmp_path, fsync="often")  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"/file cannot be used: File exists$"):
        Broker(data_dir=tmp_path / "file")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "data",
                "transactional",
                "commit",
                "abort",
                "big",
                "delete",
                "truncate",
                "roll",
                "crash",
                "restart",
            ]
        ),
        st.integers(1, 3),
    ),
    max_size=30,
)


@given(STEPS)
@settings(max_examples=25, deadline=None)
def test_whatever_happened_a_restart_finds_the_log_and_what_follows_from_it(
    steps: list[tuple[str, int]],
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(os, "fsync"),
        mock.patch("kadence_broker.storage.recovery._log") as said,
    ):
        path = Path(folder)
        disk = Disk(path / "0", segment_bytes=8_000)
        for number, (what, producer) in enumerate([*steps, ("crash", 1), ("restart", 1)]):
            disk = _step(disk, path, number, what, producer)
        disk.close()
        assert said.mock_calls == [], "nothing is missing"


def _step(disk: Disk, path: Path, number: int, what: str, producer: int) -> Disk:
    log = disk.partition
    known = log.producers.known.get(producer)
    sequence = known.last_sequence + 1 if known else 0
    with contextlib.suppress(BatchError):
        if what == "data":
            log.append(NOW, idempotent(sequence, producer, producer=producer, timestamp=NOW + number % 7))
        elif what == "transactional":
            transactional(log, sequence, producer)
        elif what in ("commit", "abort"):
            end(log, producer, committed=what == "commit")
        elif what == "big":
            log.append(NOW, batch(2, key=bytes(3_000), timestamp=NOW + number % 5), leader_epoch=number)
    disk.flush()
    if what == "delete":
        log.delete_before(log.start_offset + (log.end_offset - log.start_offset) * producer // 4)
    elif what == "truncate":
        log.truncate(max(log.end_offset - producer, log.start_offset), NOW)
    elif what == "roll":
        log.log.roll()
    disk.flush()
    if what not in ("crash", "restart"):
        return disk
    before = state(log)
    left = path / str(number + 1)
    if what == "crash":
        disk.crash(left)
        disk.close()
    else:
        disk.close()
        disk.path.rename(left)
    again = Disk(left, segment_bytes=8_000)
    assert state(again.partition) == before
    return again
