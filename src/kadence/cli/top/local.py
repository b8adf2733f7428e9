"""Reads what the consumers of this user's processes on this machine publish (`kadence.publish_state`)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kadence.metrics.state import published, state_directory

__all__ = ["Process", "by_member", "processes"]

_PATIENCE_S: Final = 0.5
"""How long a process may take to answer."""

_MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Process:
    """One consumer of a process here.

    Attributes:
        state: what it tells (`kadence.metrics.state`). trouble: why it tells nothing; empty when it does.
    """

    key: str
    pid: int
    state: Mapping[str, Any]
    trouble: str = ""


def processes(directory: Path | None = None) -> tuple[Process, ...]:
    """All consumers that are published here now."""
    where = directory or state_directory()
    if not hasattr(socket, "AF_UNIX"):
        return ()
    found: list[Process] = []
    try:
        for path, pid in published(where):
            found += _read(path, pid)
    except PermissionError as error:
        # Whoever may write there could answer in a consumer's place.
        return (Process(str(where), 0, {}, str(error)),)
    return tuple(found)


def by_member(found: Iterable[Process]) -> dict[str, Process]:
    """Those that are in a group, by member id."""
    return {each.state["member_id"]: each for each in found if each.state.get("member_id")}


def _read(path: Path, pid: int) -> Iterator[Process]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_PATIENCE_S)
        try:
            connection.connect(str(path))
            data = bytearray()
            while (more := connection.recv(1 << 20)) and len(data) < _MOST_BYTES:
                data += more
            document = json.loads(data)
        except TimeoutError:
            yield Process(
                path.name, pid, {}, "does not answer: C code holds its GIL, or the process is stopped"
            )
            return
        except (OSError, ValueError, RecursionError):
            # It ended without close(), or ends just now.
            return
    for number, state in enumerate(document["consumers"]):
        yield Process(f"{path.name}#{number}", pid, state)
