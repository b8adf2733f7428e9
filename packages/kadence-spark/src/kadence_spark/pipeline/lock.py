"""One run at a time on a checkpoint: two would write the same batches.

It is a lock of the operating system, so it always ends with the process. It works on one machine; for a checkpoint on
another file system, Spark itself ends the second query that writes a batch.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from kadence.errors import IllegalStateError
from kadence_spark.pipeline.files import _local, is_local

__all__ = ["Lock", "is_held"]


class Lock:
    """Held within ``with``.

    Raises:
        IllegalStateError: another process holds it.
    """

    def __init__(self, checkpoint: str, name: str) -> None:
        self._path = _lock_file(checkpoint)
        self._checkpoint = checkpoint
        self._name = name
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._file.close()
                raise IllegalStateError(
                    f"pipeline {self._name} is running already on the checkpoint {self._checkpoint}"
                ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def is_held(checkpoint: str) -> bool | None:
    """Whether a process of this machine runs on the checkpoint; None: unknown, it is on another file system."""
    path = _lock_file(checkpoint)
    if path is None:
        return None
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _lock_file(checkpoint: str) -> Path | None:
    return _local(checkpoint) / "kadence" / "lock" if is_local(checkpoint) else None
