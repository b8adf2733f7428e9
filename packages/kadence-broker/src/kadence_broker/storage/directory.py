"""The data directory of a broker: who owns it, which topics there are, and a folder for each partition.

    .lock                         held while a broker uses the directory
    .kafka_cleanshutdown          the last broker ended in order, and what it left
    meta.properties               cluster id
    topics.journal                topics, their ids, settings and leaders; groups' settings; blocks of producer ids
    NAME-PARTITION/               the log, laid out as Kafka's (`kadence_broker.storage.files`)

Leader epochs rise at each start, as they do when a Kafka broker comes back. By them clients find out which records
it may have lost.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import operator
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal

from kadence.errors import ConfigError
from kadence.logs import logger
from kadence.own_files import own_directory
from kadence_broker.storage.clean_stop import (
    CLEAN_FILE,
    CleanStop,
    LeftLog,
    read_clean_stop,
    write_clean_stop,
)
from kadence_broker.storage.config import LogConfig
from kadence_broker.storage.files import open_private, write_durably
from kadence_broker.storage.flusher import Flusher
from kadence_broker.storage.folder import PartitionFolder
from kadence_broker.storage.journal import Journal

if TYPE_CHECKING:
    from kadence_broker.storage.partition import Partition

__all__ = ["FSYNC", "DataDirectory", "FsyncPolicy", "StoredTopic"]

FsyncPolicy = Literal["flush", "interval", "never"]
FSYNC: Final = ("flush", "interval", "never")
_LOCK: Final = ".lock"
_META: Final = "meta.properties"
_JOURNAL: Final = "topics.journal"
_PRODUCER_IDS: Final = 1_000
_TOPIC_ID_BYTES: Final = 16
_OWNER: Final = re.compile(r"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})\n?")

_log = logger("kadence.broker")


@dataclass(slots=True)
class StoredTopic:
    """A topic as the journal knows it; a pair of leader and leader epoch for each partition."""

    name: str
    topic_id: bytes
    config: dict[str, str] = field(default_factory=dict)
    leaders: list[tuple[int, int]] = field(default_factory=list)

    def entry(self) -> dict[str, Any]:
        return {
            "topic": self.name,
            "id": self.topic_id.hex(),
            "config": self.config,
            "leaders": [list(each) for each in self.leaders],
        }


class DataDirectory:
    """One directory, held by one broker. The loop's thread owns it once `attach` was called.

    Args:
        path: made if it is not there.
        fsync: ``flush`` (before anything is acknowledged), ``interval`` (about every second) or ``never`` (the system
            decides).

    Raises:
        ConfigError: another broker uses it, it is not a directory that we can write to, it belongs to another user or
            others may write to it, or what it says of its topics cannot be read, or is not all there.

    Attributes:
        topics: what there is, by name; kept up to date.
        group_configs: what groups have set for themselves, by group id; kept up to date.
        cluster_id: the one it was made with.
        was_clean: whether the last broker ended in order.
    """

    def __init__(self, path: str | os.PathLike[str], cluster_id: str, fsync: FsyncPolicy) -> None:
        self.path = Path(path)
        self.fsync = fsync
        self._lock = self._take()
        try:
            self.cluster_id = self._identify(cluster_id)
            self._journal = Journal(self.path / _JOURNAL)
            stop = read_clean_stop(self.path)
            self.was_clean = stop is not None or not (self.path / _JOURNAL).exists()
            self.topics: dict[str, StoredTopic] = {}
            self.group_configs: dict[str, dict[str, str]] = {}
            self._deleted: set[str] = set()
            self._last_producer_id = 0
            self._used_producer_ids = 0
            for number, entry in enumerate(self._journal.read(may_be_torn=not self.was_clean), 1):
                self._apply_read(number, entry)
            self._check_journal(stop)
            left = {} if stop is None else stop.logs
            self._unopened: dict[str, LeftLog | None] = {
                name: left.get(name) for name in self._folders_of_topics()
            }
            """The partitions that were there at the start and were not opened yet, and what is known of their logs."""
            # Not before the journal was read: a start that it refuses leaves the directory as it was.
            (self.path / CLEAN_FILE).unlink(missing_ok=True)
            if not self.was_clean:
                _log.warning(
                    "%s: the broker was not shut down cleanly; checking the ends of the logs", self.path
                )
            for topic in self.topics.values():
                topic.leaders = [(leader, epoch + 1) for leader, epoch in topic.leaders]
            self._used_producer_ids = self._last_producer_id
            self._journal.rewrite(
                [
                    {"producer_ids": self._last_producer_id},
                    *(each.entry() for each in self.topics.values()),
                    *({"group": name, "config": config} for name, config in self.group_configs.items()),
                ]
            )
            self._sweep()
        except OSError as error:
            self._lock.close()
            raise ConfigError(
                f"the data directory {self.path} cannot be used: {error.strerror or error}"
            ) from error
        except BaseException:
            self._lock.close()
            raise
        self._folders: dict[Partition, PartitionFolder] = {}
        self._flusher: Flusher | None = None

    def __repr__(self) -> str:
        return f"<DataDirectory {self.path}, {len(self.topics)} topics, fsync {self.fsync}>"

    def _take(self) -> IO[bytes]:
        if importlib.util.find_spec("fcntl") is None:
            raise ConfigError(
                "a data directory needs the file locks of POSIX, which this system lacks; keep the data in memory"
            )
        import fcntl

        try:
            own_directory(self.path)
            lock = open_private(self.path / _LOCK, appends=True)
        except OSError as error:
            raise ConfigError(
                f"the data directory {self.path} cannot be used: {error.strerror or error}"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise ConfigError(
                f"another broker uses the data directory {self.path}; stop that broker, or use another directory"
            ) from error
        return lock

    def _identify(self, cluster_id: str) -> str:
        path = self.path / _META
        with contextlib.suppress(FileNotFoundError):
            for line in path.read_bytes().splitlines():
                name, _, value = line.partition(b"=")
                if name == b"cluster.id" and value and value.isascii():
                    return value.decode()
            raise ConfigError(f"{path} names no cluster.id; correct it, or delete it to get a new id")
        if (self.path / _JOURNAL).exists():
            _log.warning("%s is not there; from now on the id of the cluster is %s", path, cluster_id)
        write_durably(path, f"version=1\ncluster.id={cluster_id}\nnode.id=1\n".encode())
        return cluster_id

    def _sweep(self) -> None:
        """Remove what deleted topics left, and put aside what no topic owns."""
        known = self._folders_of_topics()
        for folder in self.path.iterdir():
            if not folder.is_dir():
                continue
            topic = known.get(folder.name)
            owner = _owner(folder)
            if folder.name.endswith("-delete") or owner in self._deleted:
                shutil.rmtree(folder)
            elif (topic is None and owner is not None) or (
                topic is not None and owner not in (None, topic.topic_id.hex())
            ):
                aside = folder.with_name(f"{folder.name}.{os.urandom(8).hex()}-stray")
                _log.warning("%s belongs to no topic, and is renamed to %s", folder, aside.name)
                folder.rename(aside)

    def _folders_of_topics(self) -> dict[str, StoredTopic]:
        """The names of the partitions' folders."""
        return {
            f"{each.name}-{index}": each
            for each in self.topics.values()
            for index in range(len(each.leaders))
        }

    # The journal

    @property
    def journal_path(self) -> Path:
        """The file that says which topics there are, and what groups have set."""
        return self.path / _JOURNAL

    def _check_journal(self, stop: CleanStop | None) -> None:
        """Raise `ConfigError` if entries are lost: with them would be topics, settings, or which ids were given out."""
        path = self.path / _JOURNAL
        size = path.stat().st_size if path.exists() else 0
        # A journal that was written once has an entry at least.
        if not size and (stop is not None or any(_owner(each) for each in self.path.iterdir())):
            raise ConfigError(
                f"{path} is not there, or empty, and with it which topics there are; nothing has been changed. Restore "
                f"it; or, to begin without topics, move all else that is in {self.path} away"
            )
        if size and stop is not None and stop.journal_bytes not in (None, size):
            raise ConfigError(
                f"{path} has {size} bytes, and had {stop.journal_bytes} when the broker was closed: it may lack "
                "topics. Nothing has been changed. Restore it; or, to continue with its present content, "
                f"delete {self.path / CLEAN_FILE}"
            )

    def _apply_read(self, number: int, entry: Any) -> None:
        """Apply an entry of the file; one of another version, or an edited one, may be invalid."""
        try:
            self._apply(entry)
            topic = self.topics.get(entry.get("topic"))
            if topic is not None:
                _check_topic(topic)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{self.path / _JOURNAL}: line {number} is no entry that this version knows ({error!r}); "
                "start the version that wrote it, or cut the file before it"
            ) from error

    def _apply(self, entry: dict[str, Any]) -> None:
        if "producer_ids" in entry:
            self._last_producer_id = int(entry["producer_ids"])
        elif "group" in entry:
            self.group_configs.pop(entry["group"], None)
            if entry["config"]:
                self.group_configs[entry["group"]] = {
                    # Before there were share groups, all values were numbers.
                    name: value if isinstance(value, str) else str(operator.index(value))
                    for name, value in entry["config"].items()
                }
        elif "deleted" in entry:
            gone = self.topics.pop(entry["deleted"], None)
            if gone is not None:
                self._deleted.add(gone.topic_id.hex())
        else:
            leaders = [(leader, epoch) for leader, epoch in entry["leaders"]]
            topic = StoredTopic(entry["topic"], bytes.fromhex(entry["id"]), entry["config"], leaders)
            self.topics[topic.name] = topic

    def _write(self, *entries: dict[str, Any]) -> None:
        self._journal.append(*entries)
        for entry in entries:
            self._apply(entry)
        if self._flusher is not None and self.fsync == "flush":
            self._flusher.want(self._journal)

    def keep_topic(
        self, name: str, topic_id: bytes, config: Mapping[str, str], leaders: list[tuple[int, int]]
    ) -> None:
        """A topic is new, or something about it has changed. Raises `OSError`: the disk takes no more."""
        topic = StoredTopic(name, topic_id, dict(config), leaders)
        stored = self.topics.get(name)
        if stored != topic:
            self._write(topic.entry())

    def keep_leaders(self, leaders: Mapping[str, list[tuple[int, int]]]) -> None:
        """Topics have other leaders. Raises `OSError`: the disk takes no more, and knows none of it."""
        self._write(*(replace(self.topics[name], leaders=each).entry() for name, each in leaders.items()))

    def drop_topic(self, name: str) -> None:
        """A topic is deleted. Raises `OSError`: the disk takes no more."""
        self._write({"deleted": name})

    def keep_group(self, group_id: str, config: Mapping[str, str]) -> None:
        """A group has just these settings of its own now. Raises `OSError`: the disk takes no more."""
        if self.group_configs.get(group_id, {}) != config:
            self._write({"group": group_id, "config": dict(config)})

    def on_durable(self, callback: Callable[[OSError | None], None]) -> None:
        """Call ``callback`` once the changes of topics and groups are durable; at once if that is not waited for."""
        if self.fsync == "flush":
            self._journal.on_durable(callback)
        else:
            callback(None)

    def next_producer_id(self) -> int:
        """An id that was never given out, not even before a crash."""
        if self._used_producer_ids >= self._last_producer_id:
            self._write({"producer_ids": self._last_producer_id + _PRODUCER_IDS})
        self._used_producer_ids += 1
        return self._used_producer_ids

    # Partitions

    def attach(self, flusher: Flusher) -> None:
        """Serve from now on; ``flusher`` waits for the disk."""
        self._flusher = flusher
        flusher.first = self._journal

    def open(self, partition: Partition, now: int) -> PartitionFolder:
        """Load a partition, or make its folder.

        Raises:
            OSError: the disk does not give or take what is needed. ConfigError: its files are damaged.
        """
        assert self._flusher is not None
        path = self.path / f"{partition.topic.name}-{partition.index}"
        folder = PartitionFolder(
            path,
            partition,
            self._flusher,
            now,
            flushes=self.fsync == "flush",
            was_clean=self.was_clean,
            is_new=path.name not in self._unopened,
            left=self._unopened.get(path.name),
        )
        self._unopened.pop(path.name, None)
        self._folders[partition] = folder
        return folder

    def delete(self, partition: Partition) -> None:
        """Its files go."""
        folder = self._folders.pop(partition, None)
        if folder is not None:
            folder.delete()

    def flush_soon(self) -> None:
        """Make durable what is not (``interval``)."""
        for folder in self._folders.values():
            folder.flush_soon()

    def close(self) -> None:
        """Leave the directory in order; the loop has ended."""
        if self._flusher is not None:
            for folder in self._folders.values():
                folder.close()
            self._flusher.close()
            if self._is_clean():
                with contextlib.suppress(OSError):
                    self._journal.sync()
                    logs = {name: left for name, left in self._unopened.items() if left is not None}
                    logs |= {folder.path.name: folder.left() for folder in self._folders.values()}
                    write_clean_stop(self.path, CleanStop(self._journal.size, logs))
            for folder in self._folders.values():
                folder.release()
        self._journal.close()
        self._lock.close()

    def _is_clean(self) -> bool:
        """True if every partition is left in order, also those that were not loaded: another one may be refused."""
        are_loaded = len(self._folders) == sum(len(each.leaders) for each in self.topics.values())
        return (self.was_clean or are_loaded) and all(each.is_safe for each in self._folders.values())


def _check_topic(topic: StoredTopic) -> None:
    """Raise `ValueError` for an impossible topic: its name becomes part of a folder's."""
    if not topic.name or "/" in topic.name or "\0" in topic.name or len(topic.topic_id) != _TOPIC_ID_BYTES:
        raise ValueError("a topic's name or id")
    if not all(isinstance(each, int) for pair in topic.leaders for each in pair):
        raise ValueError("a topic's leaders")
    LogConfig().changed_by(topic.config)


def _owner(folder: Path) -> str | None:
    """The topic id that a partition's folder was made for, in hexadecimal.

    None if it is not such a folder, or if the file was torn by a power cut: it is not made durable.
    """
    try:
        found = _OWNER.fullmatch((folder / "partition.metadata").read_text())
    except (OSError, ValueError):
        return None
    return None if found is None else base64.urlsafe_b64decode(f"{found[1]}==").hex()
