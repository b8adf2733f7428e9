"""Modules of a job's files (``--py-files``, ``addPyFile``), in the process of a stream's driver.

Spark adds the directory of a job's files to the path of each Python worker. In the process that asks a stream's source
for offsets it adds a subdirectory ``streaming_job`` instead, which does not exist (seen with 4.2 and 4.3).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

__all__ = ["find_job_files"]

_MISSING: Final = "streaming_job"


def find_job_files() -> None:
    """Add the right directory to the path."""
    for entry in map(Path, list(sys.path)):
        if _MISSING in entry.parts and not entry.exists():
            meant = str(Path(*(part for part in entry.parts if part != _MISSING)))
            if meant not in sys.path:
                sys.path.append(meant)
