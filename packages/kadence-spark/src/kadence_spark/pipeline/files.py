"""Files of checkpoints and tables: through Spark's file systems, or on this machine only.

`HadoopFiles` needs a session and uses its file systems. `LocalFiles` needs no session, so `status` can read a local
checkpoint without starting Java.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Files", "HadoopFiles", "LocalFiles", "is_local"]


class Files(Protocol):
    """The file operations that pipelines need. Paths are texts with ``/``."""

    def read(self, path: str) -> str | None:
        """The text of a file; None if there is none."""

    def write(self, path: str, text: str) -> None:
        """Create or replace a file atomically."""

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted; none if it does not exist."""

    def sizes(self, path: str) -> dict[str, int]:
        """The bytes of each file in a directory, by name; none if it does not exist."""

    def delete(self, path: str) -> None:
        """Remove a file, or a directory with its content, if it exists."""

    def move(self, path: str, target: str) -> None:
        """Rename; the target must not exist."""


def is_local(path: str) -> bool:
    """Whether a path has no scheme, or file:."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path) is None or path.startswith("file:")


class LocalFiles:
    """`Files` of this machine."""

    def read(self, path: str) -> str | None:
        try:
            return _local(path).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, path: str, text: str) -> None:
        target = _local(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=target.parent, prefix=".", delete=False, encoding="utf-8"
        ) as half:
            half.write(text)
        Path(half.name).replace(target)

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(_local(path)))  # noqa: PTH208 - names are wanted, not paths
        except (FileNotFoundError, NotADirectoryError):
            return []

    def sizes(self, path: str) -> dict[str, int]:
        return {
            name: place.stat().st_size
            for name in self.names(path)
            if (place := _local(path) / name).is_file()
        }

    def delete(self, path: str) -> None:
        target = _local(path)
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def move(self, path: str, target: str) -> None:
        _local(target).parent.mkdir(parents=True, exist_ok=True)
        _local(path).rename(_local(target))


def _local(path: str) -> Path:
    return Path(unquote(urlparse(path).path)) if path.startswith("file:") else Path(path)


class HadoopFiles:
    """`Files` through the file systems of a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext
        self._java: Any = self._context._jvm

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._java.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._context._jsc.hadoopConfiguration()), place

    def read(self, path: str) -> str | None:
        system, place = self._at(path)
        if not system.exists(place) or system.getFileStatus(place).isDirectory():
            return None
        stream = system.open(place)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        system, place = self._at(path)
        half = place.suffix(".half")
        stream = system.create(half, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        # rename() refuses an existing target; FileContext's rename can replace it.
        context = self._java.org.apache.hadoop.fs.FileContext.getFileContext(
            place.toUri() if place.isAbsolute() else system.makeQualified(place).toUri(),
            self._context._jsc.hadoopConfiguration(),
        )
        options = self._context._gateway.new_array(self._java.org.apache.hadoop.fs.Options.Rename, 1)
        options[0] = self._java.org.apache.hadoop.fs.Options.Rename.OVERWRITE
        context.rename(system.makeQualified(half), system.makeQualified(place), options)

    def names(self, path: str) -> list[str]:
        system, place = self._at(path)
        if not system.exists(place):
            return []
        return sorted(status.getPath().getName() for status in system.listStatus(place))

    def sizes(self, path: str) -> dict[str, int]:
        system, place = self._at(path)
        if not system.exists(place):
            return {}
        found = system.listStatus(place)
        return {each.getPath().getName(): each.getLen() for each in found if each.isFile()}

    def delete(self, path: str) -> None:
        system, place = self._at(path)
        system.delete(place, True)

    def move(self, path: str, target: str) -> None:
        system, place = self._at(path)
        goal = self._java.org.apache.hadoop.fs.Path(target)
        system.mkdirs(goal.getParent())
        if not system.rename(place, goal):
            raise OSError(f"{path} could not be renamed to {target}")
