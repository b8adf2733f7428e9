"""Checks whether places of a pipeline overlap: checkpoint, sink, dead letter output, and the topics that it reads."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from kadence.errors import IllegalStateError
from kadence_spark.source.options import SourceOptions
from kadence_spark.source.start import Partitions, Pattern

__all__ = [
    "check_clusters",
    "directory",
    "is_inside",
    "is_same",
    "may_be_same_cluster",
    "may_be_same_table",
    "reads_topic",
]

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "[::1]"})


def directory(place: str) -> str:
    """The canonical path of a directory: absolute, without symbolic links, ``.`` and ``..``.

    On other file systems only the name is normalised: ``s3a://bucket/a/../b`` is ``s3a://bucket/b``, and so is
    ``s3://bucket/b``, the spelling of other libraries. ``?`` and ``#`` are part of a name.
    """
    found = _PLACE.fullmatch(place)
    if found is None:
        return _local(place)
    scheme, host, path = found["scheme"].lower(), (found["host"] or "").lower(), found["path"]
    if scheme == "file":
        return _local(unquote(path))
    return f"{_SCHEMES.get(scheme, scheme)}://{host}{posixpath.normpath('/' + path.lstrip('/'))}"


_PLACE: Final = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*):(//(?P<host>[^/]*))?(?P<path>.*)", re.DOTALL)

_SCHEMES: Final = {
    "s3": "s3a",
    "s3n": "s3a",
    "abfs": "abfss",
    "wasb": "wasbs",
    "gcs": "gs",
}
"""Names of one store."""


def _local(path: str) -> str:
    # Two slashes at the beginning are one, although POSIX allows another meaning.
    return os.path.realpath(re.sub("^//+", "/", path))


def is_inside(one: str, other: str) -> bool:
    """Whether a directory is the other one, or within it; also through another mount of this machine."""
    inner, outer = directory(one), directory(other)
    if inner == outer or inner.startswith(outer.rstrip("/") + "/"):
        return True
    if not (inner.startswith("/") and outer.startswith("/")):
        return False
    mark = _identity(outer)
    return any(_identity(str(above)) == mark for above in (Path(inner), *Path(inner).parents))


def is_same(one: str, other: str) -> bool:
    """Whether two names are of the same directory."""
    return is_inside(one, other) and is_inside(other, one)


def _identity(path: str) -> tuple[int | str, ...]:
    """The file system's identity of a directory: that of its nearest existing parent, and the names below it."""
    place, below = Path(path), list[str]()
    while True:
        try:
            found = place.stat()
        except OSError:
            if place == place.parent:
                raise
            below.insert(0, place.name)
            place = place.parent
        else:
            return (found.st_dev, found.st_ino, *below)


def may_be_same_table(one: str, other: str) -> bool:
    """Whether two names in Spark's own catalogue are of one table; a name without a database is of ``default``."""
    return _table(one) == _table(other)


def _table(name: str) -> str:
    bare = name.replace("`", "").strip().lower()
    return bare.removeprefix("spark_catalog.").removeprefix("default.")


def reads_topic(options: SourceOptions, topic: str) -> bool:
    """Whether the source reads the topic, by any of its options."""
    match options.topics:
        case Pattern():
            return options.topics.matches(topic)
        case Partitions(partitions):
            return any(partition.topic == topic for partition in partitions)
        case _:
            return topic in options.topics.names


def may_be_same_cluster(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two clients have an address in common. Without one they may still use the same cluster."""
    return not _addresses(one).isdisjoint(_addresses(other))


def _addresses(client: Mapping[str, str]) -> set[str]:
    found = set()
    for address in str(client.get("bootstrap.servers", "")).split(","):
        host, _, port = address.strip().lower().rpartition(":")
        found.add(f"{'localhost' if host in _LOOPBACK else host}:{port}")
    return found


def check_clusters(source: SourceOptions, writing: Mapping[str, str], topic: str) -> None:
    """Compare the cluster ids of source and sink if a written topic has the name of one that is read.

    Args:
        writing: the client settings of the sink.

    Raises:
        IllegalStateError: they are the same cluster. KafkaError: one of them does not answer.
    """
    if not reads_topic(source, topic):
        return
    from kadence import Admin
    from kadence.config import AdminConfig, keys

    known = {key.name for key in keys(AdminConfig)}
    ids = set()
    for client in (source.client, writing):
        with Admin({name: text for name, text in client.items() if name in known}) as admin:
            ids.add(admin.describe_cluster().cluster_id)
    if len(ids) == 1:
        raise IllegalStateError(f"the pipeline reads the topic {topic!r}: it would read what it writes")
