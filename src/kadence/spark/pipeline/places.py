"""Whether two places of a pipeline meet: its checkpoint, the sink, the dead letters, and the topics that it reads."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from kadence.errors import IllegalStateError
from kadence.spark.source.options import SourceOptions
from kadence.spark.source.start import Partitions, Pattern

__all__ = ["check_clusters", "directory", "is_inside", "may_be_same_cluster", "reads_topic"]

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "[::1]"})


def directory(place: str) -> str:
    """The one spelling of a directory: absolute, without symbolic links, ``.`` and ``..``.

    Another file system than this machine's is known by its name alone: ``s3a://bucket/a/../b`` is ``s3a://bucket/b``.
    """
    parts = urlsplit(place)
    if parts.scheme and parts.scheme != "file":
        return f"{parts.scheme}://{parts.netloc}{posixpath.normpath('/' + parts.path.lstrip('/'))}"
    return os.path.realpath(unquote(parts.path) if parts.scheme else place)


def is_inside(one: str, other: str) -> bool:
    """Whether a directory is the other one, or lies in it."""
    inner, outer = directory(one), directory(other)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def reads_topic(options: SourceOptions, topic: str) -> bool:
    """Whether the source reads the topic, however it names what it reads."""
    match options.topics:
        case Pattern():
            return options.topics.matches(topic)
        case Partitions(partitions):
            return any(partition.topic == topic for partition in partitions)
        case _:
            return topic in options.topics.names


def may_be_same_cluster(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two clients have an address in common. Without one they may be of one cluster all the same."""
    return not _addresses(one).isdisjoint(_addresses(other))


def _addresses(client: Mapping[str, str]) -> set[str]:
    found = set()
    for address in str(client.get("bootstrap.servers", "")).split(","):
        host, _, port = address.strip().lower().rpartition(":")
        found.add(f"{'localhost' if host in _LOOPBACK else host}:{port}")
    return found


def check_clusters(source: SourceOptions, writing: Mapping[str, str], topic: str) -> None:
    """Ask both clusters who they are where a topic that is written has the name of one that is read.

    Args:
        writing: the client settings of the sink.

    Raises:
        IllegalStateError: they are one. KafkaError: one of them does not answer.
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
