"""Files of records: the form of a file name, and files that get their name when they are complete."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, Final

from kadence.errors import KafkaError
from kadence_cli.common import UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LINES", "TABLES", "form_of", "whole_file"]

TABLES: Final = ("parquet", "arrow", "csv")
"""Forms with columns; pyarrow reads and writes them."""

LINES: Final = "lines"

_FORMS: Final = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    ".jsonl": LINES,
    ".ndjson": LINES,
    ".json": LINES,
    ".txt": LINES,
}


def form_of(name: str, asked: str | None) -> str:
    """One of `TABLES`, or `LINES`.

    Args:
        asked: --format, if it was given.

    Raises:
        UsageError: neither decides it.
    """
    if asked is not None:
        return asked if asked in TABLES else LINES
    from pathlib import Path

    form = _FORMS.get(Path(name).suffix.lower())
    if form is None:
        raise UsageError(
            f"the format of {name} is unknown: its name ends with none of "
            f"{', '.join(_FORMS)}; name it with --format"
        )
    return form


def _is_our_output(target: Path) -> bool:
    """Whether stdout or stderr goes into this file, as with /dev/stdout: replacing it would lose later output."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), target.stat()):
                return True
    return False


@contextlib.contextmanager
def whole_file(name: str) -> Iterator[BinaryIO]:
    """A file to write, under another name in the same folder; in the end it replaces the file of the given name.

    After an error, Ctrl-C or SIGTERM it is removed, and an older file of the name is unchanged.

    Raises:
        UsageError: the name is that of a folder or a device. OSError: the file cannot be written; it has the name.
    """
    # Loaded for the first file.
    from pathlib import Path

    target = Path(os.path.realpath(name))
    if target.exists() and not (target.is_file() and not _is_our_output(target)):
        raise UsageError(f"{name} is no regular file; without -o records go to stdout, as lines")
    part = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
    try:
        # "x": in a shared folder another user may have put a link at this name.
        with part.open("xb") as file:
            yield file
            file.flush()
            # Else a power loss may keep the name and lose the content.
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, KafkaError):
            told = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(error.errno, f"{told}; nothing of it was kept", name) from error
        raise
