"""Files of a data directory that have gone or lost their end: nothing is taken for all that there was, in silence."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.storage.disk import Disk
from tests.broker.storage.test_disk import state
from tests.broker.storage.test_partition import NOW, batch, end, idempotent, transactional
from tests.broker.wire import Wire

from kadence import Producer
from kadence.errors import ConfigError
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.records import BatchHeader
from kadence_broker import Broker
from kadence_broker.storage import DataDirectory

_CLEAN = ".kafka_cleanshutdown"
_SEGMENT_BYTES = 8_000
_LOCK = ".lock"


@functools.cache
def _template(folder: Path) -> Path:
    """A directory that was left in order: several segments, producers, aborted transactions, deleted records."""
    disk = Disk(folder / "data", segment_bytes=_SEGMENT_BYTES)
    log = disk.partition
    log.append(NOW, idempotent(0, 2, producer=1))
    for number in range(2):
        transactional(log, 0, producer=10 + number)
        log.append(NOW + number, batch(3, key=bytes(3_000), timestamp=NOW + number))
        end(log, 10 + number, committed=number == 0)
    disk.flush()
    log.lead(1)
    log.append(NOW, batch(2), leader_epoch=7)
    disk.flush()
    log.delete_before(4)
    disk.cluster.create_topic("u", 2, {"retention.ms": "-1"})
    disk.cluster.configure_group("g", {"consumer.session.timeout.ms": "50000"})
    disk.cluster.new_producer_id()
    disk.flush()
    disk.crash(folder / "crash")
    disk.close()
    return folder


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        return _template(tmp_path_factory.mktemp("losses"))


def _gone(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _shorter(path: Path) -> None:
    """Without its last batch, line or entry: what is left looks whole."""
    data = path.read_bytes()
    if path.suffix == ".log":
        at = last = 0
        while at < len(data):
            at, last = at + BatchHeader.parse(data, at).size, at
        size = last
    elif b"\n" in data:
        size = data.rstrip(b"\n").rfind(b"\n") + 1
    else:
        size = len(data) - {".index": 8, ".timeindex": 12, ".txnindex": 34}.get(path.suffix, 1)
    os.truncate(path, max(size, 0))


def _all(disk: Disk) -> Any:
    """What a directory keeps; leader epochs rise with each start."""
    topics = {
        name: (topic.topic_id, topic.config, len(topic.partitions))
        for name, topic in disk.cluster.topics.items()
    }
    return (
        disk.directory.cluster_id,
        topics,
        disk.cluster.group_configs,
        disk.cluster.new_producer_id(),
        *_log_state(disk),
    )


def _log_state(disk: Disk) -> Any:
    """When an epoch began whose first records are deleted, nobody needs to know."""
    *before, epochs, by_time, newest = state(disk.partition)
    first = disk.partition.log.segments[0].base_offset
    return *before, [(epoch, max(offset, first)) for epoch, offset in epochs], by_time, newest


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != _LOCK
    }


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


def _try(folder: Path, before: Any, caplog: pytest.LogCaptureFixture, name: str) -> str:
    """What became of a directory in which one file was harmed: "same", "refused" or "warned"."""
    files = _files(folder)
    caplog.clear()
    try:
        disk = Disk(folder, segment_bytes=_SEGMENT_BYTES)
    except ConfigError as error:
        if str(folder / name) not in str(error):
            raise
        now = _files(folder)
        assert {each: data for each, data in files.items() if each.endswith(".log")} == {
            each: data for each, data in now.items() if each.endswith(".log")
        }
        return "refused"
    try:
        found = _all(disk)
    finally:
        disk.close()
    said = [each.getMessage() for each in caplog.records if "not shut down cleanly" not in each.getMessage()]
    if found == before:
        return "same"
    return "warned" if any(str(folder / Path(name).parts[0]) in each for each in said) else "silent"


def _results(
    template: Path, tmp_path: Path, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> dict[str, str]:
    """What becomes of a directory, for each of its files that is harmed."""
    disk = Disk(shutil.copytree(template, tmp_path / "whole"), segment_bytes=_SEGMENT_BYTES)
    before = _all(disk)
    disk.close()
    results: dict[str, str] = {}
    for number, name in enumerate(_files(template)):
        folder = shutil.copytree(template, tmp_path / str(number))
        harm(folder / name)
        results[name] = _try(folder, before, caplog, name)
        shutil.rmtree(folder)
    return results


@pytest.mark.parametrize("harm", [_gone, _shorter])
def test_no_file_is_lost_in_silence_after_a_clean_end(
    tmp_path: Path, template: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Path], None]
) -> None:
    results = _results(template / "data", tmp_path, harm, caplog)
    assert {Path(name).suffix or Path(name).name for name in results} >= {
        *(".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".journal"),
        *("log-start-offset", "leader-epoch-checkpoint", _CLEAN),
    }
    refused = {name for name, found in results.items() if found == "refused"}
    assert refused == {name for name in results if name.endswith((".log", ".journal"))}
    assert {found for name, found in results.items() if name not in refused} == {"same"}, "it is made anew"


@pytest.mark.parametrize("harm", [_gone, _shorter])
def test_after_a_crash_only_what_has_no_proof_beside_it_is_taken_as_it_is(
    tmp_path: Path, template: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Path], None]
) -> None:
    results = _results(template / "crash", tmp_path, harm, caplog)
    newest = max(name for name in results if name.endswith(".log"))
    silent = {name for name, found in results.items() if found == "silent"}
    assert silent <= {newest, "topics.journal", *(name for name in results if name.endswith(".txnindex"))}
    oldest = min(name for name in results if name.endswith(".log"))
    assert results[oldest] == results["t-0/log-start-offset"] == "warned"


def _stored(folder: Path, count: int = 20) -> None:
    with Broker(topics={"t": 1}, data_dir=folder) as broker, Wire(broker) as wire:
        for _ in range(count):
            wire.produce("t", [b"v"])


def _log(folder: Path) -> Path:
    return folder / "t-0" / f"{0:020}.log"


def _cut_to(path: Path, batches: int) -> None:
    data, at = path.read_bytes(), 0
    for _ in range(batches):
        at += BatchHeader.parse(data, at).size
    os.truncate(path, at)


_IS_GONE = "t-0 is not there: the records of this partition, if it had any, are lost"


@pytest.mark.parametrize(
    ("harm", "missing", "said_then"),
    [
        (
            lambda folder: _cut_to(_log(folder), 10),
            "10 to 19",
            "t-0: the records of offsets 10 to 19 are missing",
        ),
        (lambda folder: os.truncate(_log(folder), 100), "1 to 19", "offsets 1 to 19 are missing"),
        (lambda folder: os.truncate(_log(folder), 0), "0 to 19", "offsets 0 to 19 are missing"),
        (lambda folder: _log(folder).unlink(), "0 to 19", "offsets 0 to 19 are missing"),
        (lambda folder: shutil.rmtree(folder / "t-0"), "0 to 19", _IS_GONE),
    ],
)
def test_a_log_that_lost_its_end_after_a_clean_stop_is_refused_with_the_offsets_that_are_missing(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    harm: Callable[[Path], None],
    missing: str,
    said_then: str,
) -> None:
    data = tmp_path / "data"
    _stored(data)
    whole = shutil.copytree(data, tmp_path / "whole")
    harm(data)
    left = _files(data)
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=rf"{_log(data)} .*: offsets {missing} are missing, and nothing"
        ) as raised:
            Broker(data_dir=data)
        now = _files(data)
        assert now.keys() == left.keys()
        assert {name for name in now if now[name] != left[name]} <= {"topics.journal", _CLEAN}
    # The two ways out.
    again = shutil.copytree(data, tmp_path / "again")
    shutil.copytree(whole / "t-0", again / "t-0", dirs_exist_ok=True)
    with Broker(data_dir=again) as broker:
        assert broker.offsets("t") == [(0, 20)]
    assert str(raised.value).endswith(f"delete {data / _CLEAN}")
    (data / _CLEAN).unlink()
    caplog.clear()
    with Broker(data_dir=data) as broker:
        assert broker.offsets("t") == [(0, int(missing.partition(" ")[0]))]
    assert said_then in caplog.text
    caplog.clear()
    Broker(data_dir=data).close()
    assert "missing" not in caplog.text, "that is said once"


def test_committed_offsets_that_are_lost_after_a_clean_stop_are_refused(tmp_path: Path) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=20)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    with Broker(topics={"t": 1}, data_dir=tmp_path) as broker, Wire(broker) as wire:
        answer = wire.call(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
        assert answer.topics[0].partitions[0].error_code == 0
    (log,) = (each for each in tmp_path.glob("__consumer_offsets-*/*.log") if each.stat().st_size)
    os.truncate(log, 0)
    with pytest.raises(ConfigError, match=rf"{log} has 0 bytes.*: offsets 0 to 0 are missing"):
        Broker(data_dir=tmp_path)


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_journal_that_is_lost_is_refused_and_its_folders_stay(tmp_path: Path, was_clean: bool) -> None:
    _stored(tmp_path)
    if not was_clean:
        (tmp_path / _CLEAN).unlink()
    journal = tmp_path / "topics.journal"
    whole = journal.read_bytes()
    for harm in (_empty, _gone):
        harm(journal)
        with pytest.raises(ConfigError, match=rf"{journal} is not there, or empty, and with it which topics"):
            Broker(data_dir=tmp_path)
        assert (tmp_path / "t-0").is_dir()
        assert (tmp_path / _CLEAN).exists() is was_clean
    journal.write_bytes(whole)
    with Broker(data_dir=tmp_path) as broker:
        assert broker.offsets("t") == [(0, 20)]


def test_a_journal_that_lost_its_last_lines_is_refused_after_a_clean_stop(tmp_path: Path) -> None:
    _stored(tmp_path)
    journal = tmp_path / "topics.journal"
    whole = journal.stat().st_size
    _shorter(journal)
    with pytest.raises(
        ConfigError, match=rf"{journal} has \d+ bytes, and had {whole} when .*delete .*{_CLEAN}"
    ):
        Broker(data_dir=tmp_path)
    assert (tmp_path / "t-0").is_dir()
    (tmp_path / _CLEAN).unlink()
    Broker(data_dir=tmp_path).close()


def test_a_cluster_id_that_is_lost_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    DataDirectory(tmp_path, "one", "flush").close()
    assert caplog.text == ""
    (tmp_path / "meta.properties").unlink()
    DataDirectory(tmp_path, "other", "flush").close()
    assert "meta.properties is not there; from now on the id of the cluster is other" in caplog.text


def test_producers_whose_snapshot_is_lost_are_warned_of(
    tmp_path: Path, template: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = shutil.copytree(template / "data", tmp_path / "data")
    for path in data.glob("t-0/*.snapshot"):
        path.unlink()
    disk = Disk(data, segment_bytes=_SEGMENT_BYTES)
    assert 1 not in disk.partition.producers.known
    disk.close()
    assert "t-0: a snapshot is lost, and with it the producers whose records are all deleted" in caplog.text


def test_a_segment_in_the_middle_that_is_lost_after_a_crash_is_warned_of(
    tmp_path: Path, template: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = shutil.copytree(template / "crash", tmp_path / "data")
    _, lost, following, *_ = sorted(data.glob("t-0/*.log"))
    lost.unlink()
    Disk(data, segment_bytes=_SEGMENT_BYTES).close()
    expected = f"t-0: the records of offsets {int(lost.stem)} to {int(following.stem) - 1} are missing"
    assert expected in caplog.text


def test_of_an_older_broker_it_is_known_only_that_it_ended_in_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _stored(tmp_path)
    (tmp_path / _CLEAN).write_bytes(b'{"version":0}\n')
    _cut_to(_log(tmp_path), 10)
    with Broker(data_dir=tmp_path) as broker:
        assert broker.offsets("t") == [(0, 10)]
    assert "t-0: the records of offsets 10 to 19 are missing" in caplog.text
    assert "not shut down cleanly" not in caplog.text


@pytest.mark.parametrize("harm", [_empty, _shorter, lambda path: path.write_bytes(b'{"version":0,"k')])
def test_a_clean_stop_that_cannot_be_read_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Path], None]
) -> None:
    _stored(tmp_path)
    harm(tmp_path / _CLEAN)
    with Broker(data_dir=tmp_path) as broker:
        assert broker.offsets("t") == [(0, 20)]
    assert f"{_CLEAN} is damaged" in caplog.text
    assert "not shut down cleanly; checking the ends of the logs" in caplog.text


def test_what_is_known_of_a_log_goes_with_its_topic(tmp_path: Path) -> None:
    _stored(tmp_path)
    with Broker(data_dir=tmp_path) as broker:
        broker._on_loop(lambda: broker._core.cluster.delete_topic(broker._core.cluster.topics["t"]))
        broker.create_topic("t")
    with Broker(data_dir=tmp_path) as broker:
        assert broker.offsets("t") == [(0, 0)]


def test_a_log_with_a_gap_names_no_offsets_that_do_not_exist(tmp_path: Path) -> None:
    """Its file is shorter, and ends at the same offset: as a log that Kafka has compacted."""
    with (
        Broker(topics={"t": 1}, data_dir=tmp_path) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        for _ in range(3):
            producer.send("t", b"v").result(10)
    (log,) = (tmp_path / "t-0").glob("*.log")
    data = log.read_bytes()
    size = len(data) // 3
    log.write_bytes(data[:size] + data[2 * size :])
    with pytest.raises(
        ConfigError, match=rf"{log} has {2 * size} bytes.*: records before its end are missing"
    ):
        Broker(data_dir=tmp_path)
