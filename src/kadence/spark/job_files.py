"""Modules that a job brings along (``--py-files``, ``addPyFile``), in the process of a stream's driver.

Spark puts the directory of a job's files on each Python worker's path. For the process that asks a stream's source for
offsets it puts a directory ``streaming_job`` inside of that one there, which does not exist (seen with 4.2 and 4.3).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

__all__ = ["find_job_files"]

_MISSING: Final = "streaming_job"


def find_job_files() -> None:
    """Put on the path what Spark meant to."""
    for entry in map(Path, list(sys.path)):
        if _MISSING in entry.parts and not entry.exists():
            meant = str(Path(*(part for part in entry.parts if part != _MISSING)))
            if meant not in sys.path:
                sys.path.append(meant)
