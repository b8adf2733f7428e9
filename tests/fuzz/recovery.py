"""A data directory that was damaged: the broker starts with all that lies before the damage, or says why it does not.

The input is a list of changes to the files of a good directory. After them either a `ConfigError` (or an `OSError`,
which the broker makes one of) is raised, or every batch before the first damaged byte of the log is there, the
partition takes records, and another start finds the same.
"""

from __future__ import annotations

import contextlib
import functools
import random
import re
import struct
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from unittest import mock
from uuid import UUID
from zlib import crc32

from tests.broker.storage.disk import Disk
from tests.broker.storage.test_partition import NOW, batch, end, idempotent, transactional
from tests.fuzz.target import Target

from kadence.errors import ConfigError, CorruptRecordError
from kadence.records import BatchHeader, crc32c
from kadence.records.batch import CRC_FROM, HEADER_SIZE, LOG_OVERHEAD
from kadence_broker.storage import Isolation, Partition

__all__ = ["RECOVERY", "Files", "change_seeds", "changed", "files_in"]

Files = dict[str, bytes]
_PARTITION: Final = "t-0"
_SEGMENT: Final = re.compile(_PARTITION + r"/[0-9]{20}\.log")
_SEGMENT_BYTES: Final = 16_000
_SAY_WHAT_COUNTS: Final = (
    f"{_PARTITION}/log-start-offset",
    f"{_PARTITION}/partition.metadata",
    "topics.journal",
)
"""Files that say from where on the log counts, or whether it does."""
_CHANGE: Final = struct.Struct(">BBHB")
"""Number of the file, what to do, where, and a byte to do it with."""
_STRANGE: Final = (
    f"{_PARTITION}/0.log",
    f"{_PARTITION}/x.log",
    f"{_PARTITION}/x.snapshot",
    f"{_PARTITION}/99999999999999999999.log",
    f"{_PARTITION}/99999999999999999999.snapshot",
    f"{_PARTITION}/00000000000000000500.log",
    f"{_PARTITION}/-0000000000000000001.log",
    f"{_PARTITION}/00000000000000000000.txnindex",
    f"{_PARTITION}/log-start-offset",
    f"{_PARTITION}/a.tmp/b",
    f"{_PARTITION}/a.log/b",
    "meta.properties",
    "t-1/x",
    "t-x/00000000000000000000.log",
)
"""Files that may come to be there."""


def files_in(folder: Path) -> Files:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@functools.cache
def _templates() -> tuple[Files, ...]:
    """What a crash leaves, and what a broker leaves that ended in order: three segments, producers, transactions."""
    # Topics have the same id each time, so that a change to a byte is the same change.
    same_ids = mock.patch("kadence_broker.cluster.uuid4", return_value=UUID(int=7))
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"), same_ids:
        disk = Disk(Path(folder, "data"), segment_bytes=_SEGMENT_BYTES)
        log = disk.partition
        log.append(NOW, idempotent(0, 2, producer=1))
        transactional(log, 0)
        transactional(log, 0, producer=8)
        end(log, 8, committed=False)
        for number in range(12):
            log.append(NOW + number, batch(3, key=bytes(1_000), timestamp=NOW + number))
        end(log, committed=True)
        log.lead(1)
        log.append(NOW, batch(2))
        disk.flush()
        torn = disk.crash(Path(folder, "torn"))
        disk.close()
        return files_in(torn), files_in(Path(folder, "data"))


def changed(data: bytes, templates: Sequence[Files], strange: Sequence[str]) -> tuple[Files, Files]:
    """The files before and after the changes; the first byte says which template they are made to.

    Args:
        strange: files that may come to be there.
    """
    before = templates[data[0] % len(templates) if data else 0]
    after = dict(before)
    names = [*before, *strange]
    changes = data[1 : 1 + (len(data) - 1) // _CHANGE.size * _CHANGE.size]
    for number, kind, place, byte in _CHANGE.iter_unpack(changes[: _MOST * _CHANGE.size]):
        name = names[number % len(names)]
        content = after.get(name, b"")
        at, way = place % (len(content) + 1), kind & 0x0F
        if way == _REMOVE:
            after.pop(name, None)
            continue
        if way == _SWAP:
            other = names[place % len(names)]
            after[name], after[other] = after.get(other, b""), content
            continue
        content = _WAYS[way % len(_WAYS)](content[:at], content[at:], byte)
        if kind & 0x10 and name.endswith(".log"):
            content = _with_checksums(content)
        elif kind & 0x10 and name.endswith(".journal"):
            content = b"".join(_line(each) for each in content.splitlines())
        after[name] = content
    return before, after


_MOST: Final = 6
"""Changes to one directory."""
_REMOVE: Final = 15
_SWAP: Final = 14
_WAYS: Final[tuple[Callable[[bytes, bytes, int], bytes], ...]] = (
    lambda head, tail, byte: head + bytes([byte]) + tail[1:],
    lambda head, tail, byte: head + (bytes([tail[0] ^ (1 << (byte & 7))]) + tail[1:] if tail else tail),
    lambda head, tail, byte: head,
    lambda head, tail, byte: head + bytes(byte) + tail[byte:],
    lambda head, tail, byte: head + bytes([byte]) * 3 + tail,
    lambda head, tail, byte: head + tail[byte + 1 :],
    lambda head, tail, byte: head + head[: byte * 16] + tail,
    lambda head, tail, byte: head + struct.pack(">i", -byte) + tail[4:],
    lambda head, tail, byte: b"%d" % (byte - 2),
    lambda head, tail, byte: head + random.Random(byte).randbytes(4 * byte) + tail[byte:],
)


def _with_checksums(log: bytes) -> bytes:
    """The batches of a file with true checksums, as far as their lengths lead."""
    made = bytearray(log)
    at = 0
    while at + HEADER_SIZE <= len(made):
        (length,) = struct.unpack_from(">i", made, at + 8)
        end = at + length + LOG_OVERHEAD
        if length < HEADER_SIZE - LOG_OVERHEAD or end > len(made):
            break
        struct.pack_into(">I", made, at + 17, crc32c(bytes(made[at + CRC_FROM : end])))
        at = end
    return bytes(made)


def _line(line: bytes) -> bytes:
    body = line.partition(b" ")[2]
    return b"%08x %s\n" % (crc32(body), body)


def _start(data: bytes) -> object:
    before, after = changed(data, _templates(), _STRANGE)
    with tempfile.TemporaryDirectory() as place, mock.patch("os.fsync"):
        folder = Path(place, "data")
        for name, content in after.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        try:
            disk = Disk(folder, segment_bytes=_SEGMENT_BYTES)
        except (ConfigError, OSError) as error:
            # Nothing may have been made smaller: whoever mends the directory finds all that was there.
            assert _logs(files_in(folder)) >= _logs(after)
            return error
        try:
            state = _judge(disk, before, after)
        finally:
            disk.close()
        again = Disk(folder, segment_bytes=_SEGMENT_BYTES)
        try:
            # A damaged byte that no index led to is found later, and the log is cut there then.
            if _segments_of(before) == _segments_of(after):
                assert _state(again.partition) == state
        finally:
            again.close()
    return state


def _judge(disk: Disk, before: Files, after: Files) -> object:
    log = disk.partition
    found = _bytes(log)
    if not any(before.get(name) != after.get(name) for name in _SAY_WHAT_COUNTS):
        kept = _undamaged(_segments_of(before), _segments_of(after))
        assert found[: len(kept)] == kept, (len(found), len(kept))
    for offset in range(log.start_offset, log.end_offset, 3):
        log.read(offset, 500, Isolation.LOG_END)
        # Checksums of what an index led past are the readers' to verify, and this one reads a batch by itself.
        with contextlib.suppress(CorruptRecordError):
            log.offset_since(NOW + offset)
    with contextlib.suppress(CorruptRecordError):
        log.offset_of_newest()
    appended = log.append(NOW, batch(2))
    disk.flush()
    assert log.end_offset == appended.base_offset + 2
    assert log.high_watermark == log.end_offset
    return _state(log)


def _logs(files: Files) -> int:
    return sum(len(content) for name, content in files.items() if name.endswith(".log"))


def _segments_of(files: Files) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if _SEGMENT.fullmatch(name)}


def _undamaged(before: dict[str, bytes], after: dict[str, bytes]) -> bytes:
    """The whole batches before the first byte that has changed."""
    kept = b""
    for name, content in sorted(before.items()):
        now = after.get(name, b"")
        if now != content:
            common = next(
                (number for number, pair in enumerate(zip(content, now, strict=False)) if pair[0] != pair[1]),
                min(len(content), len(now)),
            )
            at = 0
            while at + HEADER_SIZE <= common and (size := BatchHeader.parse(content, at).size) <= common - at:
                at += size
            return kept + content[:at]
        kept += content
    return kept


def _bytes(log: Partition) -> bytes:
    return b"".join(log.read(log.start_offset, 1 << 30, Isolation.LOG_END))


def _state(log: Partition) -> object:
    return log.start_offset, log.end_offset, _bytes(log), log.last_stable_offset


def change_seeds(templates: Sequence[Files], strange: Sequence[str]) -> list[bytes]:
    """A change to each file, and none at all."""
    chance = random.Random(0)
    seeds = [bytes([template]) for template in range(len(templates))]
    for template, files in enumerate(templates):
        for number in range(len(files) + len(strange)):
            change = _CHANGE.pack(
                number, chance.randrange(32), chance.randrange(2**16), chance.randrange(256)
            )
            seeds.append(bytes([template]) + change)
    return seeds


RECOVERY: Final = Target("recovery", lambda: change_seeds(_templates(), _STRANGE), _start, share=1_200)
