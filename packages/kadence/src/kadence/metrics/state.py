"""`publish_state`: a process publishes the state of its consumers for ``kadence top`` on the same machine.

    with kadence.publish_state(consumer):
        ...

Nothing is published unless this is called. A thread listens on a Unix socket in a directory that only this user may
enter, and answers each connection with one JSON document. It calls the methods of `Consumer` that any thread may
call, and sends no request to a broker. The document never contains keys and values of records.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from kadence.errors import KafkaError, MissingDependencyError
from kadence.metrics import MetricName
from kadence.own_files import check_own, own_directory
from kadence.types import GroupMetadata, TopicPartition
from kadence.weak import all_of

__all__ = ["StatePublisher", "publish_state", "published", "state_directory"]

_LATEST: Final = 20
"""The number of the latest stalls and rebalances of each consumer that are published."""

_AGAIN_S: Final = 0.1
"""The delay before a connection that could not be accepted is tried again."""

_NAME: Final = re.compile(r"([0-9]{1,9})-[0-9a-f]+\.sock")
"""Of a socket: the process, and which publisher in it."""


class _Published(Protocol):
    """The calls of a consumer, on any thread."""

    def assignment(self) -> frozenset[TopicPartition]: ...
    def not_fetched(self) -> Mapping[TopicPartition, Any]: ...
    def current_lag(self, partition: TopicPartition) -> int | None: ...
    def group_metadata(self) -> GroupMetadata: ...
    def rebalances(self) -> Iterable[Any]: ...
    def stalls(self) -> Iterable[Any]: ...
    def network_lateness(self) -> Any: ...
    def metrics(self) -> Mapping[MetricName, float]: ...


def state_directory() -> Path:
    """The directory of the sockets: ``$KADENCE_STATE_DIR``, else this user's directory for run-time files."""
    named = os.environ.get("KADENCE_STATE_DIR")
    if named:
        return Path(named)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "kadence" if runtime else Path(tempfile.gettempdir()) / f"kadence-{os.getuid()}"


def published(directory: Path) -> Iterator[tuple[Path, int]]:
    """The sockets of `publish_state` in a directory, each with the number of its process.

    The directory may have files of other programs, too: they are not ours to open or to remove.

    Raises:
        PermissionError: it belongs to another user, or others may write to it: they could answer in our place.
    """
    if not directory.is_dir():
        return
    check_own(directory)
    for path in sorted(directory.iterdir()):
        named = _NAME.fullmatch(path.name)
        if named is not None and _is_own_socket(path):
            yield path, int(named[1])


def _is_own_socket(path: Path) -> bool:
    try:
        about = path.lstat()
    except FileNotFoundError:
        # Its process ends just now.
        return False
    return stat.S_ISSOCK(about.st_mode) and about.st_uid == os.getuid()


def publish_state(*consumers: _Published) -> StatePublisher:
    """Let your ``kadence top`` on this machine show these consumers: what is not fetched, stalls, rebalances.

    Args:
        consumers: each a `kadence.Consumer` or `kadence.AsyncConsumer`. The publisher does not keep them alive.

    Returns:
        The publisher. It stops at its ``close()`` or at the end of ``with``.

    Raises:
        MissingDependencyError: this system has no Unix sockets. OSError: the socket cannot be made, or its directory
            belongs to another user, or others may write to it.
    """
    return StatePublisher(*consumers)


class StatePublisher:
    """Publishes the state of consumers on a Unix socket. Made by `publish_state`.

    Attributes:
        path: the path of the socket.
    """

    def __init__(self, *consumers: _Published) -> None:
        if not hasattr(socket, "AF_UNIX"):
            raise MissingDependencyError(
                "publish_state() needs Unix sockets, which this system does not have"
            )
        self._consumers: weakref.WeakSet[_Published] = weakref.WeakSet(consumers)
        self._pid = os.getpid()
        directory = own_directory(state_directory())
        _clear(directory)
        self.path = directory / f"{self._pid}-{id(self):x}.sock"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(str(self.path))
            # No connection is possible before listen().
            self.path.chmod(0o600)
            self._listener.listen()
        except OSError:
            self._listener.close()
            raise
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="kadence-state", daemon=True)
        self._thread.start()

    def add(self, consumer: _Published) -> None:
        """Publish this consumer, too. Any thread may call it."""
        self._consumers.add(consumer)

    def close(self) -> None:
        """Stop publishing. Further calls do nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if os.getpid() == self._pid:
            # A connection wakes the thread from accept(), on every system.
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waker:
                try:
                    waker.connect(str(self.path))
                except OSError:
                    # The socket was removed. The thread is a daemon, and ends with the process.
                    pass
                else:
                    self._thread.join()
            self.path.unlink(missing_ok=True)
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<StatePublisher {self.path} {'closed' if self._is_closed else 'open'}>"

    # ------------------------------------------------------------ the thread

    def _serve(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                # Closed; or the process has no file descriptor left, and may have one in a moment.
                if not self._is_closed:
                    time.sleep(_AGAIN_S)
                continue
            with connection:
                connection.settimeout(1.0)
                try:
                    connection.sendall(self._document())
                except OSError:
                    # The client has gone, or does not read.
                    continue

    def _document(self) -> bytes:
        said: dict[str, Any] = {"pid": self._pid, "at": time.time()}
        said["consumers"] = [_state_of(consumer) for consumer in all_of(lambda: self._consumers)]
        return json.dumps(said).encode()


def _clear(directory: Path) -> None:
    """Remove the sockets that processes left which ended without close()."""
    for path, pid in published(directory):
        if not _runs(pid) and not _is_listened_to(path):
            path.unlink(missing_ok=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # It is another user's.
        return True
    return True


def _is_listened_to(path: Path) -> bool:
    """True if any process has the socket; only its refusal means that none has."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


def _state_of(consumer: _Published) -> dict[str, Any]:
    """One consumer as JSON takes it. Times are in seconds since 1970."""
    held = consumer.not_fetched()
    late = consumer.network_lateness()
    metrics = consumer.metrics()
    stuck = _stuck(metrics)
    return {
        **_identity(consumer, metrics),
        "work": _work(metrics),
        "partitions": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "lag": _lag(consumer, tp),
                "not_fetched": _why(held[tp]) if tp in held else None,
                "stuck": stuck.get(tp),
            }
            for tp in sorted(consumer.assignment())
        ],
        "stalls": [
            {
                "since": stall.since.timestamp(),
                "ended": None if stall.ended_at is None else stall.ended_at.timestamp(),
                "timeout": stall.timeout_ms / 1000,
                "left_group": stall.left_group,
                "thread": stall.thread,
                "stack": stall.stack,
                "records": stall.records,
            }
            for stall in list(consumer.stalls())[-_LATEST:]
        ],
        "rebalances": [
            {
                "started": each.started_at.timestamp(),
                "ended": each.ended_at.timestamp(),
                "cause": each.cause,
                "generation": each.generation,
                "added": [str(tp) for tp in each.added],
                "removed": [str(tp) for tp in each.removed],
            }
            for each in list(consumer.rebalances())[-_LATEST:]
        ],
        "lateness": {
            "last": late.last,
            "longest": late.longest,
            "longest_ago": late.longest_ago,
            "fallback_heartbeats": late.fallback_heartbeats,
        },
    }


def _work(metrics: Mapping[MetricName, float]) -> dict[str, int] | None:
    """The number of records that `process` has in progress; None before it was first called."""
    found = {
        name.name: int(value)
        for name, value in metrics.items()
        if name.name.startswith("work-") and "partition" not in name.tags
    }
    if not found:
        return None
    return {
        "running": found["work-running"],
        "waiting": found["work-waiting"],
        "retrying": found["work-retrying"],
        "paused": found["work-paused"],
        "key_waiting": found["work-key-waiting-max"],
    }


def _stuck(metrics: Mapping[MetricName, float]) -> dict[TopicPartition, dict[str, Any]]:
    """The records that run and hold up the committed offset of their partition: their offset, for how many seconds."""
    found: dict[TopicPartition, dict[str, Any]] = {}
    for name, value in metrics.items():
        if name.name in ("work-stuck-offset", "work-stuck-seconds"):
            tp = TopicPartition(name.tags["topic"], int(name.tags["partition"]))
            key = "offset" if name.name == "work-stuck-offset" else "for"
            found.setdefault(tp, {})[key] = int(value) if key == "offset" else value
    return {tp: each for tp, each in found.items() if each["offset"] >= 0}


def _identity(consumer: _Published, metrics: Mapping[MetricName, float]) -> dict[str, Any]:
    client = next((name.tags["client-id"] for name in metrics if "client-id" in name.tags), "")
    try:
        group = consumer.group_metadata()
    except KafkaError:
        # It has no group.id.
        return {"client_id": client, "group_id": None, "member_id": "", "generation": -1}
    return {
        "client_id": client,
        "group_id": group.group_id,
        "member_id": group.member_id,
        "generation": group.generation_id,
    }


def _lag(consumer: _Published, partition: TopicPartition) -> int | None:
    try:
        return consumer.current_lag(partition)
    except KafkaError:
        # It was taken away meanwhile.
        return None


def _why(held: Any) -> dict[str, Any]:
    return {
        "reason": held.reason.name,
        "words": held.reason.value,
        "for": held.since,
        "detail": held.detail,
        "expected": held.reason.is_expected,
    }
