"""Reads the state that consumers of this user's processes publish on this machine (`kadence.publish_state`)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kadence.lazy_dataclasses import dataclass
from kadence.metrics.state import published, state_directory

__all__ = ["Process", "by_member", "processes"]

_PATIENCE_S: Final = 0.5
"""How long a process may take to answer."""

_MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Process:
    """One consumer of a process here.

    Attributes:
        state: its published state (`kadence.metrics.state`). trouble: why there is none; empty if there is.
    """

    key: str
    pid: int
    state: Mapping[str, Any]
    trouble: str = ""


def processes(directory: Path | None = None) -> tuple[Process, ...]:
    """All consumers that publish their state on this machine now."""
    if not hasattr(socket, "AF_UNIX"):
        return ()
    where = directory or state_directory()
    found: list[Process] = []
    try:
        for path, pid in published(where):
            found += _read(path, pid)
    except PermissionError as error:
        # Another user with write access could answer in a consumer's place.
        return (Process(str(where), 0, {}, str(error)),)
    return tuple(found)


def by_member(found: Iterable[Process]) -> dict[str, Process]:
    """The consumers in groups, by member id."""
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
            # It ended without close(), or is ending.
            return
    for number, state in enumerate(document["consumers"]):
        yield Process(f"{path.name}#{number}", pid, state)
