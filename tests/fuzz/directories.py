"""The data directory of a whole broker that was damaged: records, commits, transactions; after a stop and after a kill.

The broker starts and serves, or says why it does not. The input is a list of changes to the files of a good directory.
"""

from __future__ import annotations

import functools
import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.fuzz.dispatch import Bugs
from tests.fuzz.recovery import Files, change_seeds, changed, files_in
from tests.fuzz.target import Target

from kadence import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from kadence.errors import ConfigError
from kadence_broker import Broker
from kadence_broker.storage import Isolation

__all__ = ["DIRECTORIES"]

_MEMORY: Final = Path("/dev/shm")
_STRANGE: Final = (
    "t-0/00000000000000000500.log",
    "t-0/00000000000000000003.snapshot",
    "t-9/00000000000000000000.log",
    "__consumer_offsets-0/00000000000000000001.log",
    "x-0/partition.metadata",
    ".kafka_cleanshutdown",
    "meta.properties",
    "topics.journal",
)
"""Files that may come to be there."""


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="kadence-fuzz-", dir=_MEMORY if _MEMORY.is_dir() else None)


@functools.cache
def _templates() -> tuple[Files, ...]:
    """What a broker leaves that is killed, and what one leaves that ends in order."""
    with _folder() as place:
        data, torn = Path(place, "data"), Path(place, "torn")
        with Broker(topics={"t": 2, "u": 1}, data_dir=data, fsync="never") as broker:
            servers = broker.bootstrap_servers
            with Producer(bootstrap_servers=servers, transactional_id="x") as producer:
                producer.init_transactions()
                for is_committed in (True, False, True):
                    producer.begin_transaction()
                    for number in range(3):
                        producer.send("t", b"%d" % number, b"k", partition=number % 2)
                    (producer.commit_transaction if is_committed else producer.abort_transaction)()
            with Producer(bootstrap_servers=servers) as plain:
                for number in range(20):
                    plain.send("u", b"%d" % number)
            with Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
                consumer.subscribe("u")
                consumer.poll(10)
                consumer.commit()
            with Admin(bootstrap_servers=servers) as admin:
                admin.alter_consumer_group_offsets("h", {TopicPartition("t", 0): OffsetAndMetadata(3)})
            shutil.copytree(data, torn, ignore=shutil.ignore_patterns(".lock", ".kafka_cleanshutdown"))
        return files_in(torn), files_in(data)


def _start(data: bytes) -> object:
    _, after = changed(data, _templates(), _STRANGE)
    bugs, log = Bugs(), logging.getLogger("kadence.broker")
    log.addHandler(bugs)
    try:
        with _folder() as place:
            for name, content in after.items():
                path = Path(place, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            try:
                with Broker(data_dir=place, fsync="never") as broker:
                    _serves(broker)
            except ConfigError as error:
                return error
    finally:
        log.removeHandler(bugs)
    assert not bugs.found, bugs.found[0]
    return after


def _serves(broker: Broker) -> None:
    """All that is there can be read, as far as it is whole, and asked for."""

    def read() -> None:
        core: Any = broker._core
        for topic in core.cluster.topics.values():
            for log in topic.partitions:
                assert 0 <= log.start_offset <= log.end_offset
                for offset in {log.start_offset, (log.start_offset + log.end_offset) // 2}:
                    log.read(offset, 1 << 20, Isolation.LOG_END)

    broker._on_loop(read)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.list_topics()
        for group in admin.list_groups():
            admin.list_offsets_of_groups([group.group_id])


def _seeds() -> list[bytes]:
    """No change, and changes to some of its many files."""
    return change_seeds(_templates(), _STRANGE)[::9]


DIRECTORIES: Final = Target("directories", _seeds, _start, share=200, memory=96)
