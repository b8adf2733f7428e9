"""Compaction: of each key the last record stays, offsets stay, tombstones and markers go in time (KIP-58, KIP-534)."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.broker.storage.disk import Disk
from tests.broker.storage.test_partition import NOW, partition
from tests.broker.wire import Wire, at, fetch
from tests.patience import until

from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.records import BatchHeader, FetchedRecords, encode_batch, iter_batches
from kadence_broker import Broker
from kadence_broker.storage import Isolation, Partition, compaction
from kadence_broker.storage.clean_stop import CLEAN_FILE
from kadence_broker.storage.compaction import compacting, due_of
from kadence_broker.storage.files import SWAP

DAY = 86_400_000
Value = bytes | None
Kept = tuple[int, bytes | None, Value]


def compacted(segment: int = 1_000, **config: str) -> Partition:
    chosen = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0", **config}
    return partition(segment_bytes=str(segment), **chosen)


def put(log: Partition, *pairs: tuple[str | None, str | None], now: int = NOW, **options: Any) -> int:
    """Append one batch; its first offset."""
    records = [
        (now, None if key is None else key.encode(), None if value is None else value.encode(), ())
        for key, value in pairs
    ]
    transactional_id = "x" if options.get("transactional") else None
    return log.append(
        now, memoryview(encode_batch(records, **options)), transactional_id=transactional_id
    ).base_offset


def roll(log: Partition) -> None:
    """Let what is there be complete segments."""
    log.log.roll()


def clean(log: Partition, now: int = NOW) -> bool:
    """One pass, if one is due; whether it was whole."""
    due = due_of(log, now)
    if due is None:
        return False
    return rest_of(compacting(log, due, now))


def rest_of(steps: Generator[int, None, bool]) -> bool:
    """What a pass returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


def kept(log: Partition, isolation: Isolation = Isolation.UNCOMMITTED) -> list[Kept]:
    """Offset, key and value of all records that a reader finds."""
    data = b"".join(log.read(log.start_offset, 1 << 30, isolation))
    return [(each.offset, each.key, each.value) for each in FetchedRecords(data, "t", 0, 0).take()]


def headers(log: Partition) -> list[BatchHeader]:
    data = b"".join(log.read(log.start_offset, 1 << 30, Isolation.LOG_END))
    return [header for header, _ in iter_batches(data)]


def test_the_last_of_each_key_stays_at_its_offset() -> None:
    log = compacted()
    put(log, ("a", "1"), ("b", "1"), ("a", "2"))
    put(log, ("b", "2"), ("c", "1"))
    roll(log)
    put(log, ("a", "3"))
    assert clean(log)
    assert kept(log) == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"c", b"1"), (5, b"a", b"3")]
    assert (log.start_offset, log.end_offset, log.high_watermark) == (0, 6, 6)
    assert [(each.base_offset, each.last_offset) for each in headers(log)] == [(0, 2), (3, 4), (5, 5)]


def test_the_active_segment_is_never_touched() -> None:
    log = compacted()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    assert due_of(log, NOW) is None
    roll(log)
    assert clean(log)
    assert kept(log) == [(1, b"a", b"2")]
    assert due_of(log, NOW) is None, "all of it is clean"
    put(log, ("a", "3"))
    assert due_of(log, NOW) is None


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_left_of_a_batch_is_as_it_was(codec: str) -> None:
    log = compacted()
    records = [
        (
            NOW + number * 1_000,
            b"%d" % (number % 7),
            None if number % 5 == 4 else b"v" * number,
            (("h", b"%d" % number),),
        )
        for number in range(40)
    ]
    log.append(NOW, memoryview(encode_batch(records, compression=codec)))
    before = {each.offset: each for each in FetchedRecords(b"".join(log.read(0, 1 << 20)), "t", 0, 0).take()}
    roll(log)
    assert clean(log)
    found = FetchedRecords(b"".join(log.read(0, 1 << 20)), "t", 0, 0).take()
    assert [each.offset for each in found] == list(range(33, 40))
    for each in found:
        was = before[each.offset]
        assert (each.key, each.value, each.timestamp, list(each.headers)) == (
            was.key,
            was.value,
            was.timestamp,
            list(was.headers),
        )
    (header,) = headers(log)
    assert (header.compression, header.max_timestamp) == (headers_codec(codec), NOW + 39_000)


def headers_codec(name: str) -> int:
    return ["none", "gzip", "snappy", "lz4", "zstd"].index(name)


def test_a_reader_at_an_offset_that_is_gone_goes_on_behind_it() -> None:
    log = compacted()
    for number in range(6):
        put(log, ("a", str(number)))
        roll(log)
    put(log, ("b", "0"))
    assert clean(log)
    for offset in range(6):
        data = b"".join(log.read(offset, 1))
        assert [each.offset for each in FetchedRecords(data, "t", 0, offset).take()] == [5]
    assert len(log.log.segments) == 2, "small segments became one"


def test_a_tombstone_stays_for_a_while() -> None:
    log = compacted(delete_retention_ms="1000")
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None), ("c", "1"))
    roll(log)
    put(log, ("d", "1"))
    assert clean(log)
    assert (2, b"a", None) in kept(log)
    assert (0, b"a", b"1") not in kept(log)
    assert headers(log)[1].base_timestamp == NOW + 1_000, "the delete horizon"
    assert {each.timestamp for each in found_records(log)} == {NOW}
    roll(log)
    put(log, ("d", "2"))
    assert clean(log, NOW + 999)
    assert (2, b"a", None) in kept(log)
    roll(log)
    put(log, ("d", "3"))
    assert clean(log, NOW + 1_000)
    assert [offset for offset, _, _ in kept(log)] == [1, 3, 5, 6]


def found_records(log: Partition) -> list[Any]:
    return FetchedRecords(b"".join(log.read(0, 1 << 20)), "t", 0, 0).take()


def test_a_pass_needs_enough_that_is_dirty() -> None:
    log = compacted(min_cleanable_dirty_ratio="0.5")
    put(log, *((str(number), "x") for number in range(10)))
    roll(log)
    assert clean(log)
    put(log, ("1", "y"))
    roll(log)
    assert due_of(log, NOW) is None
    put(log, *((str(number), "z") for number in range(12)))
    roll(log)
    due = due_of(log, NOW)
    assert due is not None
    assert due.first_dirty == 10


def test_records_may_have_to_be_old_enough_and_may_become_too_old() -> None:
    log = compacted(min_compaction_lag_ms="1000")
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    roll(log)
    assert due_of(log, NOW + 999) is None
    assert due_of(log, NOW + 1_000) is not None
    log = compacted(min_cleanable_dirty_ratio="1", max_compaction_lag_ms="1000")
    put(log, ("a", "1"))
    put(log, ("a", "2"), now=NOW + 1_000)
    assert len(log.log.segments) == 2, "the active segment was closed in time"
    assert due_of(log, NOW + 1_000) is None
    assert due_of(log, NOW + 1_001) is not None


def test_what_is_not_decided_is_not_touched() -> None:
    log = compacted()
    put(log, ("a", "1"))
    roll(log)
    put(log, ("a", "2"), transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    roll(log)
    put(log, ("b", "1"))
    roll(log)
    assert clean(log)
    assert kept(log)[0] == (0, b"a", b"1"), "the transaction may be aborted"
    log.append_marker(NOW, 7, 0, 0, committed=True)
    roll(log)
    put(log, ("c", "1"))
    assert clean(log)
    assert [offset for offset, _, _ in kept(log)] == [1, 2, 4]


def test_records_of_an_aborted_transaction_count_for_nothing() -> None:
    log = compacted(delete_retention_ms="1000")
    put(log, ("a", "1"))
    put(log, ("a", "2"), transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    log.append_marker(NOW, 7, 0, 0, committed=False)
    put(log, ("a", "3"), transactional=True, producer_id=8, producer_epoch=0, base_sequence=0)
    put(log, ("b", "1"), transactional=True, producer_id=8, producer_epoch=0, base_sequence=1)
    log.append_marker(NOW, 8, 0, 0, committed=False)
    roll(log)
    put(log, ("z", "1"))
    assert clean(log)
    assert kept(log, Isolation.COMMITTED) == [(0, b"a", b"1"), (6, b"z", b"1")]
    assert log.aborted(0) == []
    # The last batch of each producer tells its last sequence, and the markers stay for as long as a tombstone.
    assert [(each.base_offset, each.record_count) for each in headers(log)] == [
        (0, 1), (1, 0), (2, 1), (4, 0), (5, 1), (6, 1),
    ]  # fmt: skip


def test_a_marker_goes_when_its_records_have_gone_and_its_time_is_over() -> None:
    log = compacted(delete_retention_ms="1000")
    for number in range(3):
        put(
            log, ("a", str(number)), transactional=True, producer_id=7, producer_epoch=0, base_sequence=number
        )
        log.append_marker(NOW, 7, 0, 0, committed=True)
    roll(log)
    put(log, ("z", "1"))
    markers: list[list[int]] = []
    for later in (0, 0, 999, 1_000):
        assert clean(log, NOW + later)
        markers.append([each.base_offset for each in headers(log) if each.is_control])
        roll(log)
        put(log, ("z", "1"))
    # The first pass takes the records, the second finds none and sets the time.
    assert markers == [[1, 3, 5], [1, 3, 5], [1, 3, 5], [5]]
    assert (4, b"a", b"2") in kept(log)


def test_more_keys_than_a_pass_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_MOST_KEYS", 3)
    log = compacted()
    for _ in range(2):
        for key in "abcdef":
            put(log, (key, "x"))
    roll(log)
    put(log, ("z", "1"))
    passes = 0
    while due_of(log, NOW) is not None:
        assert clean(log)
        passes += 1
    assert passes == 4
    assert [offset for offset, _, _ in kept(log)] == list(range(6, 13))


def test_with_delete_old_records_go_too() -> None:
    log = compacted(cleanup_policy="compact,delete", retention_ms="1000")
    put(log, ("a", "1"), now=NOW)
    roll(log)
    put(log, ("b", "1"), now=NOW + 5_000)
    log.retain(NOW + 1_001)
    assert log.start_offset == 1


def test_records_that_are_deleted_during_a_pass_end_it() -> None:
    log = compacted(cleanup_policy="compact,delete", segment=10)
    for number in range(4):
        put(log, ("a", str(number)))
    due = due_of(log, NOW)
    assert due is not None
    steps = compacting(log, due, NOW)
    for _ in range(4):  # three batches were read for their keys, and one to be rewritten
        next(steps)
    log.delete_before(2)
    assert not rest_of(steps)
    assert [offset for offset, _, _ in kept(log)] == [2, 3]
    assert due_of(log, NOW) is not None


# ------------------------------------------------------------ at random, beside a model


@dataclass
class Model:
    """What should be left, record by record."""

    records: list[tuple[int, bytes, Value]] = field(default_factory=list)
    clean_upto: int = 0

    def clean(self, end: int) -> None:
        latest = {key: offset for offset, key, _ in self.records if self.clean_upto <= offset < end}
        self.records = [each for each in self.records if each[0] >= end or each[0] >= latest.get(each[1], -1)]
        self.clean_upto = end


def lives(log: Partition, dice: random.Random, steps: int) -> Iterable[Model]:
    """A random life of a log, and after each step what should be in it."""
    model = Model()
    sequence = {1: 0, 2: 0}
    for _ in range(steps):
        kind = dice.choice(["put"] * 6 + ["transaction", "roll", "roll", "clean"])
        pairs = [
            (f"k{dice.randrange(12)}", None if dice.random() < 0.2 else f"v{dice.random()}")
            for _ in range(dice.randint(1, 5))
        ]
        made = [(key.encode(), None if value is None else value.encode()) for key, value in pairs]
        if kind == "put":
            codec = dice.choice(["none", "none", "lz4"])
            base = put(log, *pairs, compression=codec)
            model.records += [(base + number, *each) for number, each in enumerate(made)]
        elif kind == "transaction":
            producer, committed = dice.choice([1, 2]), dice.random() < 0.5
            base = put(
                log, *pairs,
                transactional=True, producer_id=producer, producer_epoch=0, base_sequence=sequence[producer],
            )  # fmt: skip
            sequence[producer] += len(pairs)
            log.append_marker(NOW, producer, 0, 0, committed=committed)
            if committed:
                model.records += [(base + number, *each) for number, each in enumerate(made)]
        elif kind == "roll":
            roll(log)
        elif due_of(log, NOW) is not None:
            end = log.log.segments[-1].base_offset
            assert clean(log)
            model.clean(end)
        yield model


@pytest.mark.parametrize("seed", range(20))
def test_a_random_life_in_memory(seed: int) -> None:
    log = compacted(segment=2_000)
    for model in lives(log, random.Random(seed), 150):
        assert committed(log) == model.records
        assert all(each.first_offset >= model.clean_upto for each in log.producers.aborted.entries)


def committed(log: Partition) -> list[Kept]:
    """As a reader of committed records finds them."""
    aborted = [(each.producer_id, each.first_offset) for each in log.aborted(0)]
    data = b"".join(log.read(0, 1 << 30, Isolation.COMMITTED))
    records = FetchedRecords(data, "t", 0, 0, aborted=aborted).take()
    return [(each.offset, each.key, each.value) for each in records]


# ------------------------------------------------------------ on the disk

CONFIG: dict[str, Any] = {"is_compacted": True, "is_retained": True, "min_cleanable_dirty_ratio": 0.0}


@pytest.mark.parametrize("seed", range(6))
def test_a_random_life_over_restarts_and_kills(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    disk = Disk(tmp_path / "data", segment_bytes=2_000, **CONFIG)
    model = Model()
    sequence = {1: 0, 2: 0}
    for turn in range(4):
        log = disk.partition
        for _ in range(12):
            pairs = [(f"k{dice.randrange(12)}", f"v{dice.random()}") for _ in range(dice.randint(1, 5))]
            base = put(log, *pairs, producer_id=1, producer_epoch=0, base_sequence=sequence[1])
            sequence[1] += len(pairs)
            model.records += [
                (base + number, key.encode(), value.encode()) for number, (key, value) in enumerate(pairs)
            ]
        disk.flush()
        if due_of(log, NOW) is not None:
            end = log.log.segments[-1].base_offset
            assert clean(log)
            model.clean(end)
        disk.flush()
        assert kept(log) == model.records
        known = log.producers.known[1].last_sequence
        if dice.random() < 0.5:
            disk.close()
        else:
            path = disk.crash(tmp_path / f"killed-{turn}")
            disk.close()
            disk = Disk(path, segment_bytes=2_000, **CONFIG)
            assert kept(disk.partition) == model.records
            disk.close()
        disk = Disk(disk.path, segment_bytes=2_000, **CONFIG)
        assert kept(disk.partition) == model.records
        assert disk.partition.cleaned_upto == model.clean_upto
        assert disk.partition.producers.known[1].last_sequence == known
    disk.close()


def filled(path: Path) -> Disk:
    disk = Disk(path, segment_bytes=300, **CONFIG)
    for number in range(20):
        put(disk.partition, ("a", str(number)), (f"k{number % 3}", str(number)))
    disk.flush()
    return disk


def test_a_kill_between_the_steps_of_a_swap(tmp_path: Path) -> None:
    """The new file has the name that says what it replaces, and the old ones are there, or some of them."""
    disk = filled(tmp_path / "data")
    old = disk.crash(tmp_path / "old")
    assert clean(disk.partition)
    after = kept(disk.partition)
    disk.close()
    names = sorted(path.name for path in (disk.path / "t-0").glob("*.log"))
    first, end = (name.removesuffix(".log") for name in names[:2])
    for left in (100, 1, 0):
        half = disk.crash(tmp_path / f"half-{left}")
        folder = half / "t-0"
        (folder / names[0]).rename(folder / f"{first}-{end}{SWAP}")
        for suffix in (".index", ".timeindex"):
            (folder / first).with_suffix(suffix).unlink()
        for path in sorted((old / "t-0").glob("*.log"), reverse=True)[:left]:
            if path.stem < end:
                shutil.copy(path, folder)
        (half / CLEAN_FILE).unlink()
        again = Disk(half, segment_bytes=300, **CONFIG)
        assert kept(again.partition) == after
        assert not list(folder.glob(f"*{SWAP}"))
        again.close()


def test_a_topic_that_is_deleted_while_a_swap_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = filled(tmp_path / "data")
    assert clean(disk.partition)
    disk.cluster.delete_topic(disk.cluster.topics["t"])
    disk.flush()
    assert not list(disk.path.glob("t-0*"))
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
    disk.directory.close()


def test_a_log_that_is_not_compacted_any_more_can_be_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = filled(tmp_path / "data")
    assert clean(disk.partition)
    after = kept(disk.partition)
    disk.close()
    again = Disk(disk.path, segment_bytes=300)
    assert kept(again.partition) == after
    assert not caplog.records
    again.close()


# ------------------------------------------------------------ in a broker


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_broker_compacts_by_itself_and_a_restart_finds_what_is_left(tmp_path: Path, is_kept: bool) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0"}
    configs = [CreatableTopicConfig(name, value) for name, value in config.items()]

    def values() -> list[tuple[int, bytes | None]]:
        (told,) = wire.call(fetch("c", at(0)), 12).responses[0].partitions
        records = FetchedRecords(bytes(told.records), "c", 0, 0).take()
        return [(each.offset, each.value) for each in records]

    path = tmp_path / "data" if is_kept else None
    with Broker(config={"log.cleaner.backoff.ms": 10}, data_dir=path) as broker, Wire(broker) as wire:
        wire.call(CreateTopicsRequest(topics=[CreatableTopic("c", 1, 1, configs=configs)]))
        end = 0

        def is_compacted() -> bool:
            """After each append, with which the segment before it may become complete."""
            nonlocal end
            batch = encode_batch([(1_000 + end, b"k", b"%d" % end, ())])
            assert wire.produce_bytes("c", batch).base_offset == end
            end += 1
            return end > 20 and len(values()) < 10

        until(is_compacted)
        left = values()
        assert left[-1] == (end - 1, b"%d" % (end - 1))
    if path is not None:
        with Broker(data_dir=path) as broker, Wire(broker) as wire:
            assert values()[-1] == left[-1]
            assert len(values()) <= len(left)
