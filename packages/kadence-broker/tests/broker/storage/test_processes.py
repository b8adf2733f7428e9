"""A broker in a process of its own: killed while it writes, out of room, and its files read by Kafka's own tool."""

from __future__ import annotations

import json
import random
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.broker.storage.disk import Disk
from tests.broker.storage.test_disk import fill
from tests.broker.storage.test_partition import NOW, end, idempotent, transactional
from tests.broker.wire import Wire, at, fetch
from tests.patience import PATIENCE, until

from kadence import Consumer
from kadence.protocol import error_codes as codes
from kadence.records import FetchedRecords, encode_batch
from kadence_testing.kafka import Kafka


@contextmanager
def running(data: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``kadence broker`` on a free port, and its address."""
    command = [
        sys.executable,
        "-m",
        "kadence",
        "broker",
        "--port",
        "0",
        "--topic",
        "t:2",
        "--data-dir",
        str(data),
    ]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["bootstrap_servers"]
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def values(wire: Wire, partition: int) -> list[bytes]:
    found: list[bytes] = []
    while True:
        data = wire.call(fetch("t", at(len(found), partition)), 12).responses[0].partitions[0]
        assert data.error_code == codes.NONE
        if not data.records:
            return found
        found += [
            each.value for each in FetchedRecords(bytes(data.records), "t", partition, len(found)).take()
        ]


@pytest.mark.parametrize("fsync", ["flush", pytest.param("never", marks=pytest.mark.heavy)])
def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path: Path, fsync: str) -> None:
    acknowledged: list[list[bytes]] = [[], []]
    chance = random.Random(7)

    def write(address: str, partition: int) -> None:
        sequence = len(acknowledged[partition])
        with Wire(address) as wire:
            try:
                while True:
                    value = b"%d " % sequence * chance.randrange(1, 2_000)
                    answer = wire.produce("t", [value], partition)
                    assert answer.error_code == codes.NONE
                    assert answer.base_offset == sequence
                    acknowledged[partition].append(value)
                    sequence += 1
            except OSError:
                return

    for goal in (10, 20, 30, 40):
        with running(tmp_path / "data", "--fsync", fsync, "-X", "log.segment.bytes=40000") as (
            process,
            address,
        ):
            with Wire(address) as wire:
                for partition in (0, 1):
                    found = values(wire, partition)
                    known = acknowledged[partition]
                    assert found[: len(known)] == known
                    # What was written and not acknowledged may be there too.
                    assert len(found) <= len(known) + 1
                    acknowledged[partition] = found
            writers = [threading.Thread(target=write, args=(address, each)) for each in (0, 1)]
            for each in writers:
                each.start()
            until(lambda least=goal: all(len(each) >= least for each in acknowledged))  # type: ignore[misc]
            threading.Event().wait(chance.uniform(0, 0.1))
            process.kill()
            for each in writers:
                each.join(PATIENCE)
                assert not each.is_alive()
    assert len(list((tmp_path / "data").glob("t-0/*.log"))) > 1


def test_what_a_group_has_committed_outlasts_a_kill(tmp_path: Path) -> None:
    with running(tmp_path) as (process, address):
        with Wire(address) as wire:
            wire.produce("t", [b"%d" % number for number in range(10)])
        with Consumer(bootstrap_servers=address, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            seen = 0
            while seen < 4:
                seen += len(consumer.poll(timeout=PATIENCE, max_records=4 - seen))
            consumer.commit()
            process.kill()
    # The member that could not leave holds its partitions until its session ends.
    brief = [
        f"-Xgroup.consumer.{key}={ms}"
        for key, ms in {
            "min.session.timeout.ms": 1000, "session.timeout.ms": 1000,
            "min.heartbeat.interval.ms": 200, "heartbeat.interval.ms": 200,
        }.items()
    ]  # fmt: skip
    with (
        running(tmp_path, *brief) as (_, address),
        Consumer(bootstrap_servers=address, group_id="g") as consumer,
    ):
        consumer.subscribe(["t"])
        assert next(iter(consumer.poll(timeout=PATIENCE))).offset == 4


def test_a_broker_that_is_asked_to_end_leaves_its_directory_in_order(tmp_path: Path) -> None:
    with running(tmp_path) as (process, address), Wire(address) as wire:
        wire.produce("t", [b"v"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the system cannot limit another process")
def test_a_process_without_room_refuses_records_and_serves_again_once_there_is_room(tmp_path: Path) -> None:
    with running(tmp_path) as (process, address), Wire(address) as wire:
        soft = resource.RLIMIT_FSIZE
        assert wire.produce("t", [bytes(50_000)]).error_code == codes.NONE
        resource.prlimit(process.pid, soft, (100_000, resource.RLIM_INFINITY))
        seen = [wire.produce("t", [bytes(20_000)]).error_code for _ in range(4)]
        assert seen == [codes.NONE] * 2 + [codes.KAFKA_STORAGE_ERROR] * 2
        assert wire.produce("t", [bytes(20_000)], 1).error_code == codes.NONE, "another file has room"
        resource.prlimit(process.pid, soft, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert wire.produce("t", [bytes(20_000)]).base_offset == 3
        assert [len(each) for each in values(wire, 0)] == [50_000] + [20_000] * 3


def test_kafkas_tool_reads_the_files(kafka: Kafka, tmp_path: Path) -> None:
    disk = Disk(tmp_path / "data", segment_bytes=30_000)
    log = disk.partition
    log.append(NOW, idempotent(0, 2, producer=41))
    transactional(log, 0, producer=42)
    fill(log)
    end(log, 42, committed=False)
    log.append(NOW, memoryview(encode_batch([(NOW, b"last", b"value", ())])))
    disk.flush()
    log.log.roll()
    disk.close()
    folder = tmp_path / "data" / "t-0"
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        files = ",".join(str(path) for path in sorted(folder.glob(f"*{suffix}")) if path.stat().st_size)
        command = kafka.tool_command(
            "org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--files", files
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
        said = done.stdout
        # What it finds wrong, it says there, and Java which options it takes from the environment. Every first offset
        # but 0 is a gap behind -1 to it.
        harmless = ("onsecutive", "-1 is", "JAVA_TOOL_OPTIONS")
        assert [line for line in done.stderr.splitlines() if not any(text in line for text in harmless)] == []
        expected = {
            ".log": "payload: value", ".index": "offset: ", ".timeindex": "timestamp: ",
            ".txnindex": "producerId: 42 firstOffset: 2", ".snapshot": "producerId: 41 producerEpoch: 0",
        }  # fmt: skip
        assert expected[suffix] in said
