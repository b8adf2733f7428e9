"""A byte of a stored log that changes: what was durable once is never cut, deleted or given out anew."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker.storage.disk import Disk
from tests.broker.storage.test_partition import NOW, batch

from kadence.errors import ConfigError
from kadence.records import BatchHeader, iter_batches
from kadence_broker import Broker
from kadence_broker.storage import Isolation

_CLEAN = ".kafka_cleanshutdown"
_BATCHES = 12


def stored(path: Path) -> Disk:
    """A log of several segments, of which all but the newest are sealed."""
    disk = Disk(path, segment_bytes=30_000)
    for number in range(_BATCHES):
        disk.partition.append(NOW + number, batch(2, key=bytes(3_000)))
    disk.flush()
    return disk


def logs(path: Path) -> list[Path]:
    return sorted(path.glob("t-0/*.log"))


def offsets(disk: Disk) -> list[int]:
    """Of all batches that a reader gets, damaged or not."""
    log, found = disk.partition, list[int]()
    while views := log.read(found[-1] + 2 if found else 0, 1 << 20, Isolation.LOG_END):
        found += [header.base_offset for view in views for header, _ in iter_batches(view)]
    return found


ALL = list(range(0, 2 * _BATCHES, 2))


def last_byte(data: bytearray) -> None:
    data[-1] ^= 1


def first_record(data: bytearray) -> None:
    data[100] ^= 1


def last_length(data: bytearray) -> None:
    """Of the last batch, which then seems to end before its segment does."""
    size = BatchHeader.parse(data).size
    data[len(data) - size + 11] ^= 1


def second_length(data: bytearray) -> None:
    """It would lead back to the same batch for ever."""
    struct.pack_into(">i", data, BatchHeader.parse(data).size + 8, -12)


def last_delta(data: bytearray) -> None:
    """The last batch seems to have many records, whose offsets are those of the next segment."""
    data[len(data) - BatchHeader.parse(data).size + 26] ^= 8


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("harm", [last_byte, first_record, last_length, second_length, last_delta])
def test_a_byte_of_an_old_segment_costs_no_other_record(
    tmp_path: Path, harm: Callable[[bytearray], None], was_clean: bool
) -> None:
    disk = stored(tmp_path / "data")
    left = disk.crash(tmp_path / "left")
    disk.close()
    if was_clean:
        left = tmp_path / "data"
    oldest, *later = logs(left)
    assert len(later) >= 2
    whole = oldest.read_bytes()
    data = bytearray(whole)
    harm(data)
    oldest.write_bytes(data)
    before = {path: path.read_bytes() for path in (oldest, *later)}
    if harm in (last_byte, first_record):
        # Each batch still leads to the next one. Who reads the damaged one finds out.
        again = Disk(left, segment_bytes=30_000)
        assert offsets(again) == ALL
        assert again.partition.append(NOW, batch()).base_offset == 2 * _BATCHES
        again.close()
        assert oldest.read_bytes() == data
        return
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=f"{oldest} is damaged at byte .* Restore the file; or"
        ) as raised:
            Broker(data_dir=left)
        assert {path: path.read_bytes() for path in logs(left)} == before
        assert (left / _CLEAN).exists() is was_clean
    copy = shutil.copytree(left, tmp_path / "copy")
    oldest.write_bytes(whole)
    again = Disk(left, segment_bytes=30_000)
    assert offsets(again) == ALL
    again.close()
    _follow_advice(str(raised.value), logs(copy))
    again = Disk(copy, segment_bytes=30_000)
    kept = offsets(again)
    assert kept == ALL[: len(kept)]
    assert len(kept) == (1 if harm is second_length else 3)
    again.close()


def _follow_advice(text: str, files: list[Path]) -> None:
    words = text.split()
    os.truncate(files[0], int(words[words.index("cut") + 3]))
    clean = files[0].parent.parent / _CLEAN
    assert text.endswith(_CLEAN) is clean.exists()
    clean.unlink(missing_ok=True)
    assert files[1].name in words
    for path in files[1:]:
        path.unlink()


def test_a_byte_of_the_newest_segment_costs_nothing_after_a_clean_end(tmp_path: Path) -> None:
    stored(tmp_path).close()
    newest = logs(tmp_path)[-1]
    data = bytearray(newest.read_bytes())
    last_byte(data)
    newest.write_bytes(data)
    again = Disk(tmp_path, segment_bytes=30_000)
    assert offsets(again) == ALL
    # Behind it nothing is appended: after a crash it would be taken for a torn end.
    again.partition.append(NOW, batch(2))
    again.flush()
    left = again.crash(tmp_path / "left")
    again.close()
    last = Disk(left, segment_bytes=30_000)
    assert offsets(last) == [*ALL, 2 * _BATCHES]
    last.close()


def test_a_byte_of_the_newest_segment_that_hides_batches_is_refused_after_a_clean_end(tmp_path: Path) -> None:
    stored(tmp_path).close()
    newest = logs(tmp_path)[-1]
    data = bytearray(newest.read_bytes())
    second_length(data)
    newest.write_bytes(data)
    with pytest.raises(
        ConfigError,
        match=rf"\.log is damaged at byte \d+, offset \d+;.* cut it to \d+ bytes, and delete .*{_CLEAN}$",
    ):
        Broker(data_dir=tmp_path)
    assert newest.read_bytes() == data


def test_segments_that_a_power_cut_has_torn_are_put_aside(tmp_path: Path) -> None:
    disk = stored(tmp_path / "data")
    left = disk.crash(tmp_path / "left")
    disk.close()
    *_, torn, newest = logs(left)
    for suffix in (".index", ".timeindex"):
        torn.with_suffix(suffix).unlink()
    data = bytearray(torn.read_bytes())
    last_byte(data)
    torn.write_bytes(data)
    aside = newest.read_bytes()
    again = Disk(left, segment_bytes=30_000)
    kept = offsets(again)
    assert kept == ALL[: len(kept)]
    assert kept[-1] < int(newest.stem) - 2
    again.close()
    assert torn.with_name(torn.name + ".stray").read_bytes() == data
    assert newest.with_name(newest.name + ".stray").read_bytes() == aside


def test_a_broker_that_could_not_load_everything_does_not_say_that_all_is_in_order(tmp_path: Path) -> None:
    with Broker(topics={"a": 1, "t": 1, "z": 1}, data_dir=tmp_path):
        pass
    stored(tmp_path).close()
    second = logs(tmp_path)[1]
    second.write_bytes(bytes(100) + second.read_bytes()[100:])
    (tmp_path / _CLEAN).unlink()
    with pytest.raises(ConfigError, match="is damaged at byte 0"):
        Broker(data_dir=tmp_path)
    assert not (tmp_path / _CLEAN).exists()


def test_a_broker_that_served_nothing_writes_nothing_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path).close()
    files = {path: path.read_bytes() for path in tmp_path.glob("t-0/*")}
    again = Disk(tmp_path, segment_bytes=30_000)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    again.close()
    assert len(synced) == 1, "the file that says that all is in order"
    assert {path: path.read_bytes() for path in tmp_path.glob("t-0/*")} == files


@pytest.mark.parametrize("fsync", ["flush", "never"])
def test_a_byte_of_the_list_of_topics_costs_no_topic_after_a_clean_end(tmp_path: Path, fsync: str) -> None:
    with Broker(data_dir=tmp_path, fsync=fsync) as broker:  # type: ignore[arg-type]
        broker.create_topic("first")
        broker.create_topic("last")
    journal = tmp_path / "topics.journal"
    whole = journal.read_bytes()
    for damaged in (whole[:-3] + b"x" + whole[-2:], whole[:-1]):
        journal.write_bytes(damaged)
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"topics\.journal: line \d+ is damaged; restore it"):
                Broker(data_dir=tmp_path)
        assert journal.read_bytes() == damaged
    journal.write_bytes(whole)
    with Broker(data_dir=tmp_path) as broker:
        assert broker.offsets("first") == broker.offsets("last") == [(0, 0)]
